//! Checkpoints: a state of the whole pool to rewind to.
//!
//! ```text
//!   take      put the previous txg's uberblock into the object directory; from this txg on
//!   free      older blocks stay allocated, and are noted in a map of their vdev (pool/alloc)
//!   discard   the blocks in these maps are freed
//! ```
//!
//! Idea: blocks of the checkpoint must not be overwritten; the current state can only stop using them. A
//! block's physical birth tells whether the checkpoint has it (its last pointer may be a clone's, and
//! younger), so no list of these blocks is needed.
//!
//! A checkpoint is taken first in a txg, before any free.
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

pub(crate) async fn keep(mos: &Mos, allocator: &Allocator) -> Result<()> {
    let checkpoint = mos.checkpoint().await?;
    allocator.keep_for_checkpoint(checkpoint.map_or(Txg(0), |uberblock| uberblock.checkpoint_txg));
    Ok(())
}

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

/// A vdev's map under `field` of its ZAP, made on first use; and whether it is new.
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

pub(crate) fn top_zap(context: &SyncContext, vdev: VdevId) -> Result<ObjectId> {
    let found = top_zaps(context).into_iter().find(|(id, _)| *id == vdev);
    found.map(|(_, zap)| zap).ok_or_else(|| context.damaged("a vdev has no ZAP"))
}

/// The ZAPs of top-level vdevs.
pub fn top_zaps(context: &SyncContext) -> Vec<(VdevId, ObjectId)> {
    let config = context.engine.config.lock();
    let tops = config.vdev_tree.children.iter().filter(|top| top.top_zap.0 != 0);
    tops.map(|top| (VdevId(top.id), top.top_zap)).collect()
}
