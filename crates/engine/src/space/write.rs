//! Writing space maps: the allocations and frees of each pass.
//!
//! Idea: a metaslab's map is a log to which each pass appends its changes. When it is much longer than its
//! content needs, it is condensed: rewritten from the allocations in memory. With feature `log_spacemap`,
//! changes of all metaslabs first go to one map per txg ([`crate::space::log`]).
//!
//! Source: OpenZFS `metaslab.c` (`metaslab_sync`, `metaslab_condense`), `space_map.c` (`space_map_write`).

use cenote_dataset::spacemaps::SpaceMapHead;
use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, VdevId};
use cenote_object::Result;
use cenote_pool::ranges::Ranges;

use crate::context::SyncContext;
use crate::space::checkpoint::write_kept;
use crate::space::flush::{begin_space_log, flush_metaslabs, log_changes, note_up_to_date};
use crate::space::log::Unflushed;
use crate::space::map_edit::SpaceMapEdit;
use crate::space::maps::{SpaceMaps, changes};
use crate::space::removed::{note_removal, write_obsolete};

/// `zfs_metaslab_sm_blksz_no_log`.
const BLOCK_BYTES: u32 = 16 << 10;
/// `zfs_metaslab_sm_blksz_with_log`: larger, for batched changes.
const BLOCK_BYTES_WITH_LOG: u32 = 128 << 10;
/// `zfs_condense_pct`: condense a map this much longer than needed, in percent...
const CONDENSE_PERCENT: u64 = 200;
/// ...and of more blocks than this (`zfs_metaslab_condense_block_threshold`).
const CONDENSE_BLOCKS: u64 = 4;

pub(crate) async fn write_space_maps(context: &mut SyncContext) -> Result<()> {
    let engine = context.engine.clone();
    let maps = &mut *engine.space_maps.lock().await;
    let is_first = context.syncing.pass == 1;
    let is_logged = begin_space_log(context, &mut maps.log).await?;
    replace_lost(context, maps, is_logged).await?;
    if is_first && is_logged {
        flush_metaslabs(context, maps).await?;
    }
    for change in context.syncing.allocator.take_changes(context.syncing.txg) {
        // The vdev was removed (`SyncContext::forget_vdev`).
        if !maps.arrays.contains_key(&change.vdev) {
            continue;
        }
        let object = space_map(context, maps, change.vdev, change.index).await?;
        if is_logged {
            log_changes(context, &mut maps.log, &change).await?;
        } else {
            let ranges = (&change.allocated, &change.freed);
            append(context, object, change.vdev, change.start_bytes, ranges).await?;
            if is_first && should_condense(context, change.vdev, change.index, object).await? {
                condense(context, object, change.vdev, change.index, change.start_bytes).await?;
            }
        }
        let edit = context.edit();
        let map = SpaceMapEdit::new(&edit, object, ashift(context, change.vdev));
        map.set_free_ranges(&change.free_ranges).await?;
        write_kept(context, change.vdev, &change.checkpointed).await?;
        note_removal(context, &change).await?;
    }
    write_obsolete(context).await
}

/// Gives metaslabs with unreadable maps new ones, all allocated. Call before taking this txg's changes.
async fn replace_lost(context: &mut SyncContext, maps: &mut SpaceMaps, is_logged: bool) -> Result<()> {
    for (vdev, place) in std::mem::take(&mut maps.lost) {
        if let Some(old) = maps.maps.remove(&(vdev, place.index)) {
            let edit = context.edit();
            if let Err(why) = SpaceMapEdit::new(&edit, old, ashift(context, vdev)).free().await {
                let what = format!("the object {} of a space map that can't be read stays: {why}", old.0);
                context.syncing.pool.read_errors().note_aside(what);
            }
        }
        let map = space_map(context, maps, vdev, place.index).await?;
        condense(context, map, vdev, place.index, place.start_bytes).await?;
        if is_logged {
            note_up_to_date(context, &mut maps.log, (vdev, place.index), place.start_bytes).await?;
        }
    }
    Ok(())
}

/// Appends the changes, or condenses the map.
pub(crate) async fn flush_metaslab(
    context: &mut SyncContext,
    maps: &mut SpaceMaps,
    (vdev, index): (VdevId, u64),
    unflushed: &Unflushed,
) -> Result<()> {
    let object = space_map(context, maps, vdev, index).await?;
    if should_condense(context, vdev, index, object).await? {
        return condense(context, object, vdev, index, unflushed.start_bytes).await;
    }
    append(context, object, vdev, unflushed.start_bytes, (&unflushed.allocated, &unflushed.freed)).await
}

async fn append(
    context: &SyncContext,
    map: ObjectId,
    vdev: VdevId,
    start_bytes: u64,
    (allocated, freed): (&Ranges, &Ranges),
) -> Result<()> {
    let (edit, pass) = (context.edit(), context.syncing.pass as u16);
    let map = SpaceMapEdit::new(&edit, map, ashift(context, vdev));
    map.append(&changes(MapType::Alloc, allocated, start_bytes), pass).await?;
    map.append(&changes(MapType::Free, freed, start_bytes), pass).await
}

async fn space_map(
    context: &mut SyncContext,
    maps: &mut SpaceMaps,
    vdev: VdevId,
    index: u64,
) -> Result<ObjectId> {
    if let Some(&map) = maps.maps.get(&(vdev, index)) {
        return Ok(map);
    }
    let array = maps.arrays.get(&vdev).copied();
    let array = array.ok_or_else(|| context.damaged("a vdev has no array of space maps"))?;
    let edit = context.edit();
    let block_bytes = if maps.log.is_kept() { BLOCK_BYTES_WITH_LOG } else { BLOCK_BYTES };
    let block_bytes = block_bytes.max(1 << ashift(context, vdev));
    let map = SpaceMapEdit::create(&edit, block_bytes, ashift(context, vdev)).await?.object();
    edit.write_words(array, index, &[map.0]).await?;
    maps.maps.insert((vdev, index), map);
    Ok(map)
}

async fn condense(
    context: &SyncContext,
    map: ObjectId,
    vdev: VdevId,
    index: u64,
    start_bytes: u64,
) -> Result<()> {
    let Some(allocated) = context.syncing.allocator.allocated(vdev, index) else { return Ok(()) };
    let (edit, ashift) = (context.edit(), ashift(context, vdev));
    let head = SpaceMapHead::of(&edit.view().object(map).await?, ashift)?;
    let map = SpaceMapEdit::new(&edit, map, ashift);
    map.truncate().await?;
    map.append(&changes(MapType::Alloc, &allocated, start_bytes), context.syncing.pass as u16).await?;
    match head.free_ranges {
        Some(free_ranges) => map.set_free_ranges(&free_ranges).await,
        None => Ok(()),
    }
}

async fn should_condense(context: &SyncContext, vdev: VdevId, index: u64, map: ObjectId) -> Result<bool> {
    let object = context.edit().view().object(map).await?;
    let length = SpaceMapHead::of(&object, ashift(context, vdev))?.length_bytes;
    if length <= CONDENSE_BLOCKS * object.block_bytes() {
        return Ok(false);
    }
    let Some(allocated) = context.syncing.allocator.allocated(vdev, index) else {
        return Ok(false);
    };
    // At most two words a range; the few ranges too long for one entry don't matter.
    let needed = allocated.len() as u64 * 16;
    Ok(length >= needed * CONDENSE_PERCENT / 100)
}

/// log2 of a vdev's sector size.
pub fn ashift(context: &SyncContext, vdev: VdevId) -> u32 {
    context.syncing.pool.tree().vdevs().top(vdev).map_or(9, |top| top.ashift)
}
