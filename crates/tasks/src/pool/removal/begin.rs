//! Begins a removal: checks, and the state on disk.
//!
//! Source: OpenZFS `vdev_removal.c` (`spa_vdev_remove_top_check`, `vdev_passivate`,
//! `vdev_remove_initiate_sync`), `vdev_indirect_mapping.c`, `libzfs_pool.c` (`zpool_vdev_remove`), including
//! the wording.

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_engine::{Engine, SyncContext};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, vdev_zap};
use cenote_format::indirect::{
    IndirectBirthsPhys, IndirectMapping, IndirectMappingPhys, VDEV_INDIRECT_MAPPING_SIZE_V0,
};
use cenote_format::label::{VdevClass, VdevConfig, VdevKind};
use cenote_format::scan::{DSS_SCANNING, ScanState};
use cenote_format::units::{BlockId, ObjectId, SPA_OLD_MAXBLOCKSIZE, VdevId};
use cenote_format::words::{Phys, Words};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, NewObject, Result, ZapEdit};

use super::{DEVICE_REMOVAL, OBSOLETE_COUNTS, set_state, state};
use crate::pool::checkpoint::refuse_checkpoint;
use crate::pool::create::make_vdev_zaps;
use crate::pool::take_tree::take_tree;

const BLOCK_BYTES: u32 = SPA_OLD_MAXBLOCKSIZE as u32;
const BAD_LAYOUT: &str =
    "invalid config; all top-level vdevs must have the same sector size and not be raidz.";
const BUSY: &str = "Pool busy; removal may already be in progress";
const NO_SPACE: &str = "out of space";

/// Begins to remove a disk or mirror with data. [`run_removal`](crate::run_removal) continues it.
///
/// # Errors
/// There is a RAID-Z, or sectors differ; the others lack room; the vdev is incomplete; another removal is in
/// progress; a log needs a key to be replayed.
#[boxed]
pub async fn start_removal(engine: &Engine, vdev: VdevId) -> Result<()> {
    let start = move |engine: Engine| async move {
        // Check before stopping any allocation.
        engine.run_on_pool(move |context| Box::pin(async move { check(context, vdev).await })).await?;
        let allocates = allocates(&engine, vdev);
        engine.allocator().set_allocates(vdev, false);
        let begun = begin(&engine, vdev).await;
        if begun.is_err() {
            engine.allocator().set_allocates(vdev, allocates);
        }
        begun?;
        engine.background().removals.order();
        Ok(())
    };
    engine.to_end(start).await
}

fn allocates(engine: &Engine, vdev: VdevId) -> bool {
    engine.pool().tree().vdevs().top(vdev).is_some_and(|top| !top.non_allocating)
}

async fn begin(engine: &Engine, vdev: VdevId) -> Result<()> {
    // A log's next block may be allocated there, to be written at any time.
    engine.logs().end().await?;
    if !engine.logs().awaiting_replay().await?.is_empty() {
        let why = "Mount encrypted datasets to replay logs.";
        return Err(DatasetError::unsuitable(engine.pool().name(), why));
    }
    // Earlier allocations are in the syncing or the open txg.
    engine.force_sync().await?;
    engine.force_sync().await?;
    engine.run_on_pool(move |context| Box::pin(async move { begin_sync(context, vdev).await })).await
}

async fn check(context: &SyncContext, vdev: VdevId) -> Result<VdevConfig> {
    refuse_checkpoint(context).await?;
    let pool = context.pool();
    let refused = |why: &str| DatasetError::unsuitable(pool.name(), why);
    let vdevs = pool.tree().vdevs();
    let top = vdevs.top(vdev).filter(|top| top.kind.holds_data()).cloned();
    let top = top.ok_or_else(|| refused("operation not supported on this type of pool"))?;
    if FeatureCounts::of(&context.edit()).count(DEVICE_REMOVAL).await?.is_none() {
        return Err(refused("operation not supported on this type of pool"));
    }
    if top.removing {
        return Err(refused("removal for this vdev is already in progress."));
    }
    check_room(context, &top).await?;
    let is_running = ScanState::from(state(context).await?.state) == ScanState::Scanning;
    if is_running || !top.leaves().all(|leaf| pool.tree().vdevs().is_whole(leaf.guid)) {
        return Err(refused(BUSY));
    }
    let holds_data = || vdevs.tops().filter(|top| top.kind.holds_data() && top.class != VdevClass::Log);
    let of_class = |class: VdevClass| holds_data().filter(move |one| one.class == class);
    let is_as_ours = |one: &VdevConfig| one.ashift == top.ashift;
    if !of_class(VdevClass::Normal).chain(of_class(top.class)).all(is_as_ours) {
        return Err(refused(BAD_LAYOUT));
    }
    let is_flat = |one: &VdevConfig| {
        one.parity == 0 && (one.kind != VdevKind::Mirror || one.children.iter().all(VdevConfig::is_leaf))
    };
    let takes_copies = |one: &VdevConfig| one.id != top.id && !one.non_allocating;
    match holds_data().all(is_flat) && of_class(VdevClass::Normal).any(takes_copies) {
        true => Ok(top),
        false => Err(refused(BAD_LAYOUT)),
    }
}

/// Whether the others have room for the vdev's data and the pool's reserved space.
async fn check_room(context: &SyncContext, top: &VdevConfig) -> Result<()> {
    use cenote_pool::alloc::AllocClass;
    let full = || DatasetError::unsuitable(context.pool().name(), NO_SPACE);
    let space = context.allocator().vdev_space(VdevId(top.id)).unwrap_or_default();
    let (needed, available) = match top.class {
        VdevClass::Normal if top.non_allocating => return Ok(()),
        VdevClass::Normal => {
            let root = context.mos().await?.root_dataset().await?;
            (
                context.pool().tree().vdevs().deflate(VdevId(top.id), space.size_bytes),
                root.dir().available().await?,
            )
        }
        _ => (space.allocated_bytes, context.allocator().class_space(AllocClass::Normal).free_bytes()),
    };
    if available < needed { Err(full()) } else { Ok(()) }
}

async fn begin_sync(context: &mut SyncContext, vdev: VdevId) -> Result<()> {
    check(context, vdev).await?;
    context.begin_writing().await?;
    make_vdev_zaps(context).await?;
    write_directory_anew(context).await?;
    let counts = FeatureCounts::of(&context.edit()).count(OBSOLETE_COUNTS).await?.is_some();
    context.use_feature(DEVICE_REMOVAL, 1).await?;
    let mapping = make_mapping(context, counts).await?;
    let births = IndirectBirthsPhys::zeroed().encode(Endian::NATIVE);
    let births = NewObject::of(ObjectType::UINT64_METADATA)
        .block_bytes(BLOCK_BYTES)
        .bonus(ObjectType::UINT64_METADATA, births);
    let births = context.edit().create(&births).await?;
    let mut config = context.config().clone();
    let pool = config.name.clone();
    let missing = || DatasetError::unsuitable(&pool, "no such device in pool");
    let top = config.vdev_tree.children.iter_mut().find(|top| VdevId(top.id) == vdev).ok_or_else(missing)?;
    (top.removing, top.non_allocating) = (true, true);
    (top.indirect_object, top.indirect_births) = (mapping, births);
    let top = top.clone();
    if counts {
        let fields = context.edit();
        ZapEdit::new(&fields, top.top_zap).add(vdev_zap::OBSOLETE_COUNTS_ARE_PRECISE, 1).await?;
        context.use_feature(OBSOLETE_COUNTS, 1).await?;
    }
    take_tree(context, config, BTreeMap::new(), None).await?;
    context.allocator().set_moved(vdev, IndirectMapping::default());
    let mut state = state(context).await?;
    state.state = DSS_SCANNING;
    state.removing_vdev = vdev;
    (state.start_time_s, state.end_time_s) = (context.now_s(), 0);
    (state.to_copy_bytes, state.copied_bytes) =
        (context.allocator().in_use(vdev, 0, u64::MAX).total_bytes(), 0);
    set_state(context, &state).await?;
    let path = top.path.as_deref().unwrap_or("-");
    context.log_event("vdev remove started", &format!("{pool} vdev {vdev} {path}")).await
}

/// Makes an empty mapping, with obsolete counts if the pool has them.
pub(super) async fn make_mapping(context: &mut SyncContext, has_counts: bool) -> Result<ObjectId> {
    let edit = context.edit();
    let mut phys = IndirectMappingPhys::zeroed();
    let mut bonus_bytes = VDEV_INDIRECT_MAPPING_SIZE_V0;
    if has_counts {
        let counts = NewObject::of(ObjectType::UINT32_METADATA).block_bytes(BLOCK_BYTES);
        phys.counts_object = edit.create(&counts).await?;
        bonus_bytes = IndirectMappingPhys::COUNT * 8;
        context.use_feature(OBSOLETE_COUNTS, 1).await?;
    }
    let mut bonus = phys.encode(Endian::NATIVE);
    bonus.truncate(bonus_bytes);
    let mapping = NewObject::of(ObjectType::UINT64_METADATA)
        .block_bytes(BLOCK_BYTES)
        .bonus(ObjectType::UINT64_METADATA, bonus);
    edit.create(&mapping).await
}

/// An import reads the object directory before any mapping, so it must not lie on a removed vdev. Nor may the
/// configuration, which this txg rewrites anyway.
async fn write_directory_anew(context: &SyncContext) -> Result<()> {
    let edit = context.edit();
    let directory = edit.view().object(DMU_POOL_DIRECTORY_OBJECT).await?;
    for block in 0..=directory.dnode().max_block_id.0 {
        let (bytes, endian) = directory.read_block(BlockId(block)).await?;
        if endian == Endian::NATIVE {
            edit.write_block(DMU_POOL_DIRECTORY_OBJECT, BlockId(block), bytes).await?;
        }
    }
    Ok(())
}
