//! Writing the space map log: a map per txg, and flushes to the metaslabs' own maps.
//!
//! Source: OpenZFS `spa_log_spacemap.c`, `metaslab.c` (`metaslab_flush`, `metaslab_unflushed_bump`).

use cenote_boxed::boxed;
use cenote_dataset::spacemaps::{LOG_SHIFT, LogMap, SpaceMapHead};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::deadlist::deadlist_key;
use cenote_format::dsl::names::{pool as names, vdev_zap};
use cenote_format::label::VdevConfig;
use cenote_format::space_map::MapType;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{NewObject, Result, ZapEdit};
use cenote_pool::alloc::MetaslabChanges;

use crate::context::SyncContext;
use crate::engine::Engine;
use crate::space::checkpoint::top_zap;
use crate::space::log::{BLOCK_BYTES, MetaslabId, SpaceLog, Unflushed};
use crate::space::map_edit::{SpaceMapChange, SpaceMapEdit};
use crate::space::maps::{SpaceMaps, changes};
use crate::space::write::flush_metaslab;

const FEATURE: &str = "log_spacemap";

impl Engine {
    /// Writes all logged changes to the metaslabs' own maps in one txg (`zpool condense`). Returns whether
    /// the pool keeps such a log.
    ///
    /// # Errors
    /// The txg could not be written.
    #[boxed]
    pub async fn condense_space_log(&self) -> Result<bool> {
        let flush = async |context: &mut SyncContext| {
            if FeatureCounts::of(&context.edit()).count(FEATURE).await?.unwrap_or(0) == 0 {
                return Ok(false);
            }
            context.flush_space_log().await;
            // Space maps are written only in a txg with changes.
            context.log_event("condense", FEATURE).await?;
            Ok(true)
        };
        self.run(move |context| Box::pin(flush(context))).await
    }
}

/// Makes this txg's log map, unless it exists. Returns whether the pool keeps a log.
pub(crate) async fn begin_space_log(context: &mut SyncContext, log: &mut SpaceLog) -> Result<bool> {
    let (txg, edit) = (context.txg(), context.edit());
    if log.maps.contains_key(&txg) {
        return Ok(true);
    }
    let has_zap = |top: &VdevConfig| top.metaslab_array.0 == 0 || top.top_zap.0 != 0;
    let have_zaps = context.engine.config.lock().vdev_tree.children.iter().all(has_zap);
    if !have_zaps || FeatureCounts::of(&edit).count(FEATURE).await?.is_none() {
        return Ok(false);
    }
    let table = match context.find_directory_object(names::LOG_SPACEMAP_ZAP).await? {
        Some(table) => table,
        None => {
            context.use_feature(FEATURE, 1).await?;
            context.make_linked_zap(names::LOG_SPACEMAP_ZAP).await?
        }
    };
    let map = SpaceMapEdit::create(&edit, BLOCK_BYTES, LOG_SHIFT).await?.object();
    ZapEdit::new(&edit, table).add(&*deadlist_key(txg), map.0).await?;
    log.maps.insert(txg, LogMap { object: map, blocks: 0 });
    Ok(true)
}

pub(crate) async fn log_changes(
    context: &mut SyncContext,
    log: &mut SpaceLog,
    change: &MetaslabChanges,
) -> Result<()> {
    let (txg, id) = (context.txg(), (change.vdev, change.index));
    let Some(LogMap { object, blocks }) = log.maps.get_mut(&txg) else { return Ok(()) };
    let edit = context.edit();
    let map = SpaceMapEdit::new(&edit, *object, LOG_SHIFT);
    for (map_type, ranges) in [(MapType::Alloc, &change.allocated), (MapType::Free, &change.freed)] {
        let of_vdev = |one| SpaceMapChange { vdev: Some(change.vdev), ..one };
        let changes: Vec<_> = changes(map_type, ranges, 0).into_iter().map(of_vdev).collect();
        map.append(&changes, context.syncing.pass as u16).await?;
    }
    let head = SpaceMapHead::of(&edit.view().object(map.object()).await?, LOG_SHIFT)?;
    *blocks = head.length_bytes.div_ceil(BLOCK_BYTES.into());
    if log.begins_anew(id, txg, change.start_bytes) {
        set_unflushed(context, id, txg).await?;
    }
    if let Some(metaslab) = log.metaslabs.get_mut(&id) {
        change.allocated.iter().for_each(|(start, end)| metaslab.note(MapType::Alloc, start, end));
        change.freed.iter().for_each(|(start, end)| metaslab.note(MapType::Free, start, end));
    }
    Ok(())
}

/// Flushes the longest waiting metaslabs, and frees obsolete log maps.
pub(crate) async fn flush_metaslabs(context: &mut SyncContext, maps: &mut SpaceMaps) -> Result<()> {
    let txg = context.txg();
    let memory_bytes = context.engine.runtime.memory_bytes();
    let bounds = context.scan_settings().log_bounds();
    let is_all = std::mem::take(&mut maps.log.is_to_be_flushed);
    let mut turns = if is_all { u64::MAX } else { maps.log.turns(&bounds) };
    let mut waiting: Vec<(Txg, MetaslabId)> =
        maps.log.metaslabs.iter().map(|(&id, metaslab)| (metaslab.since, id)).collect();
    waiting.sort_unstable();
    for (_, id) in waiting {
        if turns == 0 && !maps.log.is_too_long(&bounds, memory_bytes) {
            break;
        }
        let Some(metaslab) = maps.log.metaslabs.get_mut(&id) else { continue };
        let flushed = std::mem::replace(metaslab, Unflushed::since(txg, metaslab.start_bytes));
        if !flushed.is_clean() {
            flush_metaslab(context, maps, id, &flushed).await?;
            turns = turns.saturating_sub(1);
        }
        set_unflushed(context, id, txg).await?;
    }
    forget_maps(context, &mut maps.log).await
}

/// Notes that the map is complete up to this txg, whose changes are still to come.
pub(crate) async fn note_up_to_date(
    context: &mut SyncContext,
    log: &mut SpaceLog,
    id: MetaslabId,
    start_bytes: u64,
) -> Result<()> {
    let txg = context.txg();
    log.metaslabs.insert(id, Unflushed::since(txg, start_bytes));
    set_unflushed(context, id, txg).await
}

async fn forget_maps(context: &mut SyncContext, log: &mut SpaceLog) -> Result<()> {
    let needed = log.maps.split_off(&log.oldest().min(context.txg()));
    let gone = std::mem::replace(&mut log.maps, needed);
    if gone.is_empty() {
        return Ok(());
    }
    let edit = context.edit();
    let table = context.directory_object(names::LOG_SPACEMAP_ZAP).await?;
    for (txg, map) in gone {
        SpaceMapEdit::new(&edit, map.object, LOG_SHIFT).free().await?;
        ZapEdit::new(&edit, table).remove(&*deadlist_key(txg)).await?;
    }
    Ok(())
}

async fn set_unflushed(context: &mut SyncContext, (vdev, index): MetaslabId, since: Txg) -> Result<()> {
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, top_zap(context, vdev)?);
    let field = fields.get(vdev_zap::MS_UNFLUSHED_PHYS_TXGS).await?.and_then(|value| value.as_u64());
    let array = match field {
        Some(array) => ObjectId(array),
        None => {
            let new = NewObject::of(ObjectType::UINT64_METADATA).block_bytes(BLOCK_BYTES);
            let array = edit.create(&new).await?;
            fields.add(vdev_zap::MS_UNFLUSHED_PHYS_TXGS, array.0).await?;
            array
        }
    };
    edit.write_words(array, index, &[since.0]).await
}
