//! The txg that is being written, for those who store blocks.

use std::sync::Arc;

use cenote_cache::BlockCache;
use cenote_codec::compress::Compression;
use cenote_format::units::Txg;
use cenote_object::LiveObjset;
use cenote_pool::Pool;
use cenote_pool::alloc::Allocator;

use crate::sharing::release::SharedBlocks;

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
    /// Holes say in which txg they were made.
    pub(crate) hole_birth: bool,
    /// Small blocks stay in their pointers.
    pub(crate) embed: bool,
    /// What `compression=on` means, and metadata has.
    pub(crate) compression: Compression,
    /// Where blocks that are alike are found, if any are to be.
    pub(crate) tables: Option<Tables>,
}

/// Deduplication tables, and the MOS that they are in.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) shared: Arc<tokio::sync::Mutex<SharedBlocks>>,
    pub(crate) mos: LiveObjset,
}
