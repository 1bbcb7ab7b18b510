//! Removes a log vdev: `zpool remove POOL LOG`.
//!
//! Idea: logs are short. New log blocks go elsewhere, existing chains end, and within a few txgs the vdev is
//! empty. It leaves a hole in the numbering, unless last. After an earlier power cut, it is still a log vdev.
//!
//! Source: OpenZFS `vdev_removal.c` (`spa_vdev_remove_log`, `vdev_remove_make_hole_and_free`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::label::{VdevClass, VdevConfig, VdevKind};
use cenote_format::units::{TXG_CONCURRENT_STATES, VdevId};
use cenote_object::{DatasetError, Result};
use cenote_pool::FoundDevice;
use cenote_pool::alloc::TXG_DEFER_SIZE;
use cenote_pool::label::clear_labels;

use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::take_tree::{drop_leaf, forget_top, refuse_removal, take_tree};

/// Removes a log vdev and clears its devices' labels.
///
/// # Errors
/// It is no log, or a log on it cannot end because its replay needs a key.
#[boxed]
pub async fn remove_log(engine: &Engine, vdev: VdevId) -> Result<()> {
    if engine.pool().tree().vdevs().class_of(vdev) != Some(VdevClass::Log) {
        return Err(DatasetError::unsuitable(engine.pool().name(), "it is no log"));
    }
    let remove = move |engine: Engine| async move {
        engine.allocator().set_allocates(vdev, false);
        let removed = empty_and_remove(&engine, vdev).await;
        if removed.is_err() {
            engine.allocator().set_allocates(vdev, true);
        }
        for device in removed? {
            clear_labels(&*device.device).await?;
        }
        Ok(())
    };
    engine.to_end(remove).await
}

async fn empty_and_remove(engine: &Engine, vdev: VdevId) -> Result<Vec<FoundDevice>> {
    engine.logs().end().await?;
    // The chains' blocks are free once their txgs are on disk and a few more have followed.
    for _ in 0..TXG_CONCURRENT_STATES as usize + TXG_DEFER_SIZE {
        if is_empty(engine, vdev) {
            break;
        }
        engine.force_sync().await?;
    }
    engine.run_on_pool(move |context| Box::pin(remove_sync(context, vdev))).await
}

fn is_empty(engine: &Engine, vdev: VdevId) -> bool {
    engine.allocator().vdev_space(vdev).is_none_or(|space| space.allocated_bytes == 0)
}

async fn remove_sync(context: &mut SyncContext, vdev: VdevId) -> Result<Vec<FoundDevice>> {
    refuse_checkpoint(context).await?;
    refuse_removal(context)?;
    let mut config = context.config().clone();
    let refused = |why: &str| DatasetError::unsuitable(&config.name, why);
    if context.allocator().vdev_space(vdev).is_some_and(|space| space.allocated_bytes > 0) {
        return Err(refused("Mount encrypted datasets to replay logs."));
    }
    let top = config.vdev_tree.children.iter().find(|top| VdevId(top.id) == vdev).cloned();
    let top = top.ok_or_else(|| refused("no such device in pool"))?;
    let devices = top.leaves().filter_map(|leaf| context.pool().tree().device(leaf.guid)).collect();
    for leaf in top.leaves() {
        drop_leaf(context, leaf).await?;
    }
    forget_top(context, &top).await?;
    context.allocator().remove_vdev(vdev);
    let tops = &mut config.vdev_tree.children;
    let is_it = |one: &&mut VdevConfig| one.id == top.id;
    tops.iter_mut()
        .filter(is_it)
        .for_each(|one| *one = VdevConfig::new(VdevKind::Hole, top.id, Default::default()));
    while tops.last().is_some_and(|last| last.kind == VdevKind::Hole) {
        tops.pop();
    }
    config.vdev_children = Some(tops.len() as u64);
    config.hole_array =
        tops.iter().filter(|top| top.kind == VdevKind::Hole).map(|top| VdevId(top.id)).collect();
    let name = top.path.clone().unwrap_or_else(|| format!("{}-{}", top.kind, top.id));
    let pool = config.name.clone();
    take_tree(context, config, BTreeMap::new(), None).await?;
    context.flush_space_log().await;
    context.log_event("vdev remove", &format!("{pool} vdev (log) {name}")).await?;
    Ok(devices)
}
