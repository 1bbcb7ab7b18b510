//! The txg that is being written, for those who store blocks.

use std::sync::Arc;

use cenote_cache::BlockCache;
use cenote_format::units::Txg;
use cenote_pool::Pool;
use cenote_pool::alloc::Allocator;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::sharing::tables::Tables;
use crate::store::features::Features;

/// A transaction group that is being written.
#[derive(Clone)]
pub(crate) struct SyncingTxg {
    pub(crate) pool: Pool,
    /// Takes what is written, since the next txg reads much of it again.
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) txg: Txg,
    /// Counts the rounds in which the MOS is written until it does not change any more.
    pub(crate) pass: u32,
    /// How blocks are written.
    pub(crate) features: Features,
    /// Where blocks that are alike are found, if any are to be.
    pub(crate) tables: Option<Tables>,
    pub(crate) in_flight: InFlight,
}

/// Of blocks on their way to the disks, bytes at once: with their compressed forms, twice that in memory,
/// whatever the number of datasets. Enough for every disk's queue.
const IN_FLIGHT_BYTES: u32 = 32 << 20;

/// Blocks on their way to the disks, of all datasets together. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct InFlight(Arc<Semaphore>);

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight(Arc::new(Semaphore::new(IN_FLIGHT_BYTES as usize)))
    }
}

impl InFlight {
    /// Waits until there is room for a block of this length; it has it until what this answers is dropped. A
    /// task must not ask again before.
    pub(crate) async fn enter(&self, len: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(len).unwrap_or(u32::MAX).min(IN_FLIGHT_BYTES);
        // `Err`: the semaphore is closed, which nobody does.
        self.0.acquire_many(bytes).await.ok()
    }
}
