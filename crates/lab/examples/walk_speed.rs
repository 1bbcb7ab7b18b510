//! Compares the lab's walk with `fd`: `walk_speed FOLDER [FILES]` creates a tree of 300,000 files
//! in its own folder inside FOLDER, scans it five times with each tool in turn, with everything in
//! memory, and deletes it. `fd, names only` lists names; the others also stat each file.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]

use std::path::Path;
use std::process::{Command, ExitCode};

use cenote_lab::control::Control;
use cenote_lab::measurement::Outcome;
use cenote_lab::target::Scratch;
use cenote_lab::tree::{Leaf, Names, Shape};
use cenote_lab::unit::Unit;
use cenote_lab::walk::{Cache, Scan, ScanTool};
use cenote_lab::{Result, program};

const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("walk_speed FOLDER [FILES]");
        return ExitCode::FAILURE;
    };
    let files = arguments.next().and_then(|files| files.parse().ok()).unwrap_or(300_000);
    match compare(Path::new(&folder), files) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(folder: &Path, files: u64) -> Result<()> {
    let (scratch, lists) = (Scratch::new(folder)?, Scratch::new(folder)?);
    let leaf = Leaf::File { bytes: 100 };
    let shape = Shape { leaf, count: files, per_folder: 100, depth: 2, names: Names::Random, seed: 1 };
    let control = Control::default();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
    let walk = |threads| (format!("walk, {threads} threads"), ScanTool::Walk { threads });
    let tools = [walk(1), walk(processors), walk(16), ("fd with stat".into(), ScanTool::Fd)];
    let mut names = ("fd, names only".to_owned(), Vec::new(), 0.0);
    let mut times: Vec<(String, Vec<f64>, f64)> =
        tools.iter().map(|t| (t.0.clone(), Vec::new(), 0.0)).collect();
    for _ in 0..ROUNDS {
        for ((_, tool), (_, times, cpu)) in tools.iter().zip(&mut times) {
            let scan = Scan { tool: tool.clone(), cache: Cache::Warm, tree: Some(shape) };
            let outcome = scan.run(folder, Some(scratch.path()), lists.path(), &control)?;
            times.push(figure(&outcome, "scan.time"));
            *cpu = outcome.cpu.map_or(0.0, |cpu| cpu.total_ns() as f64);
            if !outcome.notes.is_empty() || figure(&outcome, "files") != files as f64 {
                println!("found {}: {:?}", figure(&outcome, "files"), outcome.notes);
            }
        }
        if let Some(fd) = program::find(&["fd", "fdfind"]) {
            let mut command = Command::new(fd);
            command.args(["--no-ignore", "--hidden", "."]).arg(scratch.path().join("scanned"));
            let ran = program::run(&mut command, &lists.path().join("names"), &control)?;
            names.1.push(ran.elapsed_ns as f64);
            names.2 = ran.cpu.total_ns() as f64;
        }
    }
    times.push(names);
    for (name, mut times, cpu) in times {
        times.sort_by(f64::total_cmp);
        let show = |ns: f64| Unit::Nanoseconds.show(ns);
        let Some(&median) = times.get(times.len() / 2) else { continue };
        let (least, most) = (times[0], times[times.len() - 1]);
        let rate = Unit::PerSecond.show(files as f64 / (median / 1e9));
        println!(
            "{name:18} median {:>8}  ({} to {})  {rate:>9}  processor {}",
            show(median),
            show(least),
            show(most),
            show(cpu)
        );
    }
    Ok(())
}

fn figure(outcome: &Outcome, name: &str) -> f64 {
    outcome.others.iter().find(|figure| figure.name == name).map_or(0.0, |figure| figure.value)
}
