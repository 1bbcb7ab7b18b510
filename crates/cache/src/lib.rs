//! The block cache (ARC): verified, decoded blocks in a budget of bytes, under a policy that can be changed
//! while the pool is open.
//!
//! Idea: shards hold blocks by a permanent identity ([`identity`]), so nothing is ever invalidated. One
//! policy ([`cenote_policy::Policy`]) decides which stay; it gets hits in batches ([`shard`]), misses at
//! once. Concurrent reads of a block are shared ([`flights`]).
//!
//! ```text
//!   read    shard: hit --> note it --(every 32nd)--> policy
//!                  miss --> flight --> pool --> policy: which go? --> shards
//!   fill    blocks written by a txg take the way of a miss, without a read
//!   ahead   so do blocks read ahead (`data`, `prefetch`)
//! ```
//!
//! An indirect block is cached without the holes at its end: those of a small file system, of 128 KiB on six
//! levels, have one pointer each.
//!
//! Metadata are always cached, blocks of files and volumes if [`CacheOptions::data`] is set: not by a program
//! that reads each file once. The dataset's properties restrict both ([`caching`]).
//!
//! Locking: all methods may be called concurrently. The policy has a mutex, each shard a lock that look-ups
//! share, the table of flights another mutex. Order: the policy's, or one of the miss-ratio curve's, before a
//! shard's; none is held across an await. Residency changes only under the policy's lock. Counters are
//! relaxed atomics.
//!
//! Memory: at most the budget, with bookkeeping ([`OVERHEAD_BYTES`] a block), plus blocks that callers still
//! hold, plus blocks being read. If memory is short, [`gather`] compacts it.
//!
//! Source: OpenZFS `arc.c`; only decoded blocks are kept.
#![forbid(unsafe_code)]

mod caching;
mod data;
mod flights;
mod gather;
mod identity;
mod prefetch;
mod record;
mod shard;
mod stats;
mod under_way;

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::bytes::is_zero;
use cenote_policy::live::{Estimate, LiveCurve};
use cenote_policy::{Access, BlockId, Class, Policy, PolicyName};
use cenote_pool::{Pool, PoolError, ReadContext, Recorder, Secondary, Zbookmark};
use parking_lot::{Mutex, RwLock};

use flights::Flights;
use identity::{Identity, Key};
use shard::{Marks, Shard, Use};
use stats::Counters;
use under_way::UnderWay;

pub use caching::{Caching, CachingCell, Scope};
pub use data::Looked;
pub use prefetch::{Permit, Prefetch, PrefetchSettings, PrefetchStats, PrefetchValues, Seen};
pub use record::{LookUp, Wish};
pub use stats::{CacheStats, ClassStats};

/// Enough that two threads seldom want the same lock.
const SHARDS: usize = 16;
/// Map entry, policy, ghost, reference count: measured, rounded up.
const OVERHEAD_BYTES: usize = 320;
/// An estimate, for policies.
const MEAN_BLOCK_BYTES: u64 = 16 << 10;

/// Options of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Its capacity.
    pub budget_bytes: usize,
    /// Its policy.
    pub policy: PolicyName,
    /// Also cache blocks of files and volumes.
    pub data: bool,
}

impl CacheOptions {
    /// A metadata cache with OpenZFS's policy.
    pub fn metadata(budget_bytes: usize) -> CacheOptions {
        CacheOptions { budget_bytes, policy: PolicyName::OpenZfs, data: false }
    }
}

/// The marks of a resident block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Read ahead, and not used yet.
    pub is_read_ahead: bool,
    /// Hits, up to 255.
    pub uses: u8,
}

/// A bounded cache of decoded blocks. Share it in an `Arc`.
pub struct BlockCache {
    shards: Vec<RwLock<Shard>>,
    keeper: Mutex<Keeper>,
    in_flight: Flights<Key, Bytes>,
    under_way: UnderWay,
    prefetch: Prefetch,
    data: AtomicBool,
    look_ups: Recorder<LookUp>,
    curve: LiveCurve,
    counters: Counters,
}

struct Keeper {
    policy: Box<dyn Policy>,
    name: PolicyName,
    budget_bytes: usize,
    /// A reused buffer.
    evicted: Vec<BlockId>,
}

impl BlockCache {
    /// An empty cache.
    pub fn new(options: CacheOptions) -> BlockCache {
        let CacheOptions { budget_bytes, policy: name, data } = options;
        let policy = name.build(budget_bytes as u64, MEAN_BLOCK_BYTES);
        BlockCache {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            keeper: Mutex::new(Keeper { policy, name, budget_bytes, evicted: Vec::new() }),
            in_flight: Flights::default(),
            under_way: UnderWay::default(),
            prefetch: Prefetch::new(budget_bytes),
            data: AtomicBool::new(data),
            look_ups: Recorder::default(),
            curve: LiveCurve::default(),
            counters: Counters::default(),
        }
    }

    /// Reads a block: verified, decrypted, decompressed. Of an indirect block, zeros at the end may be
    /// missing, here and below.
    ///
    /// # Errors
    /// Those of [`Pool::read`]; a failed read leaves nothing in the cache.
    pub async fn read(
        &self,
        pool: &Pool,
        bp: &Blkptr,
        ctx: &ReadContext,
        caching: Caching,
    ) -> Result<Bytes, PoolError> {
        let Some(block) = self.cached(bp) else { return pool.read(bp, ctx).await };
        let now_ns = now_ns(pool);
        if let Some(bytes) = self.look_up(&block, bp, ctx, now_ns) {
            return Ok(bytes);
        }
        if let Some(bytes) = self.await_read_ahead(pool, &block, now_ns).await {
            return Ok(bytes);
        }
        self.read_missing(pool, (&block, bp, ctx), caching, now_ns).await
    }

    /// Looks at a block if cached, and counts a hit. The read that follows a miss counts it.
    pub fn hit<T>(
        &self,
        pool: &Pool,
        bp: &Blkptr,
        place: Zbookmark,
        look: impl FnOnce(&Bytes) -> T,
    ) -> Option<T> {
        let block = self.cached(bp)?;
        let now_ns = now_ns(pool);
        let (bytes, answer) = self.find(&block, now_ns, |bytes| (bytes.len(), look(bytes)))?;
        self.curve.note(block.id, cost(bytes), || self.counted().requests());
        self.note(&block, (Wish::Hit, bytes as u64), place, now_ns);
        Some(answer)
    }

    /// Reads a missing block, once for all readers.
    async fn read_missing(
        &self,
        pool: &Pool,
        (block, bp, ctx): (&Identity, &Blkptr, &ReadContext),
        caching: Caching,
        now_ns: u64,
    ) -> Result<Bytes, PoolError> {
        let ctx = secondary(ctx, block, caching, Secondary::Demand);
        let read = async {
            let bytes = pool.read(bp, &ctx).await?;
            self.insert(block, bytes.clone(), caching, now_ns);
            Ok(bytes)
        };
        let joined = async {
            match unless_suspended(pool, self.in_flight.join(block.key, read)).await {
                Some(read) => read,
                None => pool.read(bp, &ctx).await,
            }
        };
        // The joined read may be one that waits.
        pool.in_time(bp, ctx.place, joined).await
    }

    /// Reads many blocks: missing ones together, in disk order. Passes each on in the order of the requests,
    /// and decodes it only then. `keep` decides, by the index of a request, whether its block stays: one read
    /// for the last time is removed even if cached.
    #[boxed]
    pub async fn read_each(
        &self,
        pool: &Pool,
        requests: Vec<(Blkptr, ReadContext)>,
        caching: Caching,
        keep: &(dyn Fn(usize) -> bool + Sync),
        each: &mut (dyn FnMut(Result<Bytes, PoolError>) + Send),
    ) {
        let now_ns = now_ns(pool);
        let hit = |(index, (bp, ctx)): (usize, &(Blkptr, ReadContext))| {
            let block = self.cached(bp)?;
            let found = self.look_up(&block, bp, ctx, now_ns);
            if found.is_some() && !keep(index) {
                self.forget(bp);
            }
            found
        };
        let mut hits: Vec<Option<Bytes>> = requests.iter().enumerate().map(hit).collect();
        for (hit, (bp, _)) in hits.iter_mut().zip(&requests).filter(|(hit, _)| hit.is_none()) {
            if let Some(block) = self.cached(bp) {
                *hit = self.await_read_ahead(pool, &block, now_ns).await;
            }
        }
        let offered = |(bp, ctx): &(Blkptr, ReadContext)| match self.cached(bp) {
            Some(block) => (*bp, secondary(ctx, &block, caching, Secondary::Demand)),
            None => (*bp, ctx.clone()),
        };
        let missing: Vec<_> =
            requests.iter().zip(&hits).filter(|(_, hit)| hit.is_none()).map(|(r, _)| offered(r)).collect();
        let mut rest = requests.iter().zip(hits).enumerate();
        let mut each_read = |block: Result<Bytes, PoolError>| {
            for (index, ((bp, _), hit)) in rest.by_ref() {
                if let Some(hit) = hit {
                    each(Ok(hit));
                    continue;
                }
                if let (Ok(bytes), Some(block)) = (&block, self.cached(bp).filter(|_| keep(index))) {
                    self.insert(&block, bytes.clone(), caching, now_ns);
                }
                return each(block);
            }
        };
        pool.read_each(missing, &mut each_read).await;
        rest.filter_map(|(_, (_, hit))| hit).for_each(|hit| each(Ok(hit)));
    }

    /// [`BlockCache::read_each`] for blocks worth keeping: returns the results in order.
    pub async fn read_many(
        &self,
        pool: &Pool,
        requests: Vec<(Blkptr, ReadContext)>,
        caching: Caching,
    ) -> Vec<Result<Bytes, PoolError>> {
        let mut results = Vec::with_capacity(requests.len());
        self.read_each(pool, requests, caching, &|_| true, &mut |block| results.push(block)).await;
        results
    }

    /// Caches a block written by a txg as if it had been read.
    pub fn fill(&self, pool: &Pool, bp: &Blkptr, bytes: &Bytes, (place, caching): (Zbookmark, Caching)) {
        if let Some(block) = self.cached(bp) {
            let now_ns = now_ns(pool);
            self.note(&block, (Wish::Write, bytes.len() as u64), place, now_ns);
            self.insert(&block, bytes.clone(), caching, now_ns);
        }
    }

    /// Drops a block freed, or read for the last time.
    pub fn forget(&self, bp: &Blkptr) {
        let Some(block) = Identity::of(bp) else { return };
        // Most freed blocks were never read: skip the policy's lock.
        if self.shard(block.id).read().marks(&block).is_none() {
            return;
        }
        let mut keeper = self.keeper.lock();
        keeper.policy.remove(block.id);
        self.shard(block.id).write().remove(block.id);
    }

    /// Drops all blocks encrypted on disk, since a key was unloaded: they are decrypted here.
    pub fn forget_encrypted(&self) {
        let mut keeper = self.keeper.lock();
        for shard in &self.shards {
            let mut shard = shard.write();
            for id in shard.encrypted() {
                keeper.policy.remove(id);
                shard.remove(id);
            }
        }
    }

    /// The marks of a block, if resident.
    pub fn resident(&self, bp: &Blkptr) -> Option<Resident> {
        let block = Identity::of(bp)?;
        let marks = self.shard(block.id).read().marks(&block)?;
        Some(Resident { is_read_ahead: marks.is_read_ahead, uses: marks.uses })
    }

    /// Whether it has evicted blocks.
    pub fn is_warm(&self) -> bool {
        self.counters.has_evicted()
    }

    /// Whether blocks of files and volumes are cached.
    pub fn caches_data(&self) -> bool {
        self.data.load(Ordering::Relaxed)
    }

    /// See [`BlockCache::caches_data`].
    pub fn set_data(&self, data: bool) {
        self.data.store(data, Ordering::Relaxed);
    }

    /// The current policy.
    pub fn policy(&self) -> PolicyName {
        self.keeper.lock().name
    }

    /// Changes the policy. The new one starts with the resident blocks, each used once.
    pub fn set_policy(&self, name: PolicyName) {
        let mut keeper = self.keeper.lock();
        let Keeper { policy, name: old, budget_bytes, evicted } = &mut *keeper;
        (*old, *policy) = (name, name.build(*budget_bytes as u64, MEAN_BLOCK_BYTES));
        for shard in &self.shards {
            let listed = {
                let shard = shard.read();
                shard.tell(drop);
                shard.list()
            };
            for (id, len_bytes, class) in listed {
                policy.insert(&access(id, class, len_bytes, 0), evicted);
                self.evict(evicted);
            }
        }
    }

    /// Bytes in the cache, with bookkeeping.
    pub fn bytes(&self) -> u64 {
        self.keeper.lock().policy.resident_bytes()
    }

    /// Changes the capacity, and evicts the excess.
    pub fn set_budget(&self, budget_bytes: usize) {
        let mut keeper = self.keeper.lock();
        if keeper.budget_bytes == budget_bytes {
            return;
        }
        keeper.budget_bytes = budget_bytes;
        self.prefetch.set_budget(budget_bytes);
        let Keeper { policy, evicted, .. } = &mut *keeper;
        policy.resize(budget_bytes as u64, evicted);
        self.evict(evicted);
    }

    /// The shared state of read-ahead.
    pub fn prefetch(&self) -> &Prefetch {
        &self.prefetch
    }

    /// Current statistics.
    pub fn stats(&self) -> CacheStats {
        let keeper = self.keeper.lock();
        let mut stats = self.counted();
        stats.prefetch = self.prefetch.stats();
        stats.budget_bytes = keeper.budget_bytes as u64;
        stats.policy = Some(keeper.name);
        stats.gauges = keeper.policy.gauges().into_iter().map(|(name, value)| (name.into(), value)).collect();
        stats.bytes = keeper.policy.resident_bytes();
        for shard in &self.shards {
            let shard = shard.read();
            stats.blocks += shard.len() as u64;
            stats.data.content_bytes += shard.content_bytes(Class::Data);
            stats.metadata.content_bytes += shard.content_bytes(Class::Metadata);
        }
        stats
    }

    /// Without the cache's content.
    fn counted(&self) -> CacheStats {
        let mut stats = self.counters.stats();
        for shard in &self.shards {
            let shard = shard.read();
            stats.data.hits += shard.hits(Class::Data);
            stats.metadata.hits += shard.hits(Class::Metadata);
        }
        stats
    }

    fn cached(&self, bp: &Blkptr) -> Option<Identity> {
        let wanted = |block: &Identity| block.class == Class::Metadata || self.caches_data();
        Identity::of(bp).filter(wanted)
    }

    /// Records look-ups and writes.
    pub fn look_ups(&self) -> &Recorder<LookUp> {
        &self.look_ups
    }

    /// Estimates the hit ratio of a cache of another size, from mostly recent look-ups; `None` before the
    /// first.
    pub fn estimate(&self, budget_bytes: u64) -> Option<Estimate> {
        let stats = self.counted();
        let requests = stats.requests();
        let known = stats.hits() as f64 / requests.max(1) as f64;
        self.curve.estimate((self.keeper.lock().budget_bytes as u64, known), budget_bytes, requests)
    }

    fn look_up(&self, block: &Identity, bp: &Blkptr, ctx: &ReadContext, now_ns: u64) -> Option<Bytes> {
        let found = self.find(block, now_ns, Bytes::clone);
        if found.is_none() {
            self.counters.missed(block.class);
        }
        let bytes = || found.as_ref().map_or(bp.lsize().0, |bytes| bytes.len() as u64);
        self.curve.note(block.id, cost(bytes() as usize), || self.counted().requests());
        let wish = if found.is_some() { Wish::Hit } else { Wish::Miss };
        self.note(block, (wish, bytes()), ctx.place, now_ns);
        found
    }

    fn note(&self, block: &Identity, (wish, bytes): (Wish, u64), place: Zbookmark, now_ns: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Identity { id, class, .. } = *block;
        self.look_ups.note(|| LookUp { now_ns, id, bytes, class, wish, place });
    }

    /// Waits for a block being read ahead; `None` if not, or the read failed.
    async fn await_read_ahead(&self, pool: &Pool, block: &Identity, now_ns: u64) -> Option<Bytes> {
        if !unless_suspended(pool, self.under_way.wait(&block.key)).await? {
            return None;
        }
        let found = self.look_at(block, now_ns, |_, bytes| bytes.clone())?;
        self.prefetch.iohits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    fn find<T>(&self, block: &Identity, now_ns: u64, look: impl FnOnce(&Bytes) -> T) -> Option<T> {
        self.look_at(block, now_ns, |shard, bytes| {
            shard.count_hit(block.class);
            look(bytes)
        })
    }

    fn look_at<T>(&self, block: &Identity, now_ns: u64, look: impl FnOnce(&Shard, &Bytes) -> T) -> Option<T> {
        let shard = self.shard(block.id).read();
        let (bytes, kind) = shard.get(block, now_ns)?;
        let (len_bytes, found) = (bytes.len(), look(&shard, bytes));
        // The first use of a block read ahead: its insertion counted as that use.
        let heard = match kind {
            Use::Hit => shard.note(access(block.id, block.class, len_bytes, now_ns)),
            Use::First | Use::Again => None,
        };
        drop(shard);
        if kind == Use::First {
            self.prefetch.used.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(heard) = heard {
            let mut keeper = self.keeper.lock();
            keeper.policy.expect(&heard);
            heard.iter().for_each(|access| {
                keeper.policy.touch(access);
            });
        }
        Some(found)
    }

    /// Makes a block resident, if its dataset allows, and evicts others. One larger than the budget does not
    /// stay.
    fn insert(&self, block: &Identity, bytes: Bytes, caching: Caching, now_ns: u64) {
        let marks = Marks { is_l2_eligible: caching.secondary.takes(block.class), ..Marks::default() };
        if caching.primary.takes(block.class) {
            self.place(block, bytes, marks, now_ns);
        }
    }

    fn place(&self, block: &Identity, bytes: Bytes, marks: Marks, now_ns: u64) {
        let bytes = if block.is_indirect { without_end(bytes) } else { bytes };
        let mut keeper = self.keeper.lock();
        let Keeper { policy, budget_bytes, evicted, .. } = &mut *keeper;
        let access = access(block.id, block.class, bytes.len(), now_ns);
        if u64::from(access.bytes) > *budget_bytes as u64 {
            return;
        }
        {
            let mut shard = self.shard(block.id).write();
            // Two reads of one block may both come here.
            if shard.holds(block.id) {
                return;
            }
            shard.insert(block, bytes, marks);
        }
        // The policy must know all hits before it decides.
        for shard in &self.shards {
            shard.read().tell(|hit| {
                policy.touch(&hit);
            });
        }
        policy.insert(&access, evicted);
        self.evict(evicted);
        debug_assert!(policy.resident_bytes() <= *budget_bytes as u64, "a policy exceeds its budget");
    }

    /// Under the policy's lock.
    fn evict(&self, evicted: &mut Vec<BlockId>) {
        for id in evicted.drain(..) {
            let gone = self.shard(id).write().remove(id);
            if gone.is_some_and(|(_, marks)| marks.is_read_ahead) {
                self.prefetch.wasted.fetch_add(1, Ordering::Relaxed);
            }
            self.counters.evicted(gone);
        }
    }

    fn shard(&self, id: BlockId) -> &RwLock<Shard> {
        &self.shards[(id >> 60) as usize % SHARDS]
    }
}

/// Without zeros at the end, if these are most of the block.
fn without_end(bytes: Bytes) -> Bytes {
    let (pointers, _) = bytes.as_chunks::<BLKPTR_BYTES>();
    let last = pointers.iter().rposition(|pointer| !is_zero(pointer));
    let used = last.map_or(0, |last| last + 1) * BLKPTR_BYTES;
    if used * 2 > bytes.len() { bytes } else { Bytes::copy_from_slice(&bytes[..used]) }
}

fn access(id: BlockId, class: Class, len_bytes: usize, now_ns: u64) -> Access {
    Access { id, bytes: cost(len_bytes), class, now_ns, next_use: u64::MAX }
}

fn cost(len_bytes: usize) -> u32 {
    u32::try_from(len_bytes + OVERHEAD_BYTES).unwrap_or(u32::MAX)
}

/// Whether cache devices may take a missing block, too.
fn secondary(ctx: &ReadContext, block: &Identity, caching: Caching, wanted: Secondary) -> ReadContext {
    let secondary = if caching.secondary.takes(block.class) { wanted } else { Secondary::No };
    ReadContext { secondary, ..ctx.clone() }
}

/// Awaits another task's read; `None` if that hangs on failed devices and this caller must not.
async fn unless_suspended<T>(pool: &Pool, others: impl Future<Output = T>) -> Option<T> {
    if pool.reads_wait() || pool.suspension().failmode().is_none() {
        return Some(others.await);
    }
    tokio::select! {
        biased;
        read = others => Some(read),
        _ = pool.suspension().suspended_or_not(true) => None,
    }
}

fn now_ns(pool: &Pool) -> u64 {
    pool.runtime().coarse_now().as_ns()
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

#[cfg(test)]
mod tests;
