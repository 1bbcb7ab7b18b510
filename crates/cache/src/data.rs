//! Reads many blocks of files and volumes at once, and ahead of their use.
//!
//! Source: OpenZFS `dbuf.c` (`dbuf_prefetch`), `arc.c` (`arc_read` of a block that is being read).

use std::sync::atomic::Ordering;

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_pool::{Pool, PoolError, ReadContext, Secondary};

use crate::identity::Identity;
use crate::shard::Marks;
use crate::{BlockCache, Caching, now_ns, secondary};

/// The result of a look-up, before any read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looked {
    /// Some blocks are missing.
    pub missed: bool,
    /// Some are still being read ahead.
    pub late: bool,
}

struct Missing {
    index: usize,
    block: Option<Identity>,
    bp: Blkptr,
    ctx: ReadContext,
}

impl BlockCache {
    /// Reads blocks of a file or volume, decoded by all cores; returns the results in order. Calls `looked`
    /// before any wait, so that the caller can request more.
    pub async fn read_data(
        &self,
        pool: &Pool,
        requests: Vec<(Blkptr, ReadContext)>,
        caching: Caching,
        looked: impl FnOnce(Looked),
    ) -> Vec<Result<Bytes, PoolError>> {
        if !self.caches_data() {
            looked(Looked { missed: true, late: false });
            return pool.read_many(requests).await;
        }
        let now_ns = now_ns(pool);
        let mut results: Vec<Option<Result<Bytes, PoolError>>> = Vec::with_capacity(requests.len());
        let mut missing = Vec::new();
        for (index, (bp, ctx)) in requests.into_iter().enumerate() {
            let block = self.cached(&bp);
            let hit = block.as_ref().and_then(|block| self.look_up(block, &bp, &ctx, now_ns));
            if hit.is_none() {
                missing.push(Missing { index, block, bp, ctx });
            }
            results.push(hit.map(Ok));
        }
        let is_late = |missing: &Missing| missing.block.is_some_and(|b| self.under_way.is_claimed(&b.key));
        looked(Looked { missed: !missing.is_empty(), late: missing.iter().any(is_late) });
        for Missing { index, block, .. } in &missing {
            if let Some(block) = block {
                results[*index] = self.await_read_ahead(pool, block, now_ns).await.map(Ok);
            }
        }
        missing.retain(|missing| results[missing.index].is_none());
        // Concurrent small reads of one block share a flight.
        if let [Missing { index, block: Some(block), bp, ctx }] = &missing[..] {
            results[*index] = Some(self.read_missing(pool, (block, bp, ctx), caching, now_ns).await);
        } else if !missing.is_empty() {
            let offered = |Missing { block, bp, ctx, .. }: &Missing| match block {
                Some(block) => (*bp, secondary(ctx, block, caching, Secondary::Demand)),
                None => (*bp, ctx.clone()),
            };
            let requests = missing.iter().map(offered).collect();
            for (Missing { index, block, .. }, result) in missing.iter().zip(pool.read_many(requests).await) {
                if let (Some(block), Ok(bytes)) = (block, &result) {
                    self.insert(block, bytes.clone(), caching, now_ns);
                }
                results[*index] = Some(result);
            }
        }
        results.into_iter().flatten().collect()
    }

    /// Reads the blocks neither cached nor under way. Errors are left to later readers.
    pub async fn read_ahead(&self, pool: &Pool, requests: Vec<(Blkptr, ReadContext)>, caching: Caching) {
        let now_ns = now_ns(pool);
        let mut window = self.under_way.window();
        let (mut blocks, mut wanted) = (Vec::new(), Vec::new());
        for (bp, ctx) in requests {
            let Some(block) = self.cached(&bp).filter(|block| caching.primary.takes(block.class)) else {
                continue;
            };
            if self.shard(block.id).read().holds(block.id) {
                self.prefetch.found.fetch_add(1, Ordering::Relaxed);
            } else if window.claim(block.key) {
                wanted.push((bp, secondary(&ctx, &block, caching, Secondary::Ahead)));
                blocks.push(block);
            }
        }
        self.prefetch.issued.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        let mut blocks = blocks.into_iter();
        let mut each = |result: Result<Bytes, PoolError>| {
            if let (Some(block), Ok(bytes)) = (blocks.next(), result) {
                let is_l2_eligible = caching.secondary.takes(block.class);
                let marks = Marks { is_l2_eligible, is_read_ahead: true, uses: 0 };
                self.place(&block, bytes, marks, now_ns);
            }
            window.next_is_done();
        };
        pool.read_each(wanted, &mut each).await;
    }
}
