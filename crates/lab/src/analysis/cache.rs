//! How much of what was read came from a cache, by the counters sampled beside a run.

use serde::{Deserialize, Serialize};

use crate::samples::Samples;

/// Where hits were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// The ARC: demand reads of data.
    Arc,
    /// The L2ARC: what missed the ARC.
    L2arc,
    /// Any memory: reads that no disk did.
    PageCache,
}

/// Hits of one cache during a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HitRate {
    /// Which.
    pub cache: Cache,
    /// Hits by lookups, from 0 to 1.
    pub rate: f64,
    /// Lookups.
    pub lookups: f64,
}

/// Fewer lookups say nothing.
const LEAST_LOOKUPS: f64 = 100.0;

/// The hit rates that can be told, for a run that did `reads` read operations. The page cache's is only told where the ARC was not at work.
pub fn hit_rates(samples: &Samples, reads: u64) -> Vec<HitRate> {
    let arc = |name: &str| samples.find("arcstats", "", name).map_or(0.0, |s| s.growth().max(0.0));
    let of = |cache, hits: f64, misses: f64| {
        let lookups = hits + misses;
        (lookups >= LEAST_LOOKUPS).then(|| HitRate { cache, rate: hits / lookups, lookups })
    };
    // A demand read that finds the block on its way in (`iohits`) still waits for the disk: it is no hit here.
    let waits = arc("demand_data_misses") + arc("demand_data_iohits");
    let first = of(Cache::Arc, arc("demand_data_hits"), waits);
    let second = of(Cache::L2arc, arc("l2_hits"), arc("l2_misses"));
    let rates: Vec<HitRate> = first.into_iter().chain(second).collect();
    if !rates.is_empty() {
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
    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Arc => "ARC",
            Cache::L2arc => "L2ARC",
            Cache::PageCache => "page cache",
        }
    }
}
