//! Whether background freeing has work, and how much a txg frees.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_dataset::Mos;
use cenote_format::dsl::names::pool as names;
use cenote_format::units::ObjectId;
use cenote_object::Result;
use cenote_object::deadlist::Bpobj;

/// `zfs_async_block_max_blocks`, before OpenZFS limited frees by time alone.
const BLOCKS_PER_TXG: u64 = 100_000;

pub(crate) struct Freeing {
    is_pending: AtomicBool,
    pub(crate) blocks_per_txg: AtomicU64,
}

impl Default for Freeing {
    fn default() -> Freeing {
        Freeing { is_pending: false.into(), blocks_per_txg: BLOCKS_PER_TXG.into() }
    }
}

impl Freeing {
    pub(crate) async fn of(mos: &Mos) -> Result<Freeing> {
        let mut is_pending = !mos.pending_destroys().await?.is_empty();
        if let Some(list) = mos.directory_u64(names::FREE_BPOBJ).await?.filter(|&id| id != 0) {
            let list = Bpobj::open(mos.objset(), ObjectId(list)).await?;
            is_pending |= list.phys().blkptr_count + list.phys().subobj_count != 0;
        }
        Ok(Freeing { is_pending: is_pending.into(), ..Freeing::default() })
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pending(&self, is_pending: bool) {
        self.is_pending.store(is_pending, Ordering::Relaxed);
    }
}
