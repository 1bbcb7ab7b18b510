//! The block cache: verified, decoded metadata blocks within a budget of bytes.
//!
//! Idea: nearly every look-up walks the same few indirect blocks, blocks of dnodes and ZAP leaves. They are
//! kept decoded, keyed by the block's permanent identity: its first address, its birth and its checksum.
//! Nothing is ever invalidated: a block that a later sync pass of its txg overwrote in place has another
//! checksum. File data bypasses the cache: it would only push metadata out.
//!
//! Eviction is second chance (CLOCK): a shard's blocks form a ring; a hit sets a mark; the hand evicts the
//! first block without a mark and clears marks on its way. That is as good as LRU for this use, with no
//! list to reorder on a hit.
//!
//! Single flight: readers that miss on the same block wait for one read ([`flights`]).
//!
//! Locking: all methods may be called concurrently. Each shard has a mutex, the table of reads in flight
//! another; no two are held at once and none across an await. Counters are relaxed atomics. Two reads of
//! one block may both insert it; the blocks are equal.
//!
//! Memory: at most the budget, plus blocks that callers still hold, plus blocks being read.
//!
//! Source: the idea of OpenZFS's `arc.c`, none of its policy: a read-only tree needs no ghost lists to be
//! fast.
#![forbid(unsafe_code)]

mod flights;
mod shard;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_pool::{Pool, PoolError, ReadContext};
use parking_lot::Mutex;

use flights::Flights;
use shard::Shard;

/// Number of shards: enough that two threads seldom want the same lock.
const SHARDS: usize = 16;

/// A block's permanent identity: first DVA, properties, birth and the whole checksum.
type Key = [u64; 8];

/// A bounded cache of decoded blocks. Share it in an `Arc`.
pub struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    in_flight: Flights<Key, Bytes>,
    hits: AtomicU64,
    misses: AtomicU64,
    budget_bytes: usize,
}

/// Statistics of a cache.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads that went to the pool (or waited for one that did).
    pub misses: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Blocks in the cache now.
    pub blocks: u64,
    /// Bytes in the cache now, including bookkeeping.
    pub bytes: u64,
    /// The most bytes it may hold.
    pub budget_bytes: u64,
}

impl BlockCache {
    /// An empty cache that holds at most `budget_bytes`.
    pub fn new(budget_bytes: usize) -> BlockCache {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(budget_bytes / SHARDS))).collect();
        BlockCache {
            shards,
            in_flight: Flights::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            budget_bytes,
        }
    }

    /// Reads a block: verified, decrypted, decompressed.
    ///
    /// # Errors
    /// Those of [`Pool::read`]; a failed read leaves nothing in the cache.
    pub async fn read(&self, pool: &Pool, bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes, PoolError> {
        let Some(key) = key_of(bp) else { return pool.read(bp, ctx).await };
        if let Some(block) = self.look_up(&key, true) {
            return Ok(block);
        }
        let read = async {
            let block = pool.read(bp, ctx).await?;
            self.insert(key, block.clone());
            Ok(block)
        };
        self.in_flight.join(key, read).await
    }

    /// Reads many blocks: those not cached, together in disk order. Passes each on in the requested order
    /// and decodes it only then. `keep` decides, by the index of a request, whether its block is worth the
    /// memory: a block that is not wanted again would only push others out, and is removed even if it was
    /// cached.
    pub async fn read_each(
        &self,
        pool: &Pool,
        requests: Vec<(Blkptr, ReadContext)>,
        keep: impl Fn(usize) -> bool,
        mut each: impl FnMut(Result<Bytes, PoolError>),
    ) {
        let hit = |(index, (bp, _)): (usize, &(Blkptr, ReadContext))| {
            key_of(bp).and_then(|key| self.look_up(&key, keep(index)))
        };
        let hits: Vec<Option<Bytes>> = requests.iter().enumerate().map(hit).collect();
        let missing: Vec<_> =
            requests.iter().zip(&hits).filter(|(_, hit)| hit.is_none()).map(|(r, _)| r.clone()).collect();
        let mut rest = requests.iter().zip(hits).enumerate();
        pool.read_each(missing, |block| {
            for (index, ((bp, _), hit)) in rest.by_ref() {
                if let Some(hit) = hit {
                    each(Ok(hit));
                    continue;
                }
                if let (Ok(block), Some(key)) = (&block, key_of(bp).filter(|_| keep(index))) {
                    self.insert(key, block.clone());
                }
                return each(block);
            }
        })
        .await;
        rest.filter_map(|(_, (_, hit))| hit).for_each(|hit| each(Ok(hit)));
    }

    /// [`BlockCache::read_each`] for blocks that are all worth keeping: returns the results in the
    /// requested order.
    pub async fn read_many(
        &self,
        pool: &Pool,
        requests: Vec<(Blkptr, ReadContext)>,
    ) -> Vec<Result<Bytes, PoolError>> {
        let mut results = Vec::with_capacity(requests.len());
        self.read_each(pool, requests, |_| true, |block| results.push(block)).await;
        results
    }

    /// Statistics so far.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            budget_bytes: self.budget_bytes as u64,
            ..CacheStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.evictions += shard.evictions();
            stats.blocks += shard.len() as u64;
            stats.bytes += shard.bytes() as u64;
        }
        stats
    }

    fn look_up(&self, key: &Key, keep: bool) -> Option<Bytes> {
        let mut shard = self.shard(key).lock();
        let found = if keep { shard.get(key) } else { shard.take(key) };
        drop(shard);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn insert(&self, key: Key, block: Bytes) {
        self.shard(&key).lock().insert(key, block);
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        // Checksum words are practically random; offsets alone would put neighbours in one shard.
        let mixed = (key[1] ^ key[4]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

/// `None` for holes and pointers that hold their content: caching gains nothing.
fn key_of(bp: &Blkptr) -> Option<Key> {
    let w = bp.words();
    (bp.kind() == BlkptrKind::Normal).then(|| [w[0], w[1], w[6], w[10], w[12], w[13], w[14], w[15]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first word of a Fletcher checksum is a plain sum: it stays the same if one count in a block
    /// grows by one and another shrinks by one.
    #[test]
    fn a_block_written_over_in_place_is_another_one_even_with_the_same_sum() {
        let block = |checksum: [u64; 4]| {
            let mut words = [0; 16];
            (words[0], words[1], words[6], words[10]) = (8, 4096, 7, 123);
            words[12..].copy_from_slice(&checksum);
            Blkptr::from_words(words)
        };
        let before = key_of(&block([100, 7, 8, 9]));
        assert!(before.is_some());
        for after in [[101, 7, 8, 9], [100, 6, 8, 9], [100, 7, 5, 9], [100, 7, 8, 4]] {
            assert_ne!(key_of(&block(after)), before);
        }
        assert_eq!(key_of(&block([100, 7, 8, 9])), before);
    }
}
