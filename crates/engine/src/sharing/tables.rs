//! Concurrent access to the tables of shared blocks.
//!
//! Idea: a lookup may read a ZAP leaf from anywhere on disk; under the tables' lock such reads would be
//! serial. So [`Tables::fetch`] reads entries first, concurrently and without the lock; under it, all is in
//! memory.
//!
//! Locking: a writer of a deduplicated block holds its checksum's lock ([`Tables::alike`]) until the block is
//! entered, so that an equal block finds it. Within it, the tables' lock is held for one access. Never the
//! other way round.
//!
//! Memory: fetched entries stay until the end of the pass.

use std::sync::Arc;

use cenote_format::blkptr::Blkptr;
use cenote_object::{Edit, LiveObjset, Result};
use cenote_pool::Pool;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::{Mutex, MutexGuard};

use crate::sharing::release::SharedBlocks;

/// Many more than concurrent writes.
const STRIPES: usize = 256;
/// About a disk's queue.
const LOOKUPS_AT_ONCE: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Tables {
    shared: Arc<Mutex<SharedBlocks>>,
    stripes: Arc<[Mutex<()>]>,
    mos: LiveObjset,
}

impl Tables {
    pub(crate) fn new(shared: SharedBlocks, mos: LiveObjset) -> Tables {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Tables { shared: Arc::new(Mutex::new(shared)), stripes, mos }
    }

    pub(crate) fn mos(&self) -> Edit {
        self.mos.edit()
    }

    pub(crate) async fn lock(&self) -> MutexGuard<'_, SharedBlocks> {
        self.shared.lock().await
    }

    /// Locks blocks of this checksum.
    pub(crate) async fn alike(&self, bp: &Blkptr) -> MutexGuard<'_, ()> {
        self.stripes[bp.checksum()[0] as usize % STRIPES].lock().await
    }

    /// Reads the entries of blocks about to be written or freed.
    ///
    /// # Errors
    /// Damage.
    pub(crate) async fn fetch(&self, pool: &Pool, bps: &[Blkptr]) -> Result<()> {
        let lookups = {
            let shared = self.lock().await;
            bps.iter().filter_map(|bp| shared.lookup(bp)).collect::<Vec<_>>()
        };
        let mos = self.mos();
        let reads = lookups.into_iter().map(|lookup| lookup.read(&mos));
        let mut found = futures::stream::iter(reads).buffered(LOOKUPS_AT_ONCE);
        while let Some(found) = found.try_next().await? {
            self.lock().await.admit(pool, found);
        }
        Ok(())
    }

    /// Forgets deduplicated blocks with one reference since before a time, in seconds since 1970, unused in
    /// this txg so far. Returns their number.
    ///
    /// # Errors
    /// Damage.
    pub(crate) async fn prune(&self, pool: &Pool, bps: &[Blkptr], before_s: u64) -> Result<u64> {
        let lookups = {
            let shared = self.lock().await;
            bps.iter().filter_map(|bp| shared.lookup(bp)).collect::<Vec<_>>()
        };
        let mos = self.mos();
        let reads = lookups.into_iter().map(|lookup| lookup.read(&mos));
        let (mut all, mut pruned) = (futures::stream::iter(reads).buffered(LOOKUPS_AT_ONCE), 0);
        while let Some(found) = all.try_next().await? {
            if let Some(found) = found {
                pruned += u64::from(self.lock().await.prune(pool, found, before_s));
            }
        }
        Ok(pruned)
    }
}
