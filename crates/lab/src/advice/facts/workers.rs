//! What was measured with different numbers of workers.

use crate::measurement::Measurement;
use crate::suite::{Plan, Work};

/// Throughput and latency of one kind of work at several numbers of operations in flight on one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// The target.
    pub target: String,
    /// The kind of work: `random reads of 4.00 KiB`.
    pub work: String,
    /// What was measured, in no order.
    pub points: Vec<WorkersPoint>,
}

/// One number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkersPoint {
    /// Operations in flight: workers times queue depth.
    pub in_flight: f64,
    /// Operations a second.
    pub iops: f64,
    /// Mean latency, in nanoseconds.
    pub mean_ns: f64,
}

/// Adds a measurement to those of the same work on the same target.
pub(super) fn add(all: &mut Vec<Workers>, plan: &Plan, measurement: &Measurement) {
    let Some(test) = plan.tests.iter().find(|test| test.name == measurement.test) else { return };
    let Work::Io(jobs) = &test.work else { return };
    let [job] = jobs.0.as_slice() else { return };
    let order = if job.pattern.random { "random" } else { "sequential" };
    let size = crate::unit::Unit::Bytes
        .show(f64::from(job.block_sizes.read.largest().max(job.block_sizes.write.largest())));
    let work = format!("{order}, {}% reads, {size}", job.pattern.read_percent);
    let streams = &measurement.outcome.streams;
    let operations: u64 = streams.iter().map(|stream| stream.operations).sum();
    if operations == 0 {
        return;
    }
    let latencies =
        streams.iter().map(|stream| stream.latency.mean_ns() * stream.operations as f64).sum::<f64>();
    let point = WorkersPoint {
        in_flight: f64::from(job.workers) * f64::from(job.queue_depth),
        iops: streams.iter().map(|stream| stream.iops()).sum(),
        mean_ns: latencies / operations as f64,
    };
    match all.iter_mut().find(|workers| workers.target == measurement.target && workers.work == work) {
        Some(workers) => workers.points.push(point),
        None => all.push(Workers { target: measurement.target.clone(), work, points: vec![point] }),
    }
}
