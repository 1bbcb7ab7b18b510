//! The result of one run: streams of operations with their latencies and seconds, and the figures to compare.
//!
//! A [`Measurement`] is one run of one test on one target. A [`Stream`] holds all its operations of one kind
//! (the reads of a mix, the creations of a tree). [`Figure`]s are the numbers to compare: those of streams
//! are derived ([`Outcome::figures`]); others (seconds of a resilver, inodes per second) are added by the
//! measuring code.

mod cpu;
mod latency;
mod recorder;
pub mod tally;

use serde::{Deserialize, Serialize};

pub use latency::Latency;
pub use recorder::Recorder;
pub use tally::Tally;

use crate::unit::{Better, Unit};

/// Tool that did the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `cenote`, `fio`, `bonnie++`, `fd`, `zpool`.
    pub name: String,
    /// Version, as reported.
    pub version: String,
    /// Command line that repeats the work.
    pub command: Option<String>,
}

/// One second of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Start in nanoseconds since the measurement began. The last second ends with its stream, and may be
    /// shorter.
    pub at_ns: u64,
    /// Operations completed.
    pub operations: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_sum_ns: u64,
    /// Longest of their latencies.
    pub latency_max_ns: u64,
}

impl Second {
    /// Adds another worker's operations in this second.
    pub fn add(&mut self, other: &Second) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.latency_sum_ns += other.latency_sum_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

/// All operations of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// `read`, `write`, `sync`, `create`, `stat`, `list`, `delete`, `seek`...
    pub operation: String,
    /// Number of completed operations.
    pub operations: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Duration in nanoseconds (without ramp and start delay).
    pub runtime_ns: u64,
    /// Number of failed operations.
    pub errors: u64,
    /// Latencies. Stored separately, as rows of Parquet.
    #[serde(skip)]
    pub latency: Latency,
    /// Second by second. Stored separately, as rows of Parquet.
    #[serde(skip)]
    pub seconds: Vec<Second>,
}

/// One number to compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Operation and aspect: `read.iops`, `write.bandwidth`, `read.p99`, `resilver.time`.
    pub name: String,
    /// Value in the base unit.
    pub value: f64,
    /// Unit of the value.
    pub unit: Unit,
    /// Better direction.
    pub better: Better,
}

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// User space, in nanoseconds.
    pub user_ns: u64,
    /// Kernel, in nanoseconds.
    pub system_ns: u64,
}

/// Result of a piece of work: the part of a measurement that does not depend on time and place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Tool that did the work.
    pub tool: Tool,
    /// Processor time of the working process; None if unknown.
    pub cpu: Option<CpuTime>,
    /// Operations by kind.
    pub streams: Vec<Stream>,
    /// Figures not derived from streams.
    pub others: Vec<Figure>,
    /// Notes for the reader: "the file system refused O_DIRECT, so I/O is buffered", "caches could not be
    /// dropped, so reads may be warm".
    pub notes: Vec<String>,
}

/// One run of one test on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the test in its suite: `randread-4k`.
    pub test: String,
    /// Name of the target.
    pub target: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Start: nanoseconds since 1970, UTC.
    pub started_unix_ns: u64,
    /// Total duration in nanoseconds.
    pub elapsed_ns: u64,
    /// Result of the work.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Tool {
    /// This program.
    pub fn cenote() -> Tool {
        Tool { name: "cenote".into(), version: env!("CARGO_PKG_VERSION").into(), command: None }
    }
}

impl Figure {
    /// A figure where higher is better.
    pub fn higher(name: impl Into<String>, value: f64, unit: Unit) -> Figure {
        Figure { name: name.into(), value, unit, better: Better::Higher }
    }

    /// A figure where lower is better.
    pub fn lower(name: impl Into<String>, value: f64, unit: Unit) -> Figure {
        Figure { name: name.into(), value, unit, better: Better::Lower }
    }

    /// A figure without a better direction, such as a number of files.
    pub fn neutral(name: impl Into<String>, value: f64, unit: Unit) -> Figure {
        Figure { name: name.into(), value, unit, better: Better::Neither }
    }
}

/// Percentiles among the figures, with their name suffixes.
pub const PERCENTILES: [(f64, &str); 5] =
    [(50.0, "p50"), (95.0, "p95"), (99.0, "p99"), (99.5, "p99.5"), (99.9, "p99.9")];

impl Stream {
    /// Operations per second.
    pub fn iops(&self) -> f64 {
        per_second(self.operations, self.runtime_ns)
    }

    /// Bytes per second.
    pub fn bandwidth(&self) -> f64 {
        per_second(self.bytes, self.runtime_ns)
    }

    /// Adds a stream that ran at the same time: seconds with the same start are summed.
    pub fn add(&mut self, other: &Stream) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.runtime_ns = self.runtime_ns.max(other.runtime_ns);
        self.errors += other.errors;
        self.latency.add(&other.latency);
        for second in &other.seconds {
            match self.seconds.binary_search_by_key(&second.at_ns, |known| known.at_ns) {
                Ok(at) => self.seconds[at].add(second),
                Err(at) => self.seconds.insert(at, *second),
            }
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let name = |what: &str| format!("{}.{what}", self.operation);
        let mut figures = vec![Figure::higher(name("iops"), self.iops(), Unit::PerSecond)];
        if self.bytes > 0 {
            figures.push(Figure::higher(name("bandwidth"), self.bandwidth(), Unit::BytesPerSecond));
        }
        if !self.latency.is_empty() {
            let ns = |what: &str, value: f64| Figure::lower(name(what), value, Unit::Nanoseconds);
            figures.push(ns("mean", self.latency.mean_ns()));
            figures.extend(PERCENTILES.map(|(p, end)| ns(end, self.latency.percentile_ns(p) as f64)));
            figures.push(ns("max", self.latency.max_ns() as f64));
        }
        figures
    }
}

impl Outcome {
    /// All figures: those of streams, then the others.
    pub fn figures(&self) -> Vec<Figure> {
        self.streams.iter().flat_map(Stream::figures).chain(self.others.iter().cloned()).collect()
    }
}

fn per_second(count: u64, runtime_ns: u64) -> f64 {
    if runtime_ns == 0 { 0.0 } else { count as f64 / (runtime_ns as f64 / 1e9) }
}

/// A figure's name in words: `read.p99` is "read p99 latency".
pub fn words_of_figure(name: &str) -> String {
    let (what, which) = name.split_once('.').unwrap_or(("", name));
    let which = match which {
        "iops" if matches!(what, "read" | "write" | "seek" | "sync" | "trim") => "IOPS".into(),
        "iops" => "operations".into(),
        "mean" => "mean latency".into(),
        "max" => "longest latency".into(),
        p if p.starts_with('p') && p[1..].starts_with(|c: char| c.is_ascii_digit()) => format!("{p} latency"),
        other => other.replace(['_', '.'], " "),
    };
    let what = what.replace('_', " ");
    if what.is_empty() { which } else { format!("{what} {which}") }
}
