//! Sweeps: the same work measured at different numbers of operations in flight.

use crate::load::job::{Job, Jobs, Method};
use crate::load::measurement::Measurement;
use crate::load::suite::{Plan, Work};
use crate::stats::median;
use crate::unit::Unit;

/// Throughput and latency of one kind of work on one target, by operations in flight.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// Name of the target.
    pub target: String,
    /// Kind of work: `random, 100% reads, 4.00 KiB`.
    pub work: String,
    /// Work, without the parameters that a sweep changes.
    pub job: Job,
    /// Measurements, unordered; several at one depth are repeats.
    pub points: Vec<WorkersPoint>,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkersPoint {
    /// Workers times queue depth.
    pub in_flight: f64,
    /// Operations per second.
    pub iops: f64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
}

impl Workers {
    /// Medians of the repeats at each depth, in ascending order.
    pub fn depths(&self) -> Vec<WorkersPoint> {
        let mut depths: Vec<f64> = self.points.iter().map(|point| point.in_flight).collect();
        depths.sort_by(f64::total_cmp);
        depths.dedup();
        let middle = |in_flight: f64, of: fn(&WorkersPoint) -> f64| {
            let repeats = self.points.iter().filter(|point| point.in_flight == in_flight);
            median(&repeats.map(of).collect::<Vec<_>>())
        };
        let point = |in_flight| WorkersPoint {
            in_flight,
            iops: middle(in_flight, |point| point.iops),
            mean_ns: middle(in_flight, |point| point.mean_ns),
        };
        depths.into_iter().map(point).collect()
    }
}

/// Outcome of a sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bears {
    /// Throughput stops growing within the sweep.
    Enough {
        /// Fewest in flight with throughput as good as the best.
        enough: WorkersPoint,
        /// Highest depth tried.
        most: WorkersPoint,
    },
    /// The highest depth was still faster than lower ones.
    More {
        /// Highest depth tried.
        most: WorkersPoint,
    },
    /// Too few depths were measured to tell.
    NoSweep {
        /// Number of depths measured.
        depths: usize,
    },
}

const LEAST_DEPTHS: usize = 3;
/// Throughput within this factor of the best counts as good as the best.
const AS_GOOD: f64 = 0.9;

impl Workers {
    /// How many operations in flight the target can use.
    pub fn bears(&self) -> Bears {
        let depths = self.depths();
        let best = depths.iter().map(|point| point.iops).fold(0.0, f64::max);
        let enough = depths.iter().find(|point| point.iops >= AS_GOOD * best);
        match (enough, depths.last()) {
            (Some(&enough), Some(&most)) if depths.len() >= LEAST_DEPTHS => {
                if enough.in_flight < most.in_flight {
                    Bears::Enough { enough, most }
                } else {
                    Bears::More { most }
                }
            }
            _ => Bears::NoSweep { depths: depths.len() },
        }
    }
}

/// Groups the measurements of a plan into sweeps.
pub fn sweeps<'a>(plan: &Plan, measurements: impl IntoIterator<Item = &'a Measurement>) -> Vec<Workers> {
    let mut all = Vec::new();
    for measurement in measurements {
        add(&mut all, plan, measurement);
    }
    all
}

/// A job without the parameters that a sweep of depths changes: the number in flight, and the method that
/// allows it.
fn alike(job: &Job) -> Job {
    let size_bytes = job.size_bytes.saturating_mul(u64::from(job.workers));
    Job {
        name: String::new(),
        queue_depth: 1,
        workers: 1,
        method: Method::IoUring,
        size_bytes,
        ..job.clone()
    }
}

pub(super) fn add(all: &mut Vec<Workers>, plan: &Plan, measurement: &Measurement) {
    let Some(test) = plan.tests.iter().find(|test| test.name == measurement.test) else { return };
    let Work::Io(Jobs(jobs)) = &test.work else { return };
    let [job] = jobs.as_slice() else { return };
    let streams = &measurement.outcome.streams;
    let operations: u64 = streams.iter().map(|stream| stream.operations).sum();
    if operations == 0 {
        return;
    }
    let latencies =
        streams.iter().map(|stream| stream.latency.mean_ns() * stream.operations as f64).sum::<f64>();
    let at_once = if job.method == Method::Threads { 1 } else { job.queue_depth };
    let point = WorkersPoint {
        in_flight: f64::from(job.workers) * f64::from(at_once),
        iops: streams.iter().map(|stream| stream.iops()).sum(),
        mean_ns: latencies / operations as f64,
    };
    let work = alike(job);
    match all.iter_mut().find(|workers| workers.target == measurement.target && workers.job == work) {
        Some(workers) => workers.points.push(point),
        None => all.push(Workers {
            target: measurement.target.clone(),
            work: in_words(job),
            job: work,
            points: vec![point],
        }),
    }
}

fn in_words(job: &Job) -> String {
    let order = if job.pattern.random { "random" } else { "sequential" };
    let largest = job.block_sizes.read.largest().max(job.block_sizes.write.largest());
    let size = Unit::Bytes.show(f64::from(largest));
    format!("{order}, {}% reads, {size}", job.pattern.read_percent)
}
