//! `cenote-fuzz`: runs the targets on mutations of their corpus, with stable Rust and nothing else.
//!
//! A case is (target, seed, number); these three always make the same input: `cenote-fuzz TARGET --seed S
//! --case N`. A case fails if it panics, allocates more than the target's bound or takes longer than
//! `--limit-ms`. Failing inputs are written to `fuzz/failures/TARGET-N`; add them to the corpus once they
//! are fixed.
//!
//! Mutation is blind (no coverage); it reaches far because the corpus holds real structures. Exit status: 0
//! if nothing was found, 1 otherwise.
//!
//! Locking: two static mutexes, never held together: `RUNNING` tells the watchdog thread which case runs,
//! `PANIC` takes the last panic's message. Each is held only to copy its content.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cenote_fuzz::alloc::{Counting, peak_of};
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

/// The running case, for the watchdog.
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
    watch(seed, Duration::from_millis(args.limit_ms));
    let share = Duration::from_secs_f64(args.seconds.max(0.0) / chosen.len() as f64);
    let mut found = 0;
    for target in chosen {
        let fuzzer = Fuzzer { target, seed, inputs: corpus::load(target.name) };
        found += match (&args.input, args.case) {
            (Some(path), _) => fuzzer.one_file(path),
            (None, Some(case)) => fuzzer.one(case).map_or(0, |why| fuzzer.report(case, &why)),
            (None, None) => fuzzer.run(share),
        };
    }
    if found > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Keeps a panic's message instead of printing it: a target that panics does so thousands of times.
fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(mut last) = PANIC.lock() {
            *last = panic.to_string().replace('\n', " ");
        }
    }));
}

#[derive(Clone, Copy)]
struct Running {
    target: &'static Target,
    case: u64,
}

/// Ends the process if a case takes too long: nothing else can stop a thread that loops.
///
/// Processor time counts, because on a busy machine a case may wait for long. A case that waits for ever is
/// caught as well, but later.
fn watch(seed: u64, limit: Duration) {
    /// How many times the limit a case may last if it does not compute.
    const MOST_WAITING: u32 = 100;
    std::thread::spawn(move || {
        let mut seen: Option<((&str, u64), Duration, Instant)> = None;
        loop {
            std::thread::sleep(limit / 20);
            let running = RUNNING.lock().map_or(None, |running| *running);
            let Some(Running { target, case }) = running else { continue };
            let computed = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
            let (_, since_computed, since) = match seen {
                Some(same) if same.0 == (target.name, case) => same,
                _ => *seen.insert(((target.name, case), computed, Instant::now())),
            };
            if computed.saturating_sub(since_computed) > limit || since.elapsed() > limit * MOST_WAITING {
                let fuzzer = Fuzzer { target, seed, inputs: corpus::load(target.name) };
                fuzzer.report(case, &format!("still runs after {limit:?}"));
                std::process::exit(1);
            }
        }
    });
}

fn running(now: Option<Running>) {
    if let Ok(mut running) = RUNNING.lock() {
        *running = now;
    }
}

struct Fuzzer {
    target: &'static Target,
    seed: u64,
    inputs: Vec<(String, Vec<u8>)>,
}

impl Fuzzer {
    /// Runs cases until the time is up; returns the number of distinct failures.
    fn run(&self, share: Duration) -> u64 {
        let start = Instant::now();
        let mut failures = BTreeSet::new();
        let mut case = 0;
        while start.elapsed() < share {
            if let Some(why) = self.one(case)
                && failures.insert(why.clone())
            {
                self.report(case, &why);
            }
            case += 1;
        }
        let name = self.target.name;
        println!("{name:24} {case:>9} cases {:>5} corpus {:>3} failures", self.inputs.len(), failures.len());
        failures.len() as u64
    }

    fn input(&self, case: u64) -> Vec<u8> {
        mutate::case(&mut Rng::stream(self.seed, case), &self.inputs)
    }

    /// Runs a case; returns why it failed.
    fn one(&self, case: u64) -> Option<String> {
        let input = self.input(case);
        running(Some(Running { target: self.target, case }));
        let why = self.parse(&input);
        running(None);
        why
    }

    fn parse(&self, data: &[u8]) -> Option<String> {
        let mut panicked = false;
        let run = AssertUnwindSafe(|| (self.target.run)(data));
        let peak = peak_of(|| panicked = catch_unwind(run).is_err());
        if panicked {
            return Some(PANIC.lock().map_or_else(|_| "a panic".into(), |last| last.clone()));
        }
        // Rounded, so that one fault is not reported again for every size.
        let over = peak > self.target.bound_bytes(data.len());
        over.then(|| format!("held about {} MiB", (peak >> 20).next_power_of_two()))
    }

    fn report(&self, case: u64, why: &str) -> u64 {
        let name = self.target.name;
        let path = self.save(case);
        println!("FAILED {name} --seed {} --case {case}: {why}\n  input: {}", self.seed, path.display());
        1
    }

    fn save(&self, case: u64) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("failures");
        let path = folder.join(format!("{}-{case}", self.target.name));
        let saved = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, self.input(case)));
        saved.map_or_else(|error| format!("not saved: {error}").into(), |()| path)
    }

    fn one_file(&self, path: &PathBuf) -> u64 {
        let outcome = match std::fs::read(path) {
            Ok(data) => self.parse(&data),
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
