//! The tables of shared blocks, for many who need them at once.
//!
//! Idea: to look a block up is to read a leaf of a ZAP from anywhere on the disks. Under the lock of the
//! tables one such read would wait for the other. So entries are read first, side by side and without the
//! lock ([`Tables::fetch`]); under it, all is in memory.
//!
//! Locking: who writes a block under its checksum takes the lock of that checksum ([`Tables::alike`]) until
//! the block is entered: of two alike, the second must find the first. Then the lock of the tables, for as
//! long as it takes to look or to count. Never the other way round.
//!
//! Memory: what is fetched stays until the end of the pass.

use std::sync::Arc;

use cenote_format::blkptr::Blkptr;
use cenote_object::{Edit, LiveObjset, Result};
use cenote_pool::Pool;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::{Mutex, MutexGuard};

use crate::sharing::release::SharedBlocks;

/// Locks for checksums: many more than blocks that are written at once.
const STRIPES: usize = 256;
/// Entries that are read at once: of random reads, a disk's queue takes as many.
const LOOKUPS_AT_ONCE: usize = 64;

/// What tables know of shared blocks, and the MOS that they are in. Cloning it is cheap.
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

    /// The MOS, to be changed with them.
    pub(crate) fn mos(&self) -> Edit {
        self.mos.edit()
    }

    /// The tables alone, for a moment.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, SharedBlocks> {
        self.shared.lock().await
    }

    /// Blocks of this checksum, alone.
    pub(crate) async fn alike(&self, bp: &Blkptr) -> MutexGuard<'_, ()> {
        self.stripes[bp.checksum()[0] as usize % STRIPES].lock().await
    }

    /// Reads what tables have about blocks that will be looked up, written or freed.
    ///
    /// # Errors
    /// A table is damaged.
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
}
