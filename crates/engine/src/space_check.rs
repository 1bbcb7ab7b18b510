//! Whether there is room for a task.
//!
//! Idea: what frees must work in a pool that is full, and what leads there (a snapshot destroyed, a dataset
//! renamed) takes some blocks of the MOS first. So of the slop that is kept back, each kind of task may go
//! into as much as it is needed for getting out.
//!
//! Source: OpenZFS `dsl_synctask.c` (`dsl_sync_task_sync`), `dsl_pool.c` (`dsl_pool_adjustedsize`).

use cenote_format::dsl::names::pool as names;
use cenote_object::{DatasetError, Result};
use cenote_pool::alloc::AllocClass;

use crate::context::SyncContext;

/// What a task changes of the MOS, in three copies: some blocks of 16 KiB (`DST_AVG_BLKSHIFT`).
const TASK_BYTES: u64 = 3 * (5 << 14);

/// How much of the slop a task may use (`zfs_space_check_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceCheck {
    /// None: it makes something.
    Normal,
    /// Half: it changes something.
    Reserved,
    /// Three quarters: it destroys something.
    ExtraReserved,
    /// All there is: it must not fail for that.
    None,
}

/// Refuses a task that there is no room for.
pub(crate) async fn check_space(context: &SyncContext, check: SpaceCheck) -> Result<()> {
    let kept_back = match check {
        SpaceCheck::Normal => 0,
        SpaceCheck::Reserved => 1,
        SpaceCheck::ExtraReserved => 2,
        SpaceCheck::None => return Ok(()),
    };
    let mos = context.mos().await?;
    let slop = mos.slop_bytes();
    let deferred = context.syncing.allocator.class_space(AllocClass::Normal).deferred_bytes;
    let usable = mos.usable_bytes().await?.saturating_add(slop - (slop >> kept_back));
    let mut available = usable.saturating_sub(deferred);
    let root = context.directory_object(names::ROOT_DATASET).await?;
    let used = context.dir_phys(root).await?.used_bytes;
    let is_full = |available| used.saturating_add(TASK_BYTES) > available;
    if is_full(available) {
        // What the txg has written is in `used`, blocks with several owners once for each of them. What
        // sharing saves is in the MOS as of the last txg: the difference is not used up.
        let before = mos.dedup_summary().await?.saved_bytes();
        let before = before.saturating_add(mos.cloned_summary().await?.saved_bytes);
        let saved = context.engine.tables.lock().await.saved_bytes(&context.syncing.pool);
        available = available.saturating_add(saved.saturating_sub(before));
    }
    match is_full(available) {
        false => Ok(()),
        true => {
            // The next one finds what is kept for readers of older states.
            context.syncing.allocator.give_up_kept();
            Err(DatasetError::NoSpace {
                name: context.syncing.pool.name().into(),
                needed_bytes: TASK_BYTES,
                available_bytes: available.saturating_sub(used),
            })
        }
    }
}
