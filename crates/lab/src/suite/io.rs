//! What suites of plain I/O share: how large, how long, how often; and jobs from few words.

use super::{Options, Plan, Test, Work};
use crate::job::{BlockSizes, Distribution, Job, Jobs, Method, Pattern, ReadWrite, SyncMode};
use crate::unit::{Unit, times};

/// What all tests of a quick run may take together, beside laying out files.
const QUICK_SECONDS: u64 = 150;
/// The shortest test that says anything.
const SHORTEST_SECONDS: u64 = 2;

/// A suite's own choices.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Data set.
    pub size_bytes: u64,
    /// Data set of a quick run.
    pub quick_bytes: u64,
    /// How long a test goes on.
    pub seconds: u64,
    /// How often each is done.
    pub repeats: u32,
}

/// What a suite is called, and what it asks.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name.
    pub suite: &'static str,
    /// The report's title.
    pub title: &'static str,
    /// What it is to answer, and how.
    pub question: &'static str,
}

/// How large, how long, how often.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of all files of a test together.
    pub size_bytes: u64,
    /// Seconds of a test.
    pub seconds: u64,
    /// How often each test is done.
    pub repeats: u32,
    /// A quick run.
    quick: bool,
}

impl Sizes {
    /// What the user chose, or else the suite; a quick run divides its time among all tests on all targets.
    pub fn choose(options: &Options, targets: usize, tests: u64, own: Defaults) -> Sizes {
        let repeats = options.repeats.unwrap_or(own.repeats).max(1);
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

    /// `question`, and what was chosen.
    fn method(&self, question: &str) -> String {
        let quick = if self.quick {
            " This is a quick run: shorter and smaller than the suite's full run, so its intervals are wider."
        } else {
            ""
        };
        format!(
            "{question} The data set has {}; each test runs {} s, {}, the targets taking turns within each repeat.{quick}",
            Unit::Bytes.show(self.size_bytes as f64),
            self.seconds,
            times(self.repeats)
        )
    }

    /// The plan of a suite: its question, and tests of such names and shapes.
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

    /// The work of such a shape. All tests of a suite use the same files: the workers' parts of the data set.
    fn work(&self, shape: &Shape) -> Work {
        let block = u64::from(shape.block_bytes);
        let part = (self.size_bytes / u64::from(shape.workers) / block).max(1) * block;
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

/// What tests of plain I/O differ in.
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
    /// One operation after the other, by one worker.
    pub fn sequential(read_percent: u8, block_bytes: u32) -> Shape {
        Shape { random: false, read_percent, block_bytes, workers: 1, queue_depth: 1, durable: false }
    }

    /// Random operations, so many at once by so many workers.
    pub fn random(read_percent: u8, block_bytes: u32, workers: u32, queue_depth: u32) -> Shape {
        Shape { random: true, read_percent, block_bytes, workers, queue_depth, durable: false }
    }

    /// The same, each write durable before the next.
    pub fn durable(self) -> Shape {
        Shape { durable: true, ..self }
    }
}
