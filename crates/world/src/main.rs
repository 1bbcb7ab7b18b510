//! `cenote-world`: runs worlds.
#![allow(clippy::print_stdout, reason = "a tool for developers, which ends if nobody reads it")]

use std::process::ExitCode;
use std::time::Instant;

use cenote_world::world::{Params, Sabotage, run};
use clap::{Parser, ValueEnum};

/// Runs simulated hosts from seeds, until one is wrong.
#[derive(Parser)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 1)]
    worlds: u64,
    /// Calls of clients, per world.
    #[arg(long, default_value_t = 1000)]
    ops: u64,
    /// Power cuts and kills, per world.
    #[arg(long, default_value_t = 3)]
    cuts: u64,
    /// Go on after a world that is wrong.
    #[arg(long)]
    all: bool,
    /// Break something, to see that it is found: lying flushes, or lost notices.
    #[arg(long, value_enum)]
    sabotage: Option<Broken>,
    /// Print the log of each world.
    #[arg(long)]
    log: bool,
    /// The last lines of the log to print of a world that is wrong.
    #[arg(long, default_value_t = 40)]
    tail: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Broken {
    Flushes,
    Notices,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let sabotage = args.sabotage.map(|broken| match broken {
        Broken::Flushes => Sabotage::FlushesLie,
        Broken::Notices => Sabotage::NoticesAreLost,
    });
    let mut wrong = 0;
    for seed in args.seed..args.seed.saturating_add(args.worlds) {
        let begun = Instant::now();
        let report = match run(Params { seed, calls: args.ops, cuts: args.cuts, sabotage }) {
            Ok(report) => report,
            Err(error) => {
                println!("the host's file system: {error}");
                return ExitCode::FAILURE;
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let lines = match report.violation {
            _ if args.log => report.lines.len(),
            Some(_) => args.tail,
            None => 0,
        };
        report.lines[report.lines.len().saturating_sub(lines)..].iter().for_each(|line| println!("{line}"));
        let (calls, speed) = (report.calls, report.calls as f64 / seconds);
        println!("seed {seed}: {calls} calls, {speed:.0}/s, history {:016x}", report.hash);
        if let Some(violation) = report.violation {
            println!("WRONG: {}", violation.0);
            println!("again: cenote-world --seed {seed} --ops {} --cuts {}", args.ops, args.cuts);
            wrong += 1;
            if !args.all {
                break;
            }
        }
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
