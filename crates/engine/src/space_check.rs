//! Space checks of sync tasks.
//!
//! Idea: frees must work in a full pool, and tasks that lead to frees (destroying a snapshot, renaming a
//! dataset) first take some blocks of the MOS. So each kind of task may use a share of the reserved slop: the
//! more it helps to free space, the larger.
//!
//! Source: OpenZFS `dsl_synctask.c` (`dsl_sync_task_sync`), `dsl_pool.c` (`dsl_pool_adjustedsize`).

use cenote_boxed::boxed;
use cenote_format::dsl::names::pool as names;
use cenote_object::{DatasetError, Result};
use cenote_pool::alloc::AllocClass;

use crate::context::SyncContext;

/// MOS changes of a task in three copies: some blocks of 16 KiB (`DST_AVG_BLKSHIFT`).
const TASK_BYTES: u64 = 3 * (5 << 14);

/// Share of the slop that a task may use (`zfs_space_check_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceCheck {
    /// None: for tasks that create.
    Normal,
    /// Half: for tasks that change.
    Reserved,
    /// Three quarters: for tasks that destroy.
    ExtraReserved,
    /// All: must not fail for lack of space.
    None,
}

/// Checks the space for a task, or for a further step of one.
///
/// # Errors
/// No space; damaged MOS.
#[boxed]
pub async fn check_space(context: &SyncContext, check: SpaceCheck) -> Result<()> {
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
        // `used` has this txg's shared blocks once per owner; the MOS has savings as of the last txg: add the
        // difference.
        let before = mos.dedup_summary().await?.saved_bytes();
        let before = before.saturating_add(mos.cloned_summary().await?.saved_bytes);
        let saved = context.engine.tables.lock().await.saved_bytes(&context.syncing.pool);
        available = available.saturating_add(saved.saturating_sub(before));
    }
    match is_full(available) {
        false => Ok(()),
        true => {
            // For the next task: frees blocks kept for readers of older states.
            context.syncing.allocator.give_up_kept();
            Err(DatasetError::NoSpace {
                name: context.syncing.pool.name().into(),
                needed_bytes: TASK_BYTES,
                available_bytes: available.saturating_sub(used),
            })
        }
    }
}
