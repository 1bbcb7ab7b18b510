//! Removed vdevs: obsolete parts of their mappings.
//!
//! Idea: a block on a removed vdev is freed where its copies are (by pool/alloc). Its range of the mapping
//! goes to a map of obsolete ranges, which tells when condensing the mapping pays off. A removal under way
//! keeps its progress: OpenZFS resumes it, and finds that freed blocks need no copy.
//!
//! Source: OpenZFS `vdev_indirect.c` (`vdev_indirect_sync_obsolete`), `vdev_removal.c`
//! (`free_from_removing_vdev`).

use cenote_dataset::Mos;
use cenote_dataset::import::indirect::read_mapping;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::indirect::IndirectMapping;
use cenote_format::space_map::MapType;
use cenote_format::units::VdevId;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Result, ZapEdit, ZapValue};
use cenote_pool::alloc::{Allocator, MetaslabChanges};

use crate::context::SyncContext;
use crate::space::checkpoint::map_of_vdev;
use crate::space::map_edit::SpaceMapEdit;
use crate::space::maps::changes;

const FEATURE: &str = "obsolete_counts";
/// Obsolete maps count bytes.
const SHIFT: u32 = 0;
/// Index of `sr_copied` in the words of `spa_removing_phys_t`.
const COPIED: usize = 6;

/// Loads the mappings of removed vdevs into the allocator.
pub(crate) async fn follow(mos: &Mos, allocator: &Allocator) -> Result<()> {
    for vdev in mos.pool().tree().vdevs().tops().filter(|vdev| vdev.indirect_object.0 != 0) {
        let object = vdev.indirect_object;
        let mapping = IndirectMapping::new(read_mapping(mos.objset(), object).await?);
        allocator.set_moved(VdevId(vdev.id), mapping.map_err(|error| mos.objset().format(object, error))?);
    }
    Ok(())
}

pub(crate) async fn write_obsolete(context: &mut SyncContext) -> Result<()> {
    for (vdev, ranges) in context.syncing.allocator.take_obsolete() {
        if FeatureCounts::of(&context.edit()).count(FEATURE).await?.is_none() {
            continue;
        }
        let (map, is_new) = map_of_vdev(context, vdev, vdev_zap::INDIRECT_OBSOLETE_SM, SHIFT).await?;
        if is_new {
            context.use_feature(FEATURE, 1).await?;
        }
        let edit = context.edit();
        let map = SpaceMapEdit::new(&edit, map, SHIFT);
        map.append(&changes(MapType::Alloc, &ranges, 0), context.syncing.pass as u16).await?;
    }
    Ok(())
}

/// Counts frees on a vdev under removal as copied.
pub(crate) async fn note_removal(context: &mut SyncContext, change: &MetaslabChanges) -> Result<()> {
    let copied_to = context.syncing.allocator.moved_up_to(change.vdev);
    let is_removing = context.syncing.pool.tree().vdevs().top(change.vdev).is_some_and(|top| top.removing);
    if !is_removing {
        return Ok(());
    }
    let uncopied = change.freed.iter().map(|(start, end)| end.saturating_sub(start.max(copied_to)));
    let uncopied: u64 = uncopied.sum();
    let edit = context.edit();
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    let Some(state) = directory.get(names::REMOVING).await?.filter(|_| uncopied != 0) else {
        return Ok(());
    };
    let mut words: Vec<u64> = state.words().collect();
    if let Some(copied) = words.get_mut(COPIED) {
        *copied = copied.saturating_add(uncopied);
    }
    directory.update(names::REMOVING, &ZapValue::from_words(&words)).await
}
