//! Shared by suites of plain I/O: sizes, durations, repeats, and short job definitions.

use super::{Options, Plan, Test, Work};
use crate::load::job::{BlockSizes, Distribution, Job, Jobs, Method, Pattern, ReadWrite, SyncMode};
use crate::stats::repeats_for;
use crate::unit::{Unit, times};

/// Time limit for all tests of a quick run, apart from laying out files.
const QUICK_SECONDS: u64 = 150;
/// Shortest meaningful test.
const SHORTEST_SECONDS: u64 = 2;

/// A suite's defaults.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Data set bytes.
    pub size_bytes: u64,
    /// Data set of a quick run.
    pub quick_bytes: u64,
    /// Seconds of a test.
    pub seconds: u64,
    /// Repeats of each test.
    pub repeats: u32,
}

/// A suite's name and question.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Name of the suite.
    pub suite: &'static str,
    /// Title of the report.
    pub title: &'static str,
    /// Question and approach.
    pub question: &'static str,
}

/// Sizes, durations and repeats. [`preflight`](crate::load::preflight) refuses invalid values.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of all files of a test together.
    pub size_bytes: u64,
    /// Seconds of a test.
    pub seconds: u64,
    /// Repeats of each test.
    pub repeats: u32,
    quick: bool,
}

impl Sizes {
    /// User's choice, or else the suite's. A quick run divides its time among all tests on all targets; a
    /// full run has enough repeats to support a difference among that many comparisons.
    pub fn choose(options: &Options, targets: usize, tests: &[(&str, &str, Shape)], own: Defaults) -> Sizes {
        let pairs = targets * targets.saturating_sub(1) / 2;
        let figures: usize = tests.iter().map(|(_, _, shape)| shape.figures()).sum();
        let needed = if pairs > 0 && !options.quick { repeats_for(pairs * figures) as u32 } else { 1 };
        let repeats = options.repeats.unwrap_or(own.repeats.max(needed)).max(1);
        let tests = tests.len() as u64;
        let in_turn = if options.together { 1 } else { targets.max(1) as u64 };
        let share = QUICK_SECONDS / (tests * u64::from(repeats) * in_turn);
        let (seconds, size_bytes) = match options.quick {
            true => (share.max(SHORTEST_SECONDS).min(own.seconds), own.quick_bytes / in_turn),
            false => (own.seconds, own.size_bytes),
        };
        Sizes {
            size_bytes: options.size_bytes.unwrap_or(size_bytes),
            seconds: options.seconds.unwrap_or(seconds),
            repeats,
            quick: options.quick,
        }
    }

    /// `question`, followed by the choices.
    fn method(&self, question: &str) -> String {
        let quick = if self.quick {
            " This is a quick run, shorter and smaller than the full suite, so its intervals are wider."
        } else {
            ""
        };
        format!(
            "{question} The data set is {}; each test runs {} s, {}, with the targets taking turns within \
             each repeat.{quick}",
            Unit::Bytes.show(self.size_bytes as f64),
            self.seconds,
            times(self.repeats)
        )
    }

    /// Plan of a suite: its question, and tests with these names and shapes.
    pub fn plan(&self, options: &Options, about: About, tests: &[(&str, &str, Shape)]) -> Plan {
        let test = |(name, about, shape): &(&str, &str, Shape)| Test {
            name: (*name).into(),
            about: (*about).into(),
            work: self.work(shape),
        };
        Plan {
            suite: about.suite.into(),
            title: about.title.into(),
            method: self.method(about.question),
            options: options.clone(),
            repeats: self.repeats,
            tests: tests.iter().map(test).collect(),
        }
    }

    /// Work of a shape. All tests of a suite share the same files: the workers' regions of the data set.
    fn work(&self, shape: &Shape) -> Work {
        let block = u64::from(shape.block_bytes);
        let part = self.size_bytes / u64::from(shape.workers) / block * block;
        let sizes = BlockSizes::of(shape.block_bytes);
        Work::Io(Jobs(vec![Job {
            name: format!("data{}", shape.workers),
            pattern: Pattern { random: shape.random, read_percent: shape.read_percent },
            block_sizes: ReadWrite { read: sizes.clone(), write: sizes },
            size_bytes: part,
            queue_depth: shape.queue_depth,
            workers: shape.workers,
            method: if shape.queue_depth > 1 { Method::IoUring } else { Method::Threads },
            direct: true,
            sync: if shape.durable { SyncMode::Dsync } else { SyncMode::None },
            runtime_ns: Some(self.seconds * 1_000_000_000),
            time_based: true,
            distribution: Distribution::Random,
            group: true,
            ..Job::default()
        }]))
    }
}

/// Parameters in which plain I/O tests differ.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    random: bool,
    read_percent: u8,
    block_bytes: u32,
    workers: u32,
    queue_depth: u32,
    durable: bool,
}

impl Shape {
    /// Sequential operations by one worker.
    pub fn sequential(read_percent: u8, block_bytes: u32) -> Shape {
        Shape { random: false, read_percent, block_bytes, workers: 1, queue_depth: 1, durable: false }
    }

    /// Random operations, with `queue_depth` in flight for each of `workers`.
    pub fn random(read_percent: u8, block_bytes: u32, workers: u32, queue_depth: u32) -> Shape {
        Shape { random: true, read_percent, block_bytes, workers, queue_depth, durable: false }
    }

    /// Number of headline figures of the test: reads, writes, or both.
    fn figures(self) -> usize {
        if matches!(self.read_percent, 0 | 100) { 1 } else { 2 }
    }

    /// The same, with each write durable before the next.
    pub fn durable(self) -> Shape {
        Shape { durable: true, ..self }
    }
}
