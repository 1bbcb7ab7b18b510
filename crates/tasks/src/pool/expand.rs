//! Expands vdevs onto grown devices: `zpool online -e`, and `autoexpand=on`.
//!
//! ```text
//!   device   | label 0 1 |  metaslabs  ...            | label 2 3 |
//!   grown    | label 0 1 |  metaslabs  ...            | old bytes | new metaslabs ... | label 2 3 |
//! ```
//!
//! Idea: a vdev's configured size is the smallest device's space between the labels. Expansion changes the
//! tree once, to a larger size: metaslabs keep size and place, and new ones follow. Labels are written at the
//! devices' new ends. New metaslabs allocate once the txg with the new size is on disk.
//!
//! Source: OpenZFS `vdev.c` (`vdev_open`, `vdev_expand`, `vdev_online`), `spa.c` (`spa_async_autoexpand`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_dataset::spacemaps::empty_metaslabs;
use cenote_engine::{Engine, SyncContext};
use cenote_format::label::{LABEL_BYTES, VDEV_LABELS_BYTES, VdevConfig, VdevKind};
use cenote_format::units::{Guid, ObjectId, VdevId};
use cenote_object::Result;
use cenote_pool::create::asize_of;
use cenote_pool::{Pool, VdevState};

use crate::pool::take_tree::take_tree;

/// Expands the vdev of one leaf, or all vdevs, to their devices' current sizes. Writes nothing if none has
/// grown.
///
/// # Errors
/// The txg could not be written.
#[boxed]
pub async fn expand(engine: &Engine, only: Option<Guid>) -> Result<()> {
    engine.pool().tree().look_at_sizes().await;
    if grown(&engine.pool(), only).is_empty() {
        return Ok(());
    }
    let expand = move |engine: Engine| async move {
        let task =
            engine.run_on_pool(move |context| Box::pin(async move { expand_sync(context, only).await }));
        for top in task.await? {
            engine.allocator().grow_vdev(VdevId(top.id), empty_metaslabs(&top));
        }
        Ok(())
    };
    engine.to_end(expand).await
}

/// Expands every vdev if `autoexpand` is on.
///
/// # Errors
/// Properties can't be read; the txg could not be written.
#[boxed]
pub(crate) async fn autoexpand(engine: &Engine) -> Result<()> {
    let properties = engine.mos().await?.pool_properties().await?;
    let is_on = properties.iter().any(|entry| entry.name == "autoexpand" && entry.value.as_u64() == Some(1));
    if is_on { expand(engine, None).await } else { Ok(()) }
}

/// Returns the grown vdevs.
async fn expand_sync(context: &mut SyncContext, only: Option<Guid>) -> Result<Vec<VdevConfig>> {
    let (grown, mut config) = (grown(context.pool(), only), context.config().clone());
    for top in &grown {
        let known = config.vdev_tree.children.iter_mut().filter(|known| known.id == top.id);
        known.for_each(|known| known.asize_bytes = top.asize_bytes);
    }
    if !grown.is_empty() {
        take_tree(context, config, BTreeMap::new(), None).await?;
    }
    Ok(grown)
}

/// Vdevs that would gain at least one metaslab, with their new sizes. All of a vdev's devices must be in use:
/// a missing one may be smaller.
fn grown(pool: &Pool, only: Option<Guid>) -> Vec<VdevConfig> {
    let health = pool.status();
    let is_meant = |top: &&VdevConfig| only.is_none_or(|only| top.leaves().any(|leaf| leaf.guid == only));
    let is_whole = |top: &&VdevConfig| {
        let status = health.root.children.iter().find(|status| status.guid == top.guid);
        let has_metaslabs = top.metaslab_array != ObjectId(0) && top.metaslab_shift < u64::BITS;
        let is_moving = top.removing || top.raidz_expanding;
        status.is_some_and(|status| status.state == VdevState::Online) && has_metaslabs && !is_moving
    };
    let config = pool.tree().config();
    let tops = config.vdevs.iter().filter(is_meant).filter(is_whole);
    let grown = tops.filter_map(|top| {
        let asize_bytes = asize_of(top, smallest(pool, top)?);
        let gains = asize_bytes >> top.metaslab_shift > top.asize_bytes >> top.metaslab_shift;
        gains.then(|| VdevConfig { asize_bytes, ..top.clone() })
    });
    grown.collect()
}

/// The smallest device's space between its labels; `None` if one is missing.
fn smallest(pool: &Pool, top: &VdevConfig) -> Option<u64> {
    let leaves = top.leaves().filter(|leaf| leaf.kind != VdevKind::DistributedSpare);
    let room = leaves.map(|leaf| {
        let size_bytes = pool.tree().device(leaf.guid)?.device.size_bytes();
        (size_bytes / LABEL_BYTES * LABEL_BYTES).checked_sub(VDEV_LABELS_BYTES)
    });
    room.min().flatten()
}
