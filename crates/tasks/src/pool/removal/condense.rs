//! Condensing: drops the entries of a removed vdev's mapping that no block uses any more.
//!
//! ```text
//!   mapping    |####|....|##..|....|       . freed since, by its counts and the vdev's obsolete map
//!   next       |####|     ##..|            entries still used at least in part, with their counts
//! ```
//!
//! Idea: the obsolete map is set aside, and a new mapping is written beside the old one, a part per txg, then
//! replaces it. The progress is on disk, in OpenZFS's form: condensing continues after an export or power
//! cut, here or there. Frees meanwhile go into a new obsolete map.
//!
//! Afterwards freed blocks cannot be located. So condensing neither begins nor ends while a checkpoint
//! exists, and does not end during a slice of a scan.
//!
//! Memory: both mappings, and the counts.
//!
//! Source: OpenZFS `vdev_indirect.c` (`vdev_indirect_should_condense`, `spa_condense_indirect_start_sync`,
//! `spa_condense_indirect_thread`, `spa_condense_indirect_complete_sync`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_dataset::Mos;
use cenote_dataset::import::indirect::read_mapping;
use cenote_dataset::spacemaps::{SpaceMapHead, read_space_map};
use cenote_engine::space::map_edit::SpaceMapEdit;
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::indirect::{
    CondensingIndirect, IndirectMapping, IndirectMappingEntry, IndirectMappingPhys,
    VDEV_INDIRECT_MAPPING_SIZE_V0, decode_obsolete_counts,
};
use cenote_format::label::{VdevConfig, VdevKind};
use cenote_format::space_map::MapType;
use cenote_format::units::{BlockId, ObjectId, VdevId};
use cenote_format::words::Phys;
use cenote_object::{Object, Result, ZapEdit, ZapValue};

use super::OBSOLETE_COUNTS;
use super::begin::make_mapping;
use super::copy::append_entries;
use crate::pool::take_tree::take_tree;

/// Entries written per txg: 3 MiB.
const SLICE_ENTRIES: usize = 128 << 10;

/// Continues the condensing in progress, then condenses other mappings worth it.
pub(super) async fn condense(engine: &Engine) -> Result<()> {
    loop {
        let mos = engine.mos().await?;
        if mos.checkpoint().await?.is_some() {
            return Ok(());
        }
        let Some(begun) = in_progress(&mos).await? else {
            let Some(vdev) = worthwhile(engine, &mos).await? else { return Ok(()) };
            engine.run_on_pool(move |context| Box::pin(async move { begin(context, vdev).await })).await?;
            continue;
        };
        let Some(top) = removed(&mos).into_iter().find(|top| VdevId(top.id) == begun.vdev) else {
            return Err(mos.objset().damaged(DMU_POOL_DIRECTORY_OBJECT, "a vdev is condensed that is none"));
        };
        let done = head(&mos, begun.next_mapping).await?;
        let mut left = kept(&mos, &top, begun.prev_obsolete_sm).await?;
        left.retain(|(entry, _)| entry.src_offset_bytes >= done.max_offset_bytes);
        for slice in left.chunks(SLICE_ENTRIES) {
            let (entries, counts): (Vec<_>, Vec<u32>) = slice.iter().copied().unzip();
            let mapping = begun.next_mapping;
            let task = engine.run_on_pool(move |context| {
                Box::pin(async move { append_entries(context, mapping, &entries, &counts).await })
            });
            task.await?;
        }
        let looked_at = mos.uberblock().txg;
        drop(mos);
        let _no_walks = engine.background().no_walks().await;
        if engine.allocator().is_kept_before(looked_at) {
            // Later: a reader of an older state may need them.
            return Ok(());
        }
        engine.run_on_pool(move |context| Box::pin(async move { finish(context, begun).await })).await?;
    }
}

async fn in_progress(mos: &Mos) -> Result<Option<CondensingIndirect>> {
    let found = mos.directory()?.lookup(names::CONDENSING_INDIRECT.as_bytes()).await?;
    let Some(words) = found.map(|value| value.words().collect::<Vec<u64>>()) else { return Ok(None) };
    let begun = CondensingIndirect::from_words(&words);
    begun.map(Some).map_err(|error| mos.objset().format(DMU_POOL_DIRECTORY_OBJECT, error))
}

fn removed(mos: &Mos) -> Vec<VdevConfig> {
    let is_one = |top: &&VdevConfig| top.kind == VdevKind::Indirect && top.indirect_object.0 != 0;
    mos.pool_config().vdevs.iter().filter(is_one).cloned().collect()
}

/// A vdev whose mapping is largely obsolete, or whose obsolete map is long.
async fn worthwhile(engine: &Engine, mos: &Mos) -> Result<Option<VdevId>> {
    let settings = engine.background().settings();
    for top in removed(mos) {
        let Some(zap) = mos.vdev_zap(&top).await? else { continue };
        let Some(map) = zap.get_u64(vdev_zap::INDIRECT_OBSOLETE_SM).await? else { continue };
        let obsolete = SpaceMapHead::of(&mos.objset().object(ObjectId(map)).await?, 0)?;
        let mapping = head(mos, top.indirect_object).await?;
        let mapping_bytes = mapping.num_entries.saturating_mul(VDEV_INDIRECT_MAPPING_SIZE_V0 as u64);
        let percent = obsolete.allocated_bytes().saturating_mul(100) / mapping.bytes_mapped.max(1);
        if mapping.num_entries > 0
            && settings.is_worth_condensing(percent, mapping_bytes, obsolete.length_bytes)
        {
            return Ok(Some(VdevId(top.id)));
        }
    }
    Ok(None)
}

async fn head(mos: &Mos, mapping: ObjectId) -> Result<IndirectMappingPhys> {
    let object = mos.objset().object(mapping).await?;
    let phys = IndirectMappingPhys::decode(object.dnode().bonus(), object.dnode().endian());
    phys.map_err(|error| mos.objset().format(mapping, error))
}

/// The entries still in use, each with its obsolete bytes.
async fn kept(mos: &Mos, top: &VdevConfig, obsolete: ObjectId) -> Result<Vec<(IndirectMappingEntry, u32)>> {
    let entries = read_mapping(mos.objset(), top.indirect_object).await?;
    let mut counts = vec![0_u64; entries.len()];
    let phys = head(mos, top.indirect_object).await?;
    if phys.counts_object.0 != 0 {
        read_counts(&mos.objset().object(phys.counts_object).await?, &mut counts).await?;
    }
    let object = mos.objset().object(obsolete).await?;
    read_space_map(&object, 0, |change| {
        let (start, end) = (change.offset_bytes, change.offset_bytes.saturating_add(change.run_bytes));
        let first = entries.partition_point(|entry| entry.src_end_bytes() <= start);
        let touched = entries[first..].iter().zip(&mut counts[first..]);
        for (entry, count) in touched.take_while(|(entry, _)| entry.src_offset_bytes < end) {
            let bytes = entry.src_end_bytes().min(end) - entry.src_offset_bytes.max(start);
            *count = match change.map_type {
                MapType::Alloc => count.saturating_add(bytes),
                MapType::Free => count.saturating_sub(bytes),
            };
        }
    })
    .await?;
    let all = entries.into_iter().zip(counts);
    Ok(all
        .filter(|(entry, count)| *count < entry.len_bytes())
        .map(|(entry, count)| (entry, count as u32))
        .collect())
}

async fn read_counts(object: &Object, counts: &mut [u64]) -> Result<()> {
    let each = (object.block_bytes() / 4).max(1) as usize;
    for (block, counts) in (0..).zip(counts.chunks_mut(each)) {
        let (bytes, endian) = object.read_block(BlockId(block)).await?;
        counts
            .iter_mut()
            .zip(decode_obsolete_counts(&bytes, endian))
            .for_each(|(to, count)| *to = count.into());
    }
    Ok(())
}

async fn begin(context: &mut SyncContext, vdev: VdevId) -> Result<()> {
    let top = context.config().vdev_tree.children.iter().find(|top| VdevId(top.id) == vdev).cloned();
    let Some(top) = top.filter(|top| top.kind == VdevKind::Indirect) else { return Ok(()) };
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, top.top_zap);
    let obsolete = fields.get(vdev_zap::INDIRECT_OBSOLETE_SM).await?.and_then(|value| value.as_u64());
    let Some(obsolete) = obsolete.map(ObjectId) else { return Ok(()) };
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    if directory.get(names::CONDENSING_INDIRECT).await?.is_some() {
        return Ok(());
    }
    fields.remove(vdev_zap::INDIRECT_OBSOLETE_SM).await?;
    let next_mapping = make_mapping(context, true).await?;
    let begun = CondensingIndirect { vdev, prev_obsolete_sm: obsolete, next_mapping };
    directory.add(names::CONDENSING_INDIRECT, &ZapValue::from_words(&begun.to_words())).await
}

/// Replaces the old mapping with the new one.
async fn finish(context: &mut SyncContext, begun: CondensingIndirect) -> Result<()> {
    let mos = context.mos().await?;
    if in_progress(&mos).await? != Some(begun) || mos.checkpoint().await?.is_some() {
        return Ok(());
    }
    let mut config = context.config().clone();
    let tops = &mut config.vdev_tree.children;
    let Some(top) = tops.iter_mut().find(|top| VdevId(top.id) == begun.vdev) else { return Ok(()) };
    let entries = read_mapping(mos.objset(), begun.next_mapping).await?;
    let mapping = IndirectMapping::new(entries);
    let mapping = mapping.map_err(|error| mos.objset().format(begun.next_mapping, error))?;
    let old = std::mem::replace(&mut top.indirect_object, begun.next_mapping);
    let edit = context.edit();
    let phys = head(&mos, old).await?;
    if phys.counts_object.0 != 0 {
        edit.destroy(phys.counts_object).await?;
        context.use_feature(OBSOLETE_COUNTS, -1).await?;
    }
    edit.destroy(old).await?;
    SpaceMapEdit::new(&edit, begun.prev_obsolete_sm, 0).free().await?;
    context.use_feature(OBSOLETE_COUNTS, -1).await?;
    ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).remove(names::CONDENSING_INDIRECT).await?;
    context.allocator().condense_moved(begun.vdev, mapping.clone());
    context.pool().tree().set_mapping(begun.vdev, Arc::new(mapping));
    take_tree(context, config, BTreeMap::new(), None).await
}
