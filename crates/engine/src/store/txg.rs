//! The syncing txg, for code that stores blocks.

use std::sync::Arc;

use cenote_cache::BlockCache;
use cenote_format::units::Txg;
use cenote_pool::Pool;
use cenote_pool::alloc::Allocator;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::sharing::tables::Tables;
use crate::store::features::Features;

#[derive(Clone)]
pub(crate) struct SyncingTxg {
    pub(crate) pool: Pool,
    /// Gets written blocks, many of which the next txg reads again.
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) txg: Txg,
    /// Counts the rounds of writing the MOS until it stops changing.
    pub(crate) pass: u32,
    pub(crate) features: Features,
    /// For deduplication; `None`: off.
    pub(crate) tables: Option<Tables>,
    /// The deduplication tables take no new blocks.
    pub(crate) tables_are_full: bool,
    pub(crate) in_flight: InFlight,
}

/// Bytes of blocks in flight, for all datasets together; with compressed copies, twice that in memory. Enough
/// for every disk's queue.
const IN_FLIGHT_BYTES: u32 = 32 << 20;

/// Limits blocks in flight. A clone is cheap.
#[derive(Clone)]
pub(crate) struct InFlight(Arc<Semaphore>);

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight(Arc::new(Semaphore::new(IN_FLIGHT_BYTES as usize)))
    }
}

impl InFlight {
    /// Waits for room for a block, which is taken until the result is dropped. A task must not take two.
    pub(crate) async fn enter(&self, len: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(len).unwrap_or(u32::MAX).min(IN_FLIGHT_BYTES);
        // `Err` would mean a closed semaphore; it never is.
        self.0.acquire_many(bytes).await.ok()
    }
}
