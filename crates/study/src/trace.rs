//! What a cache would have done with a recorded load.

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

/// What a trace contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Show {
    /// The trace.
    pub file: PathBuf,
}

/// The hit ratio of each policy with a cache of each size.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The trace.
    pub file: PathBuf,
    /// The policies.
    pub policies: Vec<PolicyName>,
    /// The sizes.
    pub sizes: Vec<CacheSize>,
    /// A cache device behind the cache.
    pub second: Option<SecondSize>,
}

/// The hit ratio over cache sizes: what more memory would bring.
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// The trace.
    pub file: PathBuf,
    /// The policy.
    pub policy: PolicyName,
    /// Part of the blocks that is looked at, chosen by a hash; 1 is exact.
    pub rate: f64,
    /// Number of sizes, two for each doubling, up to the trace's footprint.
    pub points: u16,
}

/// The size of a cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CacheSize {
    /// Bytes.
    Bytes(u64),
    /// Percent of the trace's footprint.
    Percent(f64),
}

/// A cache device behind the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecondSize {
    /// Its size.
    pub size: CacheSize,
    /// What it takes in a second (`l2arc_write_max`).
    pub per_second: CacheSize,
}

/// What a trace contains.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// Requests, without writes.
    pub requests: u64,
    /// Writes.
    pub writes: u64,
    /// Different blocks.
    pub blocks: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of all different blocks.
    pub footprint_bytes: u64,
    /// From the first request to the last.
    pub duration_ns: u64,
    /// Requests for each block, on average.
    pub requests_per_block: f64,
    /// Operations of devices meanwhile: reads.
    pub device_reads: u64,
    /// Their bytes.
    pub device_read_bytes: u64,
    /// Writes.
    pub device_writes: u64,
    /// Their bytes.
    pub device_write_bytes: u64,
    /// Whose requests they were, those with most missed bytes first.
    pub parts: Vec<ShownPart>,
    /// What went to devices for metadata, and for everything: what a special vdev would take of it.
    #[serde(skip)]
    pub special: Option<[Sum; 2]>,
}

/// Requests of a dataset and class.
#[derive(Debug, Clone, Serialize)]
pub struct ShownPart {
    /// The dataset.
    pub dataset: String,
    /// The class of blocks.
    pub class: &'static str,
    /// All requests.
    pub requests: u64,
    /// Those that the cache did not have.
    pub missed: u64,
    /// Bytes of these.
    pub missed_bytes: u64,
}

/// A policy with a cache of some size.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// The policy.
    pub policy: &'static str,
    /// The size.
    pub cache_bytes: u64,
    /// All requests.
    pub requests: u64,
    /// Those that the cache had.
    pub hits: u64,
    /// Their part.
    pub hit_ratio: f64,
    /// Their part by bytes.
    pub byte_hit_ratio: f64,
    /// Of the cache and the cache device together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ratio_with_l2: Option<f64>,
}

/// A curve.
#[derive(Debug, Clone, Serialize)]
pub struct Drawn {
    /// The policy.
    pub policy: &'static str,
    /// Part of the blocks that was looked at.
    pub rate: f64,
    /// The smallest size first.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// The size of the cache.
    pub cache_bytes: u64,
    /// The part of requests that it has.
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
    /// It can't be read, or has no requests.
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
    /// It can't be read, or has no requests.
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
    /// Draws the curve.
    ///
    /// # Errors
    /// The trace can't be read, or has no requests.
    pub async fn run(self, rt: &Runtime) -> Result<Drawn> {
        let Draw { file, policy, rate, points } = self;
        let (trace, summary) = read(rt, file).await?;
        // Two sizes for each doubling: most changes where caches are small.
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
