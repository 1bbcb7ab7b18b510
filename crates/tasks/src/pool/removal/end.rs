//! Ends a removal: the vdev becomes its mapping, or stays.
//!
//! Source: OpenZFS `vdev_removal.c` (`vdev_remove_complete`, `vdev_remove_replace_with_indirect`,
//! `vdev_remove_complete_sync`, `spa_vdev_remove_cancel_sync`, `spa_finish_removal`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cenote_boxed::boxed;
use cenote_engine::space::map_edit::SpaceMapEdit;
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::dsl::names::vdev_zap;
use cenote_format::indirect::IndirectMappingPhys;
use cenote_format::label::{VdevConfig, VdevKind};
use cenote_format::scan::{DSS_CANCELED, DSS_FINISHED, NO_VDEV, RemovingPhys, ScanState};
use cenote_format::units::{Guid, ObjectId, PhysicalBirth, Txg, VdevId};
use cenote_format::words::Phys;
use cenote_object::{DatasetError, Result, ZapEdit};
use cenote_pool::label::clear_labels;
use cenote_pool::{FoundDevice, LeavesInUse};

use super::{DEVICE_REMOVAL, OBSOLETE_COUNTS, removing_top, set_state, state};
use crate::pool::take_tree::{drop_leaf, forget_unflushed, take_tree};

/// Interval at which to look for walks of older trees.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Removes the devices of a vdev fully copied in txg `copied`. Does nothing if that has changed, or if a
/// reader still uses an older tree, whose blocks may have been freed and never copied.
pub(super) async fn finish(engine: Engine, vdev: VdevId, copied: Txg) -> Result<()> {
    // Walks wait meanwhile, so that this need not wait for the end of a scan.
    let no_walks = engine.background().no_walks().await;
    if engine.allocator().is_kept_before(copied) {
        engine.runtime().sleep(LOOK_INTERVAL).await;
        return Ok(());
    }
    let task = engine.run_first(SpaceCheck::None, move |context| {
        Box::pin(async move { finish_sync(context, vdev, copied).await })
    });
    let Some(Gone { devices, in_use }) = task.await? else { return Ok(()) };
    drop(no_walks);
    in_use.ended().await;
    for device in devices {
        clear_labels(&*device.device).await?;
    }
    Ok(())
}

/// The devices that have left.
struct Gone {
    devices: Vec<FoundDevice>,
    in_use: LeavesInUse,
}

async fn finish_sync(context: &mut SyncContext, vdev: VdevId, copied: Txg) -> Result<Option<Gone>> {
    let Some(top) = removing_top(context, vdev) else { return Ok(None) };
    let end = context.allocator().moved_up_to(vdev);
    let Some(mapping) = context.allocator().mapping(vdev) else { return Ok(None) };
    let is_all = context.allocator().in_use(vdev, end, u64::MAX).is_empty();
    if !is_all || context.allocator().is_kept_before(copied) {
        return Ok(None);
    }
    let leaves: Vec<Guid> = top.leaves().map(|leaf| leaf.guid).collect();
    let in_use = context.pool().tree().in_use(&leaves);
    let devices = leaves.iter().filter_map(|leaf| context.pool().tree().device(*leaf)).collect();
    context.begin_writing().await?;
    for leaf in top.leaves() {
        drop_leaf(context, leaf).await?;
    }
    forget_unflushed(context, top.top_zap).await?;
    context.forget_vdev(vdev).await?;
    // From here on its blocks are only at their copies.
    context.allocator().remove_vdev(vdev);
    let mut state = state(context).await?;
    let mut config = context.config().clone();
    let indirect = VdevConfig {
        ashift: top.ashift,
        asize_bytes: top.asize_bytes,
        class: top.class,
        metaslab_shift: top.metaslab_shift,
        whole_disk: Some(false),
        non_allocating: true,
        indirect_object: top.indirect_object,
        indirect_births: top.indirect_births,
        prev_indirect_vdev: Some(state.prev_indirect_vdev).filter(|vdev| *vdev != NO_VDEV),
        create_txg: top.create_txg,
        top_zap: top.top_zap,
        ..VdevConfig::new(VdevKind::Indirect, top.id, Guid(context.random().max(1)))
    };
    let tops = &mut config.vdev_tree.children;
    tops.iter_mut().filter(|one| one.id == top.id).for_each(|one| *one = indirect.clone());
    context.pool().tree().set_mapping(vdev, Arc::new(mapping));
    take_tree(context, config, BTreeMap::new(), None).await?;
    state.prev_indirect_vdev = vdev;
    // Blocks freed at the last moment were not copied, but are dealt with.
    state.copied_bytes = state.to_copy_bytes;
    end_state(context, state, DSS_FINISHED).await?;
    let pool = context.config().name.clone();
    context.log_event("vdev remove completed", &format!("{pool} vdev {vdev}")).await?;
    Ok(Some(Gone { devices, in_use }))
}

/// Cancels the removal in progress: frees the copies, and allows allocation on the vdev again.
///
/// # Errors
/// No removal is in progress.
#[boxed]
pub async fn cancel_removal(engine: &Engine) -> Result<()> {
    let cancel = |engine: Engine| async move {
        engine.run_on_pool(|context| Box::pin(cancel_sync(context))).await?;
        engine.background().removals.order();
        Ok(())
    };
    engine.to_end(cancel).await
}

async fn cancel_sync(context: &mut SyncContext) -> Result<()> {
    let state = state(context).await?;
    let is_running = ScanState::from(state.state) == ScanState::Scanning;
    let top = removing_top(context, state.removing_vdev).filter(|_| is_running);
    let none = || DatasetError::unsuitable(context.pool().name(), "there is no removal in progress");
    let top = top.ok_or_else(none)?;
    context.begin_writing().await?;
    let vdev = VdevId(top.id);
    free_copies(context, vdev)?;
    context.allocator().forget_moved(vdev);
    context.use_feature(DEVICE_REMOVAL, -1).await?;
    forget_mapping(context, &top).await?;
    let is_off = ZapEdit::new(&context.edit(), top.top_zap).get("allocating").await?;
    let is_off = is_off.and_then(|value| value.as_u64()) == Some(0);
    let mut config = context.config().clone();
    for one in config.vdev_tree.children.iter_mut().filter(|one| one.id == top.id) {
        (one.removing, one.non_allocating) = (false, is_off);
        (one.indirect_object, one.indirect_births) = (ObjectId(0), ObjectId(0));
    }
    take_tree(context, config, BTreeMap::new(), None).await?;
    context.allocator().set_allocates(vdev, !is_off);
    end_state(context, state, DSS_CANCELED).await?;
    let (pool, path) = (context.config().name.clone(), top.path.as_deref().unwrap_or("-"));
    context.log_event("vdev remove canceled", &format!("{pool} vdev {vdev} {path}")).await
}

/// Frees the copies of all ranges in use.
fn free_copies(context: &SyncContext, vdev: VdevId) -> Result<()> {
    let allocator = context.allocator();
    let Some(mapping) = allocator.mapping(vdev) else { return Ok(()) };
    for (start, end) in allocator.in_use(vdev, 0, mapping.end_bytes()).iter() {
        for copy in mapping.resolve(start, end - start) {
            let freed = allocator.free(&copy, PhysicalBirth::UNKNOWN, context.txg());
            freed.map_err(|error| context.damaged(&error.to_string()))?;
        }
    }
    Ok(())
}

/// Frees a mapping's objects in the MOS.
async fn forget_mapping(context: &mut SyncContext, top: &VdevConfig) -> Result<()> {
    let edit = context.edit();
    let dnode = edit.view().dnode(top.indirect_object).await?;
    let phys = IndirectMappingPhys::decode(dnode.bonus(), dnode.endian());
    let phys = phys.map_err(|error| edit.view().format(top.indirect_object, error))?;
    if phys.counts_object.0 != 0 {
        edit.destroy(phys.counts_object).await?;
        context.use_feature(OBSOLETE_COUNTS, -1).await?;
    }
    edit.destroy(top.indirect_object).await?;
    edit.destroy(top.indirect_births).await?;
    let fields = ZapEdit::new(&edit, top.top_zap);
    if fields.get(vdev_zap::OBSOLETE_COUNTS_ARE_PRECISE).await?.is_some() {
        fields.remove(vdev_zap::OBSOLETE_COUNTS_ARE_PRECISE).await?;
        context.use_feature(OBSOLETE_COUNTS, -1).await?;
    }
    let obsolete = fields.get(vdev_zap::INDIRECT_OBSOLETE_SM).await?.and_then(|value| value.as_u64());
    if let Some(map) = obsolete.map(ObjectId) {
        SpaceMapEdit::new(&edit, map, 0).free().await?;
        fields.remove(vdev_zap::INDIRECT_OBSOLETE_SM).await?;
        context.use_feature(OBSOLETE_COUNTS, -1).await?;
    }
    Ok(())
}

async fn end_state(context: &SyncContext, state: RemovingPhys, how: u64) -> Result<()> {
    set_state(context, &RemovingPhys { state: how, end_time_s: context.now_s(), ..state }).await
}
