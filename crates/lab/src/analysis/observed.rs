//! What a run did and how busy the machine was meanwhile, in the numbers that queueing laws speak of.
//!
//! Utilisation is the part of the time in which a resource had something to do. A processor core, a link and a rotating disk are
//! full at 1. A solid-state disk is not: it works on many operations at once, and `io_time` only tells that it had at least one.

use serde::{Deserialize, Serialize};

use super::{Setting, is_of};
use crate::job::{Job, Jobs, Method, SyncMode};
use crate::result::Run;
use crate::samples::{Samples, Series};
use crate::suite::Work;

/// A block device during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskLoad {
    /// Its name.
    pub name: String,
    /// Part of the time with an operation in flight, from 0 to 1.
    pub busy: f64,
    /// Operations in flight, in the mean.
    pub in_flight: f64,
    /// Operations a second.
    pub iops: f64,
    /// Bytes a second, both ways.
    pub bandwidth: f64,
    /// Bytes read a second.
    pub read_bandwidth: f64,
    /// Whether it rotates; None if not known.
    pub rotates: Option<bool>,
}

/// A network interface during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkLoad {
    /// Its name.
    pub name: String,
    /// Bytes a second in the busier direction.
    pub bandwidth: f64,
    /// Bytes a second that it can carry each way.
    pub speed: f64,
}

/// One run as a closed system: so many operations in flight, so many a second, so long each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The test.
    pub test: String,
    /// The target.
    pub target: String,
    /// Operations a second, all streams.
    pub iops: f64,
    /// Bytes a second, all streams.
    pub bandwidth: f64,
    /// Bytes read a second.
    pub read_bandwidth: f64,
    /// Mean latency of an operation, in nanoseconds; None if not measured.
    pub latency_ns: Option<f64>,
    /// Operations that may be in flight at once; None if not known.
    pub depth: Option<f64>,
    /// The workload waits on purpose (rate, think time): its speed says nothing of limits.
    pub throttled: bool,
    /// Part of the workers' time in `fsync`, `fdatasync`; None if there was none.
    pub sync_share: Option<f64>,
    /// Writes are durable one by one.
    pub sync_writes: bool,
    /// Disks that did something.
    pub disks: Vec<DiskLoad>,
    /// Links that carried something.
    pub links: Vec<LinkLoad>,
    /// Busy part of all processors; None if not sampled.
    pub cpu: Option<f64>,
    /// Busy part of the busiest processor, in the mean over the run.
    pub busiest_cpu: Option<f64>,
    /// Part of the processors' time that was idle with I/O outstanding.
    pub iowait: Option<f64>,
    /// Part of the time in which some task waited for I/O (PSI).
    pub io_pressure: Option<f64>,
}

impl Observed {
    /// What a run shows. `work` is that of its test; of the disks only those below its target count.
    pub fn of(run: &Run, work: Option<&Work>, setting: &Setting) -> Observed {
        let (m, samples) = (&run.measurement, &run.samples);
        let streams = || m.outcome.streams.iter().filter(|s| !is_of(s, "sync"));
        let count: u64 = streams().map(|s| s.latency.count()).sum();
        let time: f64 = streams().map(|s| s.latency.mean_ns() * s.latency.count() as f64).sum();
        let jobs = match work {
            Some(Work::Io(Jobs(jobs))) => jobs.as_slice(),
            _ => &[],
        };
        // Jobs that wait for others are not in flight with them: then no one number holds for the whole run.
        let together = !jobs.is_empty() && !jobs.iter().skip(1).any(|job| job.stonewall);
        let depth = together.then(|| jobs.iter().map(depth).sum());
        let syncs: f64 = m
            .outcome
            .streams
            .iter()
            .filter(|s| is_of(s, "sync") && s.runtime_ns > 0)
            .map(|s| s.latency.mean_ns() * s.latency.count() as f64 / s.runtime_ns as f64)
            .sum();
        let workers: f64 = jobs.iter().map(|job| f64::from(job.workers)).sum();
        Observed {
            test: m.test.clone(),
            target: m.target.clone(),
            iops: streams().map(|s| s.iops()).sum(),
            bandwidth: streams().map(|s| s.bandwidth()).sum(),
            read_bandwidth: streams().filter(|s| is_of(s, "read")).map(|s| s.bandwidth()).sum(),
            latency_ns: (count > 0).then(|| time / count as f64),
            depth,
            throttled: jobs.iter().any(is_throttled),
            sync_share: (syncs > 0.0).then(|| (syncs / workers.max(1.0)).min(1.0)),
            sync_writes: jobs.iter().any(|j| j.sync != SyncMode::None && j.pattern.read_percent < 100),
            disks: disks(samples, &m.target, setting),
            links: links(samples),
            cpu: cpu_busy(samples, ""),
            busiest_cpu: busiest_cpu(samples),
            iowait: share(samples.find("cpu", "", "iowait"), cpu_time(samples, "")),
            io_pressure: samples.find("pressure", "io", "some_total").and_then(per_time),
        }
    }

    /// Operations in flight in the mean, by Little's law: operations a second times latency.
    pub fn in_flight(&self) -> Option<f64> {
        Some(self.iops * self.latency_ns? / 1e9)
    }
}

fn depth(job: &Job) -> f64 {
    let at_once = if job.method == Method::Threads { 1 } else { job.queue_depth };
    f64::from(job.workers) * f64::from(at_once)
}

fn is_throttled(job: &Job) -> bool {
    let any = |rate: crate::job::ReadWrite<Option<u64>>| rate.read.is_some() || rate.write.is_some();
    job.think_ns > 0 || any(job.rate_bytes) || any(job.rate_iops)
}

/// Growth of a counter of nanoseconds by the time it was watched.
fn per_time(series: &Series) -> Option<f64> {
    let (first, last) = (series.points.first()?, series.points.last()?);
    (last.0 > first.0).then(|| series.growth() / (last.0 - first.0) as f64)
}

fn per_second(series: Option<&Series>) -> f64 {
    series.and_then(per_time).map_or(0.0, |rate| rate * 1e9)
}

fn disks(samples: &Samples, target: &str, setting: &Setting) -> Vec<DiskLoad> {
    let load = |busy: &Series| {
        let find = |name: &str| samples.find("diskstats", &busy.subject, name);
        let read_bandwidth = per_second(find("read_bytes"));
        DiskLoad {
            name: busy.subject.clone(),
            busy: per_time(busy).unwrap_or(0.0).min(1.0),
            in_flight: find("weighted_io_time").and_then(per_time).unwrap_or(0.0),
            iops: per_second(find("read_ios")) + per_second(find("write_ios")),
            bandwidth: read_bandwidth + per_second(find("write_bytes")),
            read_bandwidth,
            rotates: setting.rotates(&busy.subject),
        }
    };
    let of_busy = samples.series.iter().filter(|s| s.source == "diskstats" && s.name == "io_time");
    of_busy
        .filter(|s| setting.is_below(target, &s.subject))
        .map(load)
        .filter(|disk| disk.iops > 0.0)
        .collect()
}

fn links(samples: &Samples) -> Vec<LinkLoad> {
    let load = |speed: &Series| {
        let find = |name: &str| per_second(samples.find("network", &speed.subject, name));
        let bandwidth = find("rx_bytes").max(find("tx_bytes"));
        Some(LinkLoad { name: speed.subject.clone(), bandwidth, speed: speed.mean()? })
    };
    let speeds = samples.series.iter().filter(|s| s.source == "network" && s.name == "link_speed");
    speeds.filter_map(load).filter(|link| link.speed > 0.0 && link.bandwidth > 0.0).collect()
}

const CPU_TIMES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

fn cpu_time(samples: &Samples, cpu: &str) -> f64 {
    CPU_TIMES.iter().filter_map(|name| samples.find("cpu", cpu, name)).map(Series::growth).sum()
}

fn share(part: Option<&Series>, whole: f64) -> Option<f64> {
    (whole > 0.0).then_some(part?.growth() / whole)
}

fn cpu_busy(samples: &Samples, cpu: &str) -> Option<f64> {
    let whole = cpu_time(samples, cpu);
    let idle = share(samples.find("cpu", cpu, "idle"), whole)?;
    Some((1.0 - idle - share(samples.find("cpu", cpu, "iowait"), whole).unwrap_or(0.0)).max(0.0))
}

fn busiest_cpu(samples: &Samples) -> Option<f64> {
    let cpus =
        samples.series.iter().filter(|s| s.source == "cpu" && s.name == "idle" && !s.subject.is_empty());
    cpus.filter_map(|s| cpu_busy(samples, &s.subject)).reduce(f64::max)
}
