//! The recorded state of a top-level vdev's last rebuild: `vdev_rebuild_phys_t` in its ZAP.
//!
//! Source: OpenZFS `vdev_rebuild.c` (`vdev_rebuild_initiate_sync`, `vdev_rebuild_reset_sync`,
//! `vdev_rebuild_update_sync`, `vdev_rebuild_complete_sync`, `vdev_rebuild_cancel_sync`), `spa.c`
//! (`spa_vdev_attach`), `libzfs_util.c` (the wording).

use std::collections::BTreeMap;
use std::time::Duration;

use cenote_engine::SyncContext;
use cenote_format::dsl::names::vdev_zap;
use cenote_format::label::{VdevConfig, VdevKind};
use cenote_format::scan::{RebuildPhys, VdevWorkState};
use cenote_format::units::{Guid, ObjectId, Txg, VdevId};
use cenote_format::words::Phys;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, Result, Zap, ZapEdit, ZapValue};

use crate::pool::scan::ScanProgress;
use crate::pool::scan::state as scan;
use crate::pool::take_tree::take_tree;
use crate::pool::tree::{parent_of, top_of};

const DEVICE_REBUILD: &str = "device_rebuild";
/// `VDEV_REBUILD_ACTIVE`, `VDEV_REBUILD_CANCELED`, `VDEV_REBUILD_COMPLETE`.
const ACTIVE: u64 = 1;
const CANCELED: u64 = 2;
const COMPLETE: u64 = 3;

/// A slice's results.
pub(super) struct Noted {
    /// The vdev's state when the slice began.
    pub(super) of: RebuildPhys,
    pub(super) offset_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) took: Duration,
    pub(super) errors: u64,
    pub(super) is_last: bool,
}

/// Refuses to rebuild a device joining the leaf `old`, unless its vdev is a mirror or dRAID and no resilver
/// is running.
pub(crate) async fn refuse_sequential(context: &SyncContext, old: Guid, is_attached: bool) -> Result<()> {
    let config = context.config().clone();
    let refused = |why: &str| Err(DatasetError::unsuitable(&config.name, why));
    if FeatureCounts::of(&context.edit()).count(DEVICE_REBUILD).await?.is_none() {
        let why = "device_rebuild feature must be enabled in order to use sequential reconstruction";
        return refused(why);
    }
    let behind = context.pool().lacking().behind();
    let is_healed = |leaf: &VdevConfig| leaf.rebuild_txg == Txg(0) && behind.contains_key(&leaf.guid);
    if scan::is_resilvering(context).await? || config.vdev_tree.leaves().any(is_healed) {
        return refused("currently resilvering");
    }
    let top = top_of(&config.vdev_tree, old);
    let is_top = parent_of(&config.vdev_tree, old).is_some_and(|parent| parent.kind == VdevKind::Root);
    match top.is_some_and(|top| is_top || matches!(top.kind, VdevKind::Mirror | VdevKind::Draid)) {
        true => Ok(()),
        false if is_attached => refused("can only attach to mirrors and top-level disks"),
        false => refused("only mirror and dRAID vdevs support sequential reconstruction"),
    }
}

/// Refuses operations impossible during a rebuild.
pub(crate) async fn refuse_while_rebuilding(context: &SyncContext, why: &str) -> Result<()> {
    match is_rebuilding(context).await? {
        true => Err(DatasetError::unsuitable(context.pool().name(), why)),
        false => Ok(()),
    }
}

/// Starts rebuilding a device that lacks blocks born in these txgs, first and last. A running rebuild of the
/// vdev restarts.
pub(crate) async fn begin(context: &mut SyncContext, leaf: Guid, (first, last): (Txg, Txg)) -> Result<()> {
    let config = context.config().clone();
    let missing = || DatasetError::unsuitable(&config.name, "no such device in pool");
    let top = top_of(&config.vdev_tree, leaf).ok_or_else(missing)?;
    let is_begun = get(context, top.top_zap).await?.is_some_and(|state| is_active(&state));
    if !is_begun {
        context.use_feature(DEVICE_REBUILD, 1).await?;
        scan::end_scrub(context).await?;
    }
    let space = context.allocator().vdev_space(VdevId(top.id)).unwrap_or_default();
    let state = RebuildPhys {
        state: ACTIVE,
        min_txg: Txg(first.0.saturating_sub(1)),
        max_txg: Txg(last.0.saturating_add(1)),
        start_time_s: context.now_s(),
        estimated_bytes: space.allocated_bytes,
        ..RebuildPhys::zeroed()
    };
    put(context, top.top_zap, &state).await?;
    log(context, top, if is_begun { "reset" } else { "started" }).await
}

/// Records a slice. Returns the vdev's progress, unless the rebuild has changed meanwhile.
pub(super) async fn note(
    context: &mut SyncContext,
    top: &VdevConfig,
    noted: Noted,
) -> Result<Option<ScanProgress>> {
    let Some(mut state) = get(context, top.top_zap).await?.filter(is_active) else { return Ok(None) };
    let Noted { of, offset_bytes, done_bytes, written_bytes, took, errors, is_last } = noted;
    // It may have restarted.
    if (state.start_time_s, state.max_txg) != (of.start_time_s, of.max_txg) {
        return Ok(None);
    }
    state.last_offset_bytes = offset_bytes;
    state.scan_time_ms = state.scan_time_ms.saturating_add(took.as_millis() as u64);
    state.scanned_bytes = state.scanned_bytes.saturating_add(done_bytes);
    state.issued_bytes = state.issued_bytes.saturating_add(done_bytes);
    state.rebuilt_bytes = state.rebuilt_bytes.saturating_add(written_bytes);
    state.estimated_bytes = state.estimated_bytes.max(state.scanned_bytes);
    state.errors = state.errors.saturating_add(errors);
    put(context, top.top_zap, &state).await?;
    let progress = ScanProgress { done_bytes: state.scanned_bytes, total_bytes: state.estimated_bytes };
    if is_last {
        complete(context, top, state).await?;
    }
    Ok(Some(progress))
}

async fn complete(context: &mut SyncContext, top: &VdevConfig, state: RebuildPhys) -> Result<()> {
    end(context, top, state, COMPLETE).await?;
    log(context, top, "complete").await?;
    let mut config = context.config().clone();
    let pool = context.pool().clone();
    let (last, missed) = (Txg(state.max_txg.0.saturating_sub(1)), pool.lacking().all());
    // A returned device has gaps: a resilver fills them.
    let was_away =
        |leaf: Guid| missed.get(&leaf).and_then(|runs| runs.last()).is_some_and(|run| run.1 > last);
    let now = config.vdev_tree.children.iter_mut().find(|one| one.id == top.id);
    let rebuilt: Vec<Guid> = now.iter().flat_map(|top| joining(top)).collect();
    let behind = pool.lacking().behind();
    let rebuilt: Vec<Guid> = rebuilt
        .into_iter()
        .filter(|leaf| state.errors == 0 && behind.contains_key(leaf) && !was_away(*leaf))
        .collect();
    for leaf in &rebuilt {
        pool.tree().caught_up(*leaf, last, context.txg());
        if let Some(leaf) = config.vdev_tree.leaf_mut(*leaf) {
            leaf.rebuild_txg = Txg(0);
        }
    }
    if !rebuilt.is_empty() {
        take_tree(context, config, BTreeMap::new(), None).await?;
    }
    let is_last = !is_rebuilding(context).await? && context.pool().lacking().behind().is_empty();
    if is_last && context.scan_settings().scrubs_after_rebuild() {
        scan::begin_scrub(context).await?;
    }
    Ok(())
}

/// Ends a rebuild without devices that lack data.
pub(super) async fn cancel(context: &mut SyncContext, top: &VdevConfig) -> Result<()> {
    let Some(state) = get(context, top.top_zap).await?.filter(is_active) else { return Ok(()) };
    end(context, top, state, CANCELED).await?;
    log(context, top, "canceled").await
}

async fn end(context: &mut SyncContext, top: &VdevConfig, state: RebuildPhys, how: u64) -> Result<()> {
    context.use_feature(DEVICE_REBUILD, -1).await?;
    put(context, top.top_zap, &RebuildPhys { state: how, end_time_s: context.now_s(), ..state }).await
}

/// A vdev's leaves waiting for a rebuild.
pub(super) fn joining(top: &VdevConfig) -> impl Iterator<Item = Guid> + '_ {
    top.leaves().filter(|leaf| leaf.rebuild_txg != Txg(0)).map(|leaf| leaf.guid)
}

pub(super) fn is_active(state: &RebuildPhys) -> bool {
    VdevWorkState::of_rebuild(state.state) == VdevWorkState::Active
}

async fn is_rebuilding(context: &SyncContext) -> Result<bool> {
    Ok(FeatureCounts::of(&context.edit()).count(DEVICE_REBUILD).await?.is_some_and(|count| count > 0))
}

/// A vdev's recorded rebuild; malformed values are ignored, which is harmless.
pub(super) async fn of(zap: &Zap) -> Result<Option<RebuildPhys>> {
    let value = zap.lookup(vdev_zap::VDEV_REBUILD_PHYS.as_bytes()).await?;
    Ok(value.and_then(|value| RebuildPhys::from_words(&value.words().collect::<Vec<u64>>()).ok()))
}

async fn get(context: &SyncContext, top_zap: ObjectId) -> Result<Option<RebuildPhys>> {
    if top_zap == ObjectId(0) {
        return Ok(None);
    }
    of(&Zap::open_id(&context.edit().view(), top_zap).await?).await
}

async fn put(context: &SyncContext, top_zap: ObjectId, state: &RebuildPhys) -> Result<()> {
    let edit = context.edit();
    let words = ZapValue::from_words(&state.to_words());
    ZapEdit::new(&edit, top_zap).update(vdev_zap::VDEV_REBUILD_PHYS, &words).await
}

async fn log(context: &mut SyncContext, top: &VdevConfig, what: &str) -> Result<()> {
    context.log_event("rebuild", &format!("vdev_id={} vdev_guid={} {what}", top.id, top.guid)).await
}
