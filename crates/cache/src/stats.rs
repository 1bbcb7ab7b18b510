//! What a cache counts.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_policy::{Class, PolicyName};

/// Statistics of a cache (`arcstats`).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CacheStats {
    /// Blocks of files and volumes.
    pub data: ClassStats,
    /// All others.
    pub metadata: ClassStats,
    /// Blocks evicted.
    pub evictions: u64,
    /// Blocks in the cache now.
    pub blocks: u64,
    /// Bytes in the cache now, including bookkeeping.
    pub bytes: u64,
    /// The most bytes it may hold.
    pub budget_bytes: u64,
    /// The policy by which blocks stay.
    pub policy: Option<PolicyName>,
    /// What the policy adapts, by its own names.
    pub gauges: Vec<(&'static str, u64)>,
}

/// Statistics of one class of blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ClassStats {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads that went to the pool (or waited for one that did).
    pub misses: u64,
    /// Bytes of the blocks in the cache now, without bookkeeping.
    pub content_bytes: u64,
}

impl CacheStats {
    /// Reads of both classes that were answered from memory.
    pub fn hits(&self) -> u64 {
        self.data.hits + self.metadata.hits
    }

    /// Reads of both classes that were not.
    pub fn misses(&self) -> u64 {
        self.data.misses + self.metadata.misses
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    hits: [AtomicU64; 2],
    misses: [AtomicU64; 2],
    evictions: AtomicU64,
}

impl Counters {
    pub(crate) fn looked_up(&self, class: Class, hit: bool) {
        let counters = if hit { &self.hits } else { &self.misses };
        counters[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self, blocks: u64) {
        self.evictions.fetch_add(blocks, Ordering::Relaxed);
    }

    /// The counts; what the cache holds is left at nought.
    pub(crate) fn stats(&self) -> CacheStats {
        let class = |class: Class| ClassStats {
            hits: self.hits[class as usize].load(Ordering::Relaxed),
            misses: self.misses[class as usize].load(Ordering::Relaxed),
            content_bytes: 0,
        };
        CacheStats {
            data: class(Class::Data),
            metadata: class(Class::Metadata),
            evictions: self.evictions.load(Ordering::Relaxed),
            ..CacheStats::default()
        }
    }
}
