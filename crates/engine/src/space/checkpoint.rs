//! Checkpoints: a state of the whole pool that can be gone back to.
//!
//! ```text
//!   take      the uberblock of the txg before goes into the object directory; from this txg on
//!   free      what was written up to then stays allocated, and is noted in a map of its vdev (pool/alloc)
//!   discard   what these maps hold is freed
//! ```
//!
//! Idea: the checkpoint is the state that an uberblock leads to, so nothing of it may be overwritten: a block
//! that it has can only be *unused* by the current state. That is known by the block's physical birth (its
//! last pointer may be a clone's, and younger than the checkpoint); no list of what the checkpoint has is
//! needed.
//!
//! A checkpoint is taken as the first thing of a txg, before anything is freed in it.
//!
//! Source: OpenZFS `spa_checkpoint.c`, `metaslab.c` (`metaslab_sync`).

use cenote_dataset::Mos;
use cenote_format::dsl::names::vdev_zap;
use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, Txg, VdevId};
use cenote_object::{Result, ZapEdit};
use cenote_pool::alloc::Allocator;
use cenote_pool::ranges::Ranges;

use crate::context::SyncContext;
use crate::space::map_edit::SpaceMapEdit;
use crate::space::maps::changes;
use crate::space::write::ashift;

/// `zfs_vdev_standard_sm_blksz`.
const MAP_BLOCK_BYTES: u32 = 128 << 10;

/// What a checkpoint has stays allocated.
pub(crate) async fn keep(mos: &Mos, allocator: &Allocator) -> Result<()> {
    let checkpoint = mos.checkpoint().await?;
    allocator.keep_for_checkpoint(checkpoint.map_or(Txg(0), |uberblock| uberblock.checkpoint_txg));
    Ok(())
}

/// Notes what was freed and is kept for the checkpoint.
pub(crate) async fn write_kept(context: &mut SyncContext, vdev: VdevId, kept: &Ranges) -> Result<()> {
    if kept.is_empty() {
        return Ok(());
    }
    let shift = ashift(context, vdev);
    let map = map_of_vdev(context, vdev, vdev_zap::POOL_CHECKPOINT_SM, shift).await?.0;
    let edit = context.edit();
    let map = SpaceMapEdit::new(&edit, map, shift);
    map.append(&changes(MapType::Free, kept, 0), context.syncing.pass as u16).await
}

/// The map of a vdev that its ZAP names, made when it is needed first; and whether it is new.
pub(crate) async fn map_of_vdev(
    context: &mut SyncContext,
    vdev: VdevId,
    field: &str,
    shift: u32,
) -> Result<(ObjectId, bool)> {
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, top_zap(context, vdev)?);
    if let Some(map) = fields.get(field).await?.and_then(|value| value.as_u64()) {
        return Ok((ObjectId(map), false));
    }
    let map = SpaceMapEdit::create(&edit, MAP_BLOCK_BYTES, shift).await?.object();
    fields.add(field, map.0).await?;
    Ok((map, true))
}

/// The ZAP of a top-level vdev, which must have one.
pub(crate) fn top_zap(context: &SyncContext, vdev: VdevId) -> Result<ObjectId> {
    let found = top_zaps(context).into_iter().find(|(id, _)| *id == vdev);
    found.map(|(_, zap)| zap).ok_or_else(|| context.damaged("a vdev has no ZAP"))
}

/// The ZAP of each top-level vdev that has one.
pub fn top_zaps(context: &SyncContext) -> Vec<(VdevId, ObjectId)> {
    let config = context.engine.config.lock();
    let tops = config.vdev_tree.children.iter().filter(|top| top.top_zap.0 != 0);
    tops.map(|top| (VdevId(top.id), top.top_zap)).collect()
}
