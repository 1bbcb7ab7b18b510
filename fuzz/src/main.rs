//! `cenote-fuzz`: runs the targets on mutations of their corpus. Needs only stable Rust.
//!
//! A case is (target, seed, number), which determine its input: `cenote-fuzz TARGET --seed S --case N`. A
//! case fails if it panics, allocates more than the target's bound, or takes longer than `--limit-ms`.
//! Failing inputs are written to `fuzz/failures/TARGET-N`; add them to the corpus once they are fixed.
//!
//! Mutation is blind, and reaches far because the corpus holds real structures. If built with counters
//! ([`cenote_fuzz::coverage`]), the driver also mutates inputs that reached new code. A case then depends on
//! earlier ones, so a failure is repeated from its file (`--input`). Exit status: 0 if nothing was found, 1
//! otherwise.
//!
//! Locking: two static mutexes, never held together. `RUNNING` tells the watchdog thread the current case,
//! `PANIC` receives the last panic's message. Each is held only to copy its content.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_fuzz::alloc::{Counting, peak_of};
use cenote_fuzz::coverage::Coverage;
use cenote_fuzz::targets::TARGETS;
use cenote_fuzz::{Target, corpus, mutate, target};
use cenote_runtime::{Rng, Runtime};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Fuzzes the parsers of Cenote.
#[derive(Parser)]
struct Args {
    /// Targets; all if none is named
    targets: Vec<String>,
    /// Total seconds, shared evenly among the targets
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Seed of the cases [default: random, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Run only this case
    #[arg(long)]
    case: Option<u64>,
    /// Run only this file
    #[arg(long)]
    input: Option<PathBuf>,
    /// Milliseconds that one case may take
    #[arg(long, default_value_t = 5000)]
    limit_ms: u64,
    /// List the targets
    #[arg(long)]
    list: bool,
}

/// The current case, for the watchdog.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
/// Message and location of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    let mut chosen = Vec::new();
    for name in &args.targets {
        let Some(target) = target(name) else {
            eprintln!("no target '{name}'; --list shows them");
            return ExitCode::from(2);
        };
        chosen.push(target);
    }
    if chosen.is_empty() {
        chosen.extend(TARGETS);
    }
    let seed = args.seed.unwrap_or_else(|| Runtime::real(Some(1)).random_u64());
    println!("seed {seed}");
    note_panics();
    watch(Duration::from_millis(args.limit_ms));
    let share = Duration::from_secs_f64(args.seconds.max(0.0) / chosen.len() as f64);
    let mut found = 0;
    for target in chosen {
        let mut fuzzer = Fuzzer { target, seed, inputs: corpus::load(target.name) };
        found += match (&args.input, args.case) {
            (Some(path), _) => fuzzer.one_file(path),
            (None, Some(case)) => u64::from(fuzzer.repeat(case)),
            (None, None) => fuzzer.run(share),
        };
    }
    if found > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Stores panic messages instead of printing them: a failing target panics thousands of times.
fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(mut last) = PANIC.lock() {
            *last = panic.to_string().replace('\n', " ");
        }
    }));
}

#[derive(Clone)]
struct Running {
    target: &'static Target,
    seed: u64,
    case: u64,
    input: Arc<Vec<u8>>,
}

/// Ends the process if a case takes too long, since a looping thread cannot be stopped.
///
/// Counts processor time, because a case may wait long on a busy machine. A case that waits for ever is
/// caught later.
fn watch(limit: Duration) {
    /// Wall-clock limit of a case that does not compute, in multiples of `limit`.
    const MOST_WAITING: u32 = 100;
    std::thread::spawn(move || {
        let mut seen: Option<((&str, u64), Duration, Instant)> = None;
        loop {
            std::thread::sleep(limit / 20);
            let running = RUNNING.lock().map_or(None, |running| running.clone());
            let Some(running) = running else { continue };
            let computed = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
            let (_, since_computed, since) = match seen {
                Some(same) if same.0 == running.name() => same,
                _ => *seen.insert((running.name(), computed, Instant::now())),
            };
            if computed.saturating_sub(since_computed) > limit || since.elapsed() > limit * MOST_WAITING {
                running.report(&format!("still runs after {limit:?}"));
                std::process::exit(1);
            }
        }
    });
}

fn set_running(now: Option<Running>) {
    if let Ok(mut running) = RUNNING.lock() {
        *running = now;
    }
}

impl Running {
    fn name(&self) -> (&'static str, u64) {
        (self.target.name, self.case)
    }

    /// Runs the case. Returns the reason if it failed.
    fn run(&self) -> Option<String> {
        set_running(Some(self.clone()));
        let why = parse(self.target, &self.input);
        set_running(None);
        why
    }

    fn report(&self, why: &str) {
        let (name, case) = self.name();
        let path = self.save();
        println!("FAILED {name} --seed {} --case {case}: {why}\n  input: {}", self.seed, path.display());
    }

    fn save(&self) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("failures");
        let path = folder.join(format!("{}-{}", self.target.name, self.case));
        let saved = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &*self.input));
        saved.map_or_else(|error| format!("not saved: {error}").into(), |()| path)
    }
}

fn parse(target: &Target, data: &[u8]) -> Option<String> {
    let mut panicked = false;
    let run = AssertUnwindSafe(|| (target.run)(data));
    let peak = peak_of(|| panicked = catch_unwind(run).is_err());
    if panicked {
        return Some(PANIC.lock().map_or_else(|_| "a panic".into(), |last| last.clone()));
    }
    // Rounded, so that a fault is not reported again for every size.
    let over = peak > target.bound_bytes(data.len());
    over.then(|| format!("held about {} MiB", (peak >> 20).next_power_of_two()))
}

struct Fuzzer {
    target: &'static Target,
    seed: u64,
    inputs: Vec<(String, Vec<u8>)>,
}

impl Fuzzer {
    /// Runs cases until the time is up. Returns the number of distinct failures.
    fn run(&mut self, share: Duration) -> u64 {
        let start = Instant::now();
        let mut coverage = self.reached_by_corpus();
        let mut failures = BTreeSet::new();
        let mut case = 0;
        while start.elapsed() < share {
            let running = self.case(case);
            coverage.as_ref().inspect(|coverage| coverage.skip());
            let failed = running.run();
            let is_news = coverage.as_mut().is_some_and(Coverage::add);
            match failed {
                Some(why) if failures.insert(why.clone()) => running.report(&why),
                None if is_news => self.inputs.push((format!("case {case}"), running.input.to_vec())),
                _ => {}
            }
            case += 1;
        }
        let edges = coverage.map_or_else(String::new, |coverage| format!(" {:>6} edges", coverage.edges()));
        let (name, inputs, failures) = (self.target.name, self.inputs.len(), failures.len());
        println!("{name:24} {case:>9} cases {inputs:>5} corpus{edges} {failures:>3} failures");
        failures as u64
    }

    /// Coverage of the corpus, if the program has counters.
    fn reached_by_corpus(&self) -> Option<Coverage> {
        let mut coverage = Coverage::new()?;
        coverage.skip();
        self.inputs.iter().for_each(|(_, input)| _ = parse(self.target, input));
        coverage.add();
        Some(coverage)
    }

    fn case(&self, case: u64) -> Running {
        let input = mutate::case(&mut Rng::stream(self.seed, case), &self.inputs);
        Running { target: self.target, seed: self.seed, case, input: input.into() }
    }

    /// Runs one case of a seed. Returns whether it failed.
    fn repeat(&self, case: u64) -> bool {
        let running = self.case(case);
        running.run().inspect(|why| running.report(why)).is_some()
    }

    fn one_file(&self, path: &PathBuf) -> u64 {
        let outcome = match std::fs::read(path) {
            Ok(data) => parse(self.target, &data),
            Err(error) => Some(error.to_string()),
        };
        let (name, path) = (self.target.name, path.display());
        match &outcome {
            None => println!("{name}: {path} passes"),
            Some(why) => println!("FAILED {name}: {path}: {why}"),
        }
        u64::from(outcome.is_some())
    }
}
