#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
//! Conclusions of a careful engineer from the field reports' numbers, and from runs made for one question
//! each.

mod between;
mod made;
mod others;
mod pools_004;
mod vm_002;

use super::*;
use crate::load::job::{BlockSizes, Job, Jobs, Method, Pattern, ReadWrite};
use crate::load::measurement::{Measurement, Outcome, Stream, Tool};
use crate::load::samples::{Kind, Samples, Series};
use crate::load::suite::{Options, Plan, Test, Work};

fn plan(jobs: Vec<Job>) -> Plan {
    let test =
        |job: Job| Test { name: job.name.clone(), about: String::new(), work: Work::Io(Jobs(vec![job])) };
    Plan {
        suite: "pools".into(),
        title: String::new(),
        method: String::new(),
        options: Options::default(),
        repeats: 1,
        tests: jobs.into_iter().map(test).collect(),
    }
}

fn job(name: &str, bytes: u32, workers: u32, queue_depth: u32) -> Job {
    Job {
        name: name.into(),
        pattern: Pattern { random: true, read_percent: 100 },
        block_sizes: ReadWrite { read: BlockSizes::of(bytes), write: BlockSizes::of(bytes) },
        workers,
        queue_depth,
        method: Method::IoUring,
        direct: true,
        ..Job::default()
    }
}

/// Half a minute of operations of equal latency.
fn stream(operation: &str, iops: f64, bytes_per_second: f64, latency_ns: f64) -> Stream {
    let operations = (iops * 30.0).round() as u64;
    let mut stream = Stream {
        operation: operation.into(),
        operations,
        bytes: (bytes_per_second * 30.0) as u64,
        runtime_ns: 30_000_000_000,
        errors: 0,
        latency: Latency::default(),
        seconds: Vec::new(),
    };
    stream.latency.record_many(latency_ns as u64, operations);
    stream
}

fn run(test: &str, target: &str, repeat: u32, streams: Vec<Stream>, samples: Samples) -> Run {
    Run {
        measurement: Measurement {
            test: test.into(),
            target: target.into(),
            repeat,
            started_unix_ns: 0,
            elapsed_ns: 30_000_000_000,
            outcome: Outcome {
                tool: Tool { name: "fio".into(), version: "3.36".into(), command: None },
                cpu: None,
                streams,
                others: Vec::new(),
                notes: Vec::new(),
            },
        },
        samples,
    }
}

/// A series of two points, half a minute apart.
fn series(source: &str, subject: &str, name: &str, kind: Kind, values: [f64; 2]) -> Series {
    let points = vec![(0, values[0]), (30_000_000_000, values[1])];
    let unit = crate::unit::Unit::Count;
    Series { source: source.into(), subject: subject.into(), name: name.into(), kind, unit, points }
}

fn counter(source: &str, subject: &str, name: &str, growth: f64) -> Series {
    series(source, subject, name, Kind::Counter, [1000.0, 1000.0 + growth])
}

fn find<'a>(findings: &'a [Finding], id: &str, test: &str) -> Vec<&'a Finding> {
    findings.iter().filter(|f| f.id == id && f.test.as_deref() == Some(test)).collect()
}
