//! Cache hit rates during a run, from the counters sampled beside it.

use serde::{Deserialize, Serialize};

use crate::load::job::Jobs;
use crate::load::samples::Samples;
use crate::load::suite::Work;

/// A cache with hit counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// The ARC: demand reads of data.
    Arc,
    /// The L2ARC: reads that missed the ARC.
    L2arc,
    /// Any memory: buffered reads that reached no disk. The kernel has no counter for it.
    PageCache,
}

/// Hits of one cache during a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HitRate {
    /// Counted cache.
    pub cache: Cache,
    /// Hits divided by lookups, from 0 to 1.
    pub rate: f64,
    /// Number of lookups.
    pub lookups: f64,
}

/// Fewer lookups give no meaningful rate.
const LEAST_LOOKUPS: f64 = 100.0;

/// Whether all of the work's I/O goes through the page cache.
pub fn is_buffered(work: Option<&Work>) -> bool {
    matches!(work, Some(Work::Io(Jobs(jobs))) if jobs.iter().all(|job| !job.direct))
}

/// Hit rates of a run with `reads` read operations. The page cache's rate is known only if reads went through
/// it (`buffered`) and the ARC was idle.
pub fn hit_rates(samples: &Samples, reads: u64, buffered: bool) -> Vec<HitRate> {
    let arc = |name: &str| samples.find("arcstats", "", name).map_or(0.0, |s| s.growth().max(0.0));
    let of = |cache, hits: f64, misses: f64| {
        let lookups = hits + misses;
        (lookups >= LEAST_LOOKUPS).then(|| HitRate { cache, rate: hits / lookups, lookups })
    };
    // A demand read that finds its block already being fetched (`iohits`) still waits for the disk,
    // so it counts as a miss.
    let waits = arc("demand_data_misses") + arc("demand_data_iohits");
    let first = of(Cache::Arc, arc("demand_data_hits"), waits);
    let second = of(Cache::L2arc, arc("l2_hits"), arc("l2_misses"));
    let rates: Vec<HitRate> = first.into_iter().chain(second).collect();
    if !rates.is_empty() || !buffered {
        return rates;
    }
    let mut on_disks =
        samples.series.iter().filter(|s| s.source == "diskstats" && s.name == "read_ios").peekable();
    if on_disks.peek().is_none() {
        return Vec::new();
    }
    let from_disk: f64 = on_disks.map(|s| s.growth().max(0.0)).sum();
    let reads = reads as f64;
    of(Cache::PageCache, (reads - from_disk).max(0.0), from_disk.min(reads)).into_iter().collect()
}

impl Cache {
    /// Name within a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Arc => "ARC",
            Cache::L2arc => "L2ARC",
            Cache::PageCache => "page cache",
        }
    }
}
