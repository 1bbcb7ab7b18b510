//! Statistics of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_policy::{Class, PolicyName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::prefetch::PrefetchStats;
use crate::shard::Marks;

/// Statistics of a cache (`arcstats`).
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStats {
    /// Files and volumes.
    pub data: ClassStats,
    /// All other blocks.
    pub metadata: ClassStats,
    /// Blocks evicted.
    pub evictions: u64,
    /// Bytes evicted and eligible for a cache device (`evict_l2_eligible`).
    pub evicted_l2_eligible_bytes: u64,
    /// Bytes evicted and not eligible (`evict_l2_ineligible`).
    pub evicted_l2_ineligible_bytes: u64,
    /// Read-ahead.
    pub prefetch: PrefetchStats,
    /// Blocks in the cache.
    pub blocks: u64,
    /// Bytes in the cache, with bookkeeping.
    pub bytes: u64,
    /// Its capacity.
    pub budget_bytes: u64,
    /// Its policy.
    #[schemars(with = "Option<String>")]
    pub policy: Option<PolicyName>,
    /// The policy's adaptive values, by name.
    pub gauges: Vec<(String, u64)>,
}

/// Statistics of one class of blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassStats {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads that went to the pool, or waited for one that did.
    pub misses: u64,
    /// Bytes of cached blocks, without bookkeeping.
    pub content_bytes: u64,
}

impl CacheStats {
    /// Adds the statistics of another cache, except gauges.
    pub fn add(&mut self, other: &CacheStats) {
        for (sum, class) in [(&mut self.data, &other.data), (&mut self.metadata, &other.metadata)] {
            sum.hits += class.hits;
            sum.misses += class.misses;
            sum.content_bytes += class.content_bytes;
        }
        self.evictions += other.evictions;
        self.evicted_l2_eligible_bytes += other.evicted_l2_eligible_bytes;
        self.evicted_l2_ineligible_bytes += other.evicted_l2_ineligible_bytes;
        self.prefetch = self.prefetch.zip(&other.prefetch, |sum, other| sum + other);
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.budget_bytes += other.budget_bytes;
    }

    /// Counts since `before`; sizes as they are now.
    pub fn since(&self, before: &CacheStats) -> CacheStats {
        let class = |now: &ClassStats, before: &ClassStats| ClassStats {
            hits: now.hits.saturating_sub(before.hits),
            misses: now.misses.saturating_sub(before.misses),
            content_bytes: now.content_bytes,
        };
        let count = |of: fn(&CacheStats) -> u64| of(self).saturating_sub(of(before));
        CacheStats {
            data: class(&self.data, &before.data),
            metadata: class(&self.metadata, &before.metadata),
            evictions: count(|stats| stats.evictions),
            evicted_l2_eligible_bytes: count(|stats| stats.evicted_l2_eligible_bytes),
            evicted_l2_ineligible_bytes: count(|stats| stats.evicted_l2_ineligible_bytes),
            prefetch: PrefetchStats {
                active_bytes: self.prefetch.active_bytes,
                ..self.prefetch.zip(&before.prefetch, u64::saturating_sub)
            },
            ..self.clone()
        }
    }

    /// Reads from memory, of both classes.
    pub fn hits(&self) -> u64 {
        self.data.hits + self.metadata.hits
    }

    /// Other reads, of both classes.
    pub fn misses(&self) -> u64 {
        self.data.misses + self.metadata.misses
    }

    /// Reads of both classes.
    pub fn requests(&self) -> u64 {
        self.hits() + self.misses()
    }
}

/// Hits are counted by the shards, without contention.
#[derive(Default)]
pub(crate) struct Counters {
    misses: [AtomicU64; 2],
    evictions: AtomicU64,
    /// Bytes evicted: not eligible for a cache device, and eligible.
    evicted_bytes: [AtomicU64; 2],
}

impl Counters {
    pub(crate) fn missed(&self, class: Class) {
        self.misses[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an eviction. `None`: the block was gone already.
    pub(crate) fn evicted(&self, gone: Option<(u64, Marks)>) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
        if let Some((len_bytes, marks)) = gone {
            self.evicted_bytes[usize::from(marks.is_l2_eligible)].fetch_add(len_bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_evicted(&self) -> bool {
        self.evictions.load(Ordering::Relaxed) > 0
    }

    /// The counters; hits and sizes are 0.
    pub(crate) fn stats(&self) -> CacheStats {
        let class = |class: Class| ClassStats {
            hits: 0,
            misses: self.misses[class as usize].load(Ordering::Relaxed),
            content_bytes: 0,
        };
        CacheStats {
            data: class(Class::Data),
            metadata: class(Class::Metadata),
            evictions: self.evictions.load(Ordering::Relaxed),
            evicted_l2_eligible_bytes: self.evicted_bytes[1].load(Ordering::Relaxed),
            evicted_l2_ineligible_bytes: self.evicted_bytes[0].load(Ordering::Relaxed),
            ..CacheStats::default()
        }
    }
}
