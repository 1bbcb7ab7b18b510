//! Checkpoints: a state of the whole pool to rewind to.
//!
//! ```text
//!   take      the previous txg's uberblock goes into the object directory; from this txg on
//!   free      older blocks stay allocated, and are noted in a space map of their vdev (pool/alloc)
//!   discard   frees the contents of these maps
//! ```
//!
//! Idea: the checkpoint is the state below an uberblock, so none of its blocks may be overwritten. The
//! current state can only stop using one. The physical birth identifies them (the logical birth of the last
//! pointer may be a clone's, younger than the checkpoint), so they need not be listed.
//!
//! A txg takes a checkpoint first, before it frees anything.
//!
//! Source: OpenZFS `spa_checkpoint.c`, `metaslab.c` (`metaslab_sync`).

use cenote_boxed::boxed;
use cenote_dataset::spacemaps::read_space_map;
use cenote_engine::space::checkpoint::top_zaps;
use cenote_engine::space::map_edit::SpaceMapEdit;
use cenote_engine::space::write::ashift;
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::bytes::Endian;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{ObjectId, Txg, VdevId};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, Result, ZapEdit, ZapValue};

const FEATURE: &str = "zpool_checkpoint";

/// Takes a checkpoint (`zpool checkpoint`).
///
/// # Errors
/// One exists, the feature is disabled, or a vdev is being removed.
#[boxed]
pub async fn take_checkpoint(engine: &Engine) -> Result<()> {
    engine.sync_all().await?;
    engine
        .run_first(SpaceCheck::Normal, |context| {
            context.touch_nothing();
            Box::pin(async move { take_checkpoint_sync(context).await })
        })
        .await
}

/// Discards the checkpoint and frees the space that only it uses (`zpool checkpoint -d`).
///
/// # Errors
/// None exists, or one of its space maps is damaged.
#[boxed]
pub async fn discard_checkpoint(engine: &Engine) -> Result<()> {
    engine
        .run_first(SpaceCheck::ExtraReserved, |context| {
            context.touch_nothing();
            Box::pin(async move { discard_checkpoint_sync(context).await })
        })
        .await
}

async fn take_checkpoint_sync(context: &mut SyncContext) -> Result<()> {
    let refused = |why: &str| Err(DatasetError::unsuitable(context.pool().name(), why));
    match FeatureCounts::of(&context.edit()).count(FEATURE).await? {
        None => return refused("pool must be upgraded to support this (feature@zpool_checkpoint)"),
        Some(0) => {}
        Some(_) => return refused("checkpoint exists"),
    }
    if context.pool().tree().vdevs().tops().any(|vdev| vdev.removing) {
        return refused("device removal in progress");
    }
    if context.pool().tree().vdevs().tops().any(|vdev| vdev.raidz_expanding) {
        return refused("raidz expansion in progress");
    }
    let uberblock = *context.pool().uberblock();
    let uberblock = Uberblock { checkpoint_txg: uberblock.txg, ..uberblock };
    let raw = Uberblock { endian: Endian::NATIVE, ..uberblock }.encode();
    let words: Vec<u64> = raw.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let directory = context.edit();
    let directory = ZapEdit::new(&directory, DMU_POOL_DIRECTORY_OBJECT);
    directory.add(names::ZPOOL_CHECKPOINT, &ZapValue::from_words(&words)).await?;
    context.use_feature(FEATURE, 1).await?;
    context.allocator().keep_for_checkpoint(uberblock.txg);
    context.log_event("spa checkpoint", &format!("checkpointed uberblock txg={}", uberblock.txg)).await
}

async fn discard_checkpoint_sync(context: &mut SyncContext) -> Result<()> {
    let edit = context.edit();
    if FeatureCounts::of(&edit).count(FEATURE).await?.unwrap_or(0) == 0 {
        return Err(DatasetError::NoCheckpoint { pool: context.pool().name().into() });
    }
    // OpenZFS removes the uberblock before it frees the maps: it may be gone already.
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    if directory.get(names::ZPOOL_CHECKPOINT).await?.is_some() {
        directory.remove(names::ZPOOL_CHECKPOINT).await?;
    }
    context.allocator().keep_for_checkpoint(Txg(0));
    for (vdev, top_zap) in top_zaps(context) {
        free_kept(context, vdev, top_zap).await?;
    }
    context.use_feature(FEATURE, -1).await?;
    let details = "finished discarding checkpointed state from the pool";
    context.log_event("spa discard checkpoint", details).await
}

/// Refuses changes of the vdev tree, which would make rewinding impossible.
pub(crate) async fn refuse_checkpoint(context: &SyncContext) -> Result<()> {
    match FeatureCounts::of(&context.edit()).count(FEATURE).await?.unwrap_or(0) {
        0 => Ok(()),
        _ => Err(DatasetError::unsuitable(context.pool().name(), "checkpoint exists")),
    }
}

/// Frees a vdev's blocks that only the checkpoint had.
async fn free_kept(context: &mut SyncContext, vdev: VdevId, top_zap: ObjectId) -> Result<()> {
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, top_zap);
    let map = fields.get(vdev_zap::POOL_CHECKPOINT_SM).await?.and_then(|value| value.as_u64()).map(ObjectId);
    let Some(map) = map else { return Ok(()) };
    let ashift = ashift(context, vdev);
    let mut kept = Vec::new();
    read_space_map(&edit.view().object(map).await?, ashift, |change| {
        kept.push((change.offset_bytes, change.run_bytes));
    })
    .await?;
    for (offset_bytes, run_bytes) in kept {
        let freed = context.allocator().free_range(vdev, offset_bytes, run_bytes, context.txg());
        freed.map_err(|error| edit.damaged(map, &error.to_string()))?;
    }
    SpaceMapEdit::new(&edit, map, ashift).free().await?;
    fields.remove(vdev_zap::POOL_CHECKPOINT_SM).await
}
