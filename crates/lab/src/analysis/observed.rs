//! Observations of one run in terms of queueing laws: its throughput and how busy the machine was.
//!
//! Utilisation is the share of time in which a resource had work. A processor core, a link and a rotating
//! disk are saturated at 1. A solid-state disk is not: it serves many operations in parallel.

use serde::{Deserialize, Serialize};

use super::processors::{self, Processors, per_time, share};
use super::{Setting, is_of};
use crate::load::job::{Job, Jobs, Method, SyncMode};
use crate::load::result::Run;
use crate::load::samples::{Samples, Series};
use crate::load::suite::Work;

/// A block device during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskLoad {
    /// Device name.
    pub name: String,
    /// Share of the time with an operation in flight, from 0 to 1.
    pub busy: f64,
    /// Mean number of operations in flight.
    pub in_flight: f64,
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second, both directions.
    pub bandwidth: f64,
    /// Bytes read per second.
    pub read_bandwidth: f64,
    /// Share of these bytes that other programs caused; None if unknown.
    pub others: Option<f64>,
    /// Whether it rotates; None if unknown.
    pub rotates: Option<bool>,
}

/// A network interface during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkLoad {
    /// Interface name.
    pub name: String,
    /// Bytes per second in the busier direction.
    pub bandwidth: f64,
    /// Capacity in each direction, in bytes per second.
    pub speed: f64,
}

/// One run as a closed system: operations in flight, operations per second, latency.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Name of the test.
    pub test: String,
    /// Name of the target.
    pub target: String,
    /// Operations per second, all streams.
    pub iops: f64,
    /// Bytes per second, all streams.
    pub bandwidth: f64,
    /// Bytes read per second.
    pub read_bandwidth: f64,
    /// Mean latency in nanoseconds; None if not measured.
    pub latency_ns: Option<f64>,
    /// Operations allowed in flight; None if unknown.
    pub depth: Option<f64>,
    /// The workload waits deliberately (rate, think time), so its speed shows no limit.
    pub throttled: bool,
    /// Share of the workers' time in `fsync` or `fdatasync`; None without such calls.
    pub sync_share: Option<f64>,
    /// Each write is durable before it returns.
    pub sync_writes: bool,
    /// Active disks.
    pub disks: Vec<DiskLoad>,
    /// Links that carried traffic.
    pub links: Vec<LinkLoad>,
    /// Use of the processors; None if not sampled.
    pub cpu: Option<Processors>,
    /// Utilisation of the busiest processor, averaged over the run.
    pub busiest_cpu: Option<f64>,
    /// Share of processor time idle with I/O outstanding.
    pub iowait: Option<f64>,
    /// Share of the time in which some task waited for I/O (PSI).
    pub io_pressure: Option<f64>,
}

impl Observed {
    /// Observes a run. `work` is that of its test; only disks below its target count.
    pub fn of(run: &Run, work: Option<&Work>, setting: &Setting) -> Observed {
        let (m, samples) = (&run.measurement, &run.samples);
        let streams = || m.outcome.streams.iter().filter(|s| !is_of(s, "sync"));
        let count: u64 = streams().map(|s| s.latency.count()).sum();
        let time: f64 = streams().map(|s| s.latency.mean_ns() * s.latency.count() as f64).sum();
        let jobs = match work {
            Some(Work::Io(Jobs(jobs))) => jobs.as_slice(),
            _ => &[],
        };
        // Jobs that wait for others are not in flight together: no single depth holds for the whole run.
        let together = !jobs.is_empty() && !jobs.iter().skip(1).any(|job| job.stonewall);
        let depth = together.then(|| jobs.iter().map(depth).sum());
        let syncs: f64 = m
            .outcome
            .streams
            .iter()
            .filter(|s| is_of(s, "sync") && s.runtime_ns > 0)
            .map(|s| s.latency.mean_ns() * s.latency.count() as f64 / s.runtime_ns as f64)
            .sum();
        // Past the page cache, a disk moves exactly the requested bytes: no parity, no cache, nothing
        // deferred.
        let past_caches = together && jobs.iter().all(|job| job.direct) && !setting.is_pool(&m.target);
        let own = past_caches.then(|| own_bandwidth(samples)).flatten();
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
            disks: disks(samples, &m.target, setting, own),
            links: links(samples),
            cpu: Processors::of(samples, m.outcome.cpu, m.elapsed_ns),
            busiest_cpu: busiest_cpu(samples),
            iowait: share(samples.find("cpu", "", "iowait"), processors::time(samples, "")),
            io_pressure: samples.find("pressure", "io", "some_total").and_then(per_time),
        }
    }

    /// Mean number of operations in flight, by Little's law: operations per second times latency.
    pub fn in_flight(&self) -> Option<f64> {
        Some(self.iops * self.latency_ns? / 1e9)
    }
}

fn depth(job: &Job) -> f64 {
    let at_once = if job.method == Method::Threads { 1 } else { job.queue_depth };
    f64::from(job.workers) * f64::from(at_once)
}

fn is_throttled(job: &Job) -> bool {
    let any = |rate: crate::load::job::ReadWrite<Option<u64>>| rate.read.is_some() || rate.write.is_some();
    job.think_ns > 0 || any(job.rate_bytes) || any(job.rate_iops)
}

fn per_second(series: Option<&Series>) -> f64 {
    series.and_then(per_time).map_or(0.0, |rate| rate * 1e9)
}

/// Bytes per second between this program and block devices; None if not sampled.
fn own_bandwidth(samples: &Samples) -> Option<f64> {
    let of = |name: &str| samples.find("own", "", name).and_then(per_time);
    Some((of("read_bytes")? + of("write_bytes")?) * 1e9)
}

/// Share of a disk's bytes caused by others. Amounts as small as a file system's own metadata are ignored.
fn others(bandwidth: f64, own: f64) -> f64 {
    const RECORDS: f64 = 0.25;
    const LEAST: f64 = 1048576.0;
    let more = bandwidth - own * (1.0 + RECORDS) - LEAST;
    if more <= 0.0 { 0.0 } else { ((bandwidth - own) / bandwidth).max(0.0) }
}

fn disks(samples: &Samples, target: &str, setting: &Setting, own: Option<f64>) -> Vec<DiskLoad> {
    let load = |busy: &Series| {
        let find = |name: &str| samples.find("diskstats", &busy.subject, name);
        let read_bandwidth = per_second(find("read_bytes"));
        let bandwidth = read_bandwidth + per_second(find("write_bytes"));
        DiskLoad {
            name: busy.subject.clone(),
            busy: per_time(busy).unwrap_or(0.0).min(1.0),
            in_flight: find("weighted_io_time").and_then(per_time).unwrap_or(0.0),
            iops: per_second(find("read_ios")) + per_second(find("write_ios")),
            bandwidth,
            read_bandwidth,
            others: own.map(|own| others(bandwidth, own)),
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

fn busiest_cpu(samples: &Samples) -> Option<f64> {
    let cpus =
        samples.series.iter().filter(|s| s.source == "cpu" && s.name == "idle" && !s.subject.is_empty());
    cpus.filter_map(|s| processors::busy(samples, &s.subject)).reduce(f64::max)
}
