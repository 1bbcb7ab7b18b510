//! `cenote-world`: runs worlds.
#![allow(clippy::print_stdout, reason = "a tool for developers, which ends if nobody reads it")]

mod every;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use cenote_testkit::image::save;
use cenote_world::less::{Choice, Kind, Less};
use cenote_world::pairs::Pairs;
use cenote_world::shrink::shrink;
use cenote_world::timeline;
use cenote_world::world::{Params, Report, Sabotage, run};
use clap::{Parser, ValueEnum};

/// Blocks are allocated by the megabyte; see the allocator of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Most clients of files.
    #[arg(long)]
    posix: Option<usize>,
    /// Most clients of volumes.
    #[arg(long)]
    volumes: Option<usize>,
    /// Most administrators.
    #[arg(long)]
    admins: Option<usize>,
    /// Kinds of calls that nobody makes: posix:3, volume:0, admin:7, fault:2.
    #[arg(long, value_delimiter = ',')]
    without: Vec<Kind>,
    /// Choices of clients that are not carried out: CLIENT:NUMBER.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<Choice>,
    /// Make the first world that is wrong as small as possible.
    #[arg(long)]
    shrink: bool,
    /// Count pairs of verbs that ran at once, and aim each world at another pair.
    #[arg(long)]
    pairs: bool,
    /// Write the history of the first world that is wrong, or of a single world, as an HTML page.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Write the disks of the first world that is wrong into a new folder, as images.
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
    /// Most worlds run to shrink one.
    #[arg(long, default_value_t = 400)]
    shrink_runs: u64,
    #[command(flatten)]
    small: every::SmallArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Broken {
    Flushes,
    Notices,
}

impl Args {
    fn less(&self) -> Less {
        Less {
            posix: self.posix,
            volumes: self.volumes,
            admins: self.admins,
            kinds: self.without.iter().copied().collect(),
            choices: self.skip.iter().copied().collect(),
        }
    }
}

/// Prints the smallest world that is wrong in the same way.
fn smaller(params: Params, runs: u64, tail: usize, timeline: Option<&Path>) {
    match shrink(params, runs) {
        Err(error) => println!("the host's file system: {error}"),
        Ok(None) => println!("the world is right when it is run again"),
        Ok(Some(shrunk)) => {
            let Report { lines, violation, calls, .. } = &shrunk.report;
            lines[lines.len().saturating_sub(tail)..].iter().for_each(|line| println!("{line}"));
            println!("after {} worlds: {calls} calls", shrunk.runs);
            println!("WRONG: {}", violation.as_ref().map_or("", |violation| &violation.0));
            println!("again: {}", shrunk.params.command());
            write_timeline(timeline, &shrunk.params, &shrunk.report);
        }
    }
}

fn write_timeline(to: Option<&Path>, params: &Params, report: &Report) {
    let Some(path) = to else { return };
    let what = report.violation.as_ref().map(|violation| &*violation.0);
    match std::fs::write(path, timeline::page(&report.record, &params.command(), what)) {
        Ok(()) => println!("time line: {}", path.display()),
        Err(error) => println!("{}: {error}", path.display()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.small.is_some() {
        return args.small.run(args.seed, args.all, args.tail);
    }
    let sabotage = args.sabotage.map(|broken| match broken {
        Broken::Flushes => Sabotage::FlushesLie,
        Broken::Notices => Sabotage::NoticesAreLost,
    });
    let (mut wrong, mut pairs) = (0, Pairs::default());
    let timeline = args.timeline.as_deref();
    for seed in args.seed..args.seed.saturating_add(args.worlds) {
        let begun = Instant::now();
        let params =
            Params { seed, calls: args.ops, cuts: args.cuts, sabotage, aims: args.pairs, less: args.less() };
        let report = match run(params.clone()) {
            Ok(report) => report,
            Err(error) => {
                println!("the host's file system: {error}");
                return ExitCode::FAILURE;
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        pairs.count(&report.record);
        let lines = match report.violation {
            _ if args.log => report.lines.len(),
            Some(_) => args.tail,
            None => 0,
        };
        report.lines[report.lines.len().saturating_sub(lines)..].iter().for_each(|line| println!("{line}"));
        let (calls, speed) = (report.calls, report.calls as f64 / seconds);
        println!("seed {seed}: {calls} calls, {speed:.0}/s, history {:016x}", report.hash);
        if args.worlds == 1 || (report.violation.is_some() && wrong == 0) {
            write_timeline(timeline, &params, &report);
        }
        if let Some(folder) = args.save.as_deref().filter(|_| report.violation.is_some() && wrong == 0) {
            save(&report.disks, folder);
        }
        if let Some(violation) = report.violation {
            println!("WRONG: {}", violation.0);
            println!("again: {}", params.command());
            wrong += 1;
            if args.shrink {
                smaller(params, args.shrink_runs, args.tail, timeline);
                break;
            }
            if !args.all {
                break;
            }
        }
    }
    if args.pairs {
        print!("{pairs}");
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
