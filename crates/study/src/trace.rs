//! Replays a recorded load against cache policies.

#[cfg(test)]
mod record;

use std::path::PathBuf;
use std::sync::Arc;

use cenote_policy::PolicyName;
use cenote_policy::curve::{self, Curve};
use cenote_policy::replay::{Second, replay_with};
use cenote_policy::trace::{Part, Sum, Summary, Trace};
use cenote_runtime::Runtime;
use serde::Serialize;

use crate::error::{Result, StudyError};

/// Request for a summary of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Show {
    /// Trace file.
    pub file: PathBuf,
}

/// Request for hit ratios of policies by cache size.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// Trace file.
    pub file: PathBuf,
    /// Policies to replay.
    pub policies: Vec<PolicyName>,
    /// Cache sizes.
    pub sizes: Vec<CacheSize>,
    /// Cache device behind the cache.
    pub second: Option<SecondSize>,
}

/// Request for a curve of hit ratio over cache size.
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// Trace file.
    pub file: PathBuf,
    /// Policy to replay.
    pub policy: PolicyName,
    /// Sampled share of the blocks, chosen by a hash; 1 is exact.
    pub rate: f64,
    /// Number of sizes, two per doubling, up to the trace's footprint.
    pub points: u16,
}

/// Size of a cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CacheSize {
    /// Absolute size.
    Bytes(u64),
    /// Percent of the trace's footprint.
    Percent(f64),
}

/// Cache device behind the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecondSize {
    /// Device size.
    pub size: CacheSize,
    /// Bytes taken per second (`l2arc_write_max`).
    pub per_second: CacheSize,
}

/// Summary of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// Requests, without writes.
    pub requests: u64,
    /// Number of writes.
    pub writes: u64,
    /// Distinct blocks.
    pub blocks: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of all distinct blocks.
    pub footprint_bytes: u64,
    /// From the first request to the last.
    pub duration_ns: u64,
    /// Mean requests per block.
    pub requests_per_block: f64,
    /// Device reads meanwhile.
    pub device_reads: u64,
    /// Bytes of device reads.
    pub device_read_bytes: u64,
    /// Device writes meanwhile.
    pub device_writes: u64,
    /// Bytes of device writes.
    pub device_write_bytes: u64,
    /// By dataset and class; most missed bytes first.
    pub parts: Vec<ShownPart>,
    /// Device traffic of metadata, and of everything: the share that a special vdev would take.
    #[serde(skip)]
    pub special: Option<[Sum; 2]>,
}

/// Requests of a dataset and class.
#[derive(Debug, Clone, Serialize)]
pub struct ShownPart {
    /// Dataset name.
    pub dataset: String,
    /// Class of blocks.
    pub class: &'static str,
    /// All requests.
    pub requests: u64,
    /// Requests that missed the cache.
    pub missed: u64,
    /// Their bytes.
    pub missed_bytes: u64,
}

/// Result of a policy at one cache size.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// Policy name.
    pub policy: &'static str,
    /// Cache size.
    pub cache_bytes: u64,
    /// All requests.
    pub requests: u64,
    /// Requests that hit the cache.
    pub hits: u64,
    /// Hits as a share of requests.
    pub hit_ratio: f64,
    /// Hit bytes as a share of bytes.
    pub byte_hit_ratio: f64,
    /// Hits of cache and cache device together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ratio_with_l2: Option<f64>,
}

/// Hit ratio by cache size.
#[derive(Debug, Clone, Serialize)]
pub struct Drawn {
    /// Policy name.
    pub policy: &'static str,
    /// Sampled share of the blocks.
    pub rate: f64,
    /// In ascending size order.
    pub points: Vec<Point>,
}

/// Point of a curve.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// Cache size.
    pub cache_bytes: u64,
    /// Hits as a share of requests.
    pub hit_ratio: f64,
}

impl CacheSize {
    fn bytes(self, footprint_bytes: u64) -> u64 {
        match self {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::Percent(percent) => (footprint_bytes as f64 * percent / 100.0) as u64,
        }
        .max(1)
    }
}

async fn read(rt: &Runtime, file: PathBuf) -> Result<(Arc<Trace>, Summary)> {
    let read = rt.blocking(move || {
        let trace = Trace::read(&file)?;
        let summary = trace.summary();
        Ok::<_, StudyError>((Arc::new(trace), summary))
    });
    let (trace, summary) = read.await?;
    if summary.requests == 0 { Err(StudyError::Empty) } else { Ok((trace, summary)) }
}

impl Show {
    /// Summarises the trace.
    ///
    /// # Errors
    /// Unreadable, or no requests.
    pub async fn run(self, rt: &Runtime) -> Result<Shown> {
        let (trace, Summary { requests, writes, blocks, bytes, footprint_bytes, duration_ns }) =
            read(rt, self.file).await?;
        let [read, written] = trace.devices;
        Ok(Shown {
            requests,
            writes,
            blocks,
            bytes,
            footprint_bytes,
            duration_ns,
            requests_per_block: requests as f64 / blocks.max(1) as f64,
            device_reads: read.operations,
            device_read_bytes: read.bytes,
            device_writes: written.operations,
            device_write_bytes: written.bytes,
            parts: trace.parts.list().into_iter().map(ShownPart::from).collect(),
            special: trace.parts.special(),
        })
    }
}

impl From<Part> for ShownPart {
    fn from(Part { dataset, class, sum: Sum { requests, missed, missed_bytes } }: Part) -> ShownPart {
        ShownPart { dataset, class: class.name(), requests, missed, missed_bytes }
    }
}

impl Replay {
    /// Replays the trace: by policy, then by size.
    ///
    /// # Errors
    /// Unreadable, or no requests.
    pub async fn run(self, rt: &Runtime) -> Result<Vec<Replayed>> {
        let (trace, summary) = read(rt, self.file).await?;
        let bytes = |size: CacheSize| size.bytes(summary.footprint_bytes);
        let second = self
            .second
            .map(|second| Second { bytes: bytes(second.size), bytes_per_s: bytes(second.per_second) });
        let mut replayed = Vec::new();
        for &policy in &self.policies {
            for &size in &self.sizes {
                let (trace, cache_bytes) = (trace.clone(), bytes(size));
                let outcome = rt.blocking(move || replay_with(&trace, policy, cache_bytes, second)).await;
                replayed.push(Replayed {
                    policy: policy.name(),
                    cache_bytes,
                    requests: outcome.requests,
                    hits: outcome.hits,
                    hit_ratio: 1.0 - outcome.miss_ratio(),
                    byte_hit_ratio: 1.0 - outcome.byte_miss_ratio(),
                    hit_ratio_with_l2: second.map(|_| 1.0 - outcome.device_ratio()),
                });
            }
        }
        Ok(replayed)
    }
}

impl Draw {
    /// Computes the curve.
    ///
    /// # Errors
    /// Unreadable, or no requests.
    pub async fn run(self, rt: &Runtime) -> Result<Drawn> {
        let Draw { file, policy, rate, points } = self;
        let (trace, summary) = read(rt, file).await?;
        // Two sizes per doubling: most changes where caches are small.
        let size = |halves: u16| summary.footprint_bytes as f64 / 2_f64.powf(f64::from(halves) / 2.0);
        let sizes: Vec<u64> = (0..points).rev().map(|halves| (size(halves) as u64).max(1)).collect();
        let Curve { points } = rt.blocking(move || curve(&trace, policy, &sizes, rate)).await;
        let point = |(cache_bytes, miss_ratio)| Point { cache_bytes, hit_ratio: 1.0 - miss_ratio };
        Ok(Drawn { policy: policy.name(), rate, points: points.into_iter().map(point).collect() })
    }
}

fn curve(trace: &Trace, policy: PolicyName, sizes: &[u64], rate: f64) -> Curve {
    match policy {
        PolicyName::Lru if rate >= 1.0 => curve::exact_lru(trace, sizes),
        PolicyName::Lru => curve::sampled_lru(trace, sizes, rate),
        _ => curve::sampled(trace, policy, sizes, rate),
    }
}
