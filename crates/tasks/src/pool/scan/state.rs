//! The recorded state of the last scan: start, progress, pause, end.
//!
//! Idea: the state is OpenZFS's `dsl_scan_phys_t`, plus a queue of datasets. A slice records changes rather
//! than a new state, since tasks may change it meanwhile: a queued dataset may be destroyed, or snapshotted.
//!
//! Source: OpenZFS `dsl_scan.c` (`dsl_scan_setup_sync`, `dsl_scan_done`, `dsl_scan_ds_destroyed`,
//! `dsl_scan_ds_snapshotted`), `vdev.c` (`vdev_dtl_should_excise`).

use std::collections::{BTreeMap, BTreeSet};

use cenote_dataset::Mos;
use cenote_dataset::mos::scan_in;
use cenote_dataset::traverse::Position;
use cenote_engine::SyncContext;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::errlog::BlockBookmark;
use cenote_format::label::VdevConfig;
use cenote_format::scan::{
    DSF_SCRUB_PAUSED, DSF_SCRUB_THOROUGH, DSF_VISIT_DS_AGAIN, DSS_CANCELED, DSS_FINISHED, DSS_SCANNING,
    POOL_SCAN_RESILVER, POOL_SCAN_SCRUB, ScanPhys,
};
use cenote_format::units::{DatasetId, Guid, ObjectId, Txg, VdevId};
use cenote_format::words::Phys;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, NewZap, Result, Zap, ZapEdit, ZapValue};

use super::error_scrub;
use super::plan::{NOTHING, Waiting, bookmark, position};
use super::walk::Slice;
use crate::pool::errors::rotate;
use crate::pool::rebuild::refuse_while_rebuilding;
use crate::pool::take_tree::take_tree;

const RESILVER_DEFER: &str = "resilver_defer";

/// A slice's changes.
pub(super) struct Noted {
    /// Identify the scan.
    func: u64,
    start_time_s: u64,
    /// The dataset it started in.
    before: DatasetId,
    bookmark: BlockBookmark,
    txgs: (Txg, Txg),
    again_is_done: bool,
    taken: BTreeSet<DatasetId>,
    added: Vec<Waiting>,
    /// The dataset it ended in, if another; and the txg of its tree.
    moved_to: Option<Waiting>,
    txg: Txg,
    examined_bytes: u64,
    processed_bytes: u64,
    errors: u64,
}

impl Noted {
    pub(super) async fn of(scan: &ScanPhys, slice: &Slice<'_>) -> Result<Noted> {
        let (plan, before) = (&slice.plan, scan.bookmark.dataset);
        Ok(Noted {
            func: scan.func,
            start_time_s: scan.start_time_s,
            before,
            bookmark: plan.bookmark(),
            txgs: plan.current.map_or((scan.cur_min_txg, scan.cur_max_txg), |current| current.txgs),
            again_is_done: plan.current.is_none_or(|current| current.dataset != before),
            taken: plan.taken.clone(),
            added: plan.added.values().copied().collect(),
            moved_to: plan.current_dataset(&slice.mos).await?.filter(|now| now.dataset != before),
            txg: slice.mos.uberblock().txg,
            examined_bytes: slice.examined_bytes,
            processed_bytes: slice.healed.written_bytes,
            errors: slice.lost + slice.nonsense,
        })
    }
}

/// The queued datasets.
pub(super) async fn queue_of(mos: &Mos, scan: &ScanPhys) -> Result<BTreeMap<DatasetId, Txg>> {
    if scan.queue == ObjectId(0) {
        return Ok(BTreeMap::new());
    }
    let entries = Zap::open_id(mos.objset(), scan.queue).await?.to_vec().await?;
    let number = |name: &[u8]| u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok();
    let entry =
        |entry: &cenote_object::ZapEntry| Some((DatasetId(number(&entry.name)?), Txg(entry.value.as_u64()?)));
    let queue: Option<BTreeMap<_, _>> = entries.iter().map(entry).collect();
    // Skipping a dataset would count it as scanned.
    queue.ok_or_else(|| mos.objset().damaged(scan.queue, "names no dataset that waits to be scanned"))
}

/// Starts a resilver of blocks born in these txgs, first and last; ends a scrub.
pub(crate) async fn begin_resilver(context: &mut SyncContext, (first, last): (Txg, Txg)) -> Result<()> {
    let txgs = (Txg(first.0.saturating_sub(1)), Txg(last.0.saturating_add(1)));
    if let Some(scan) = scan(context).await?.filter(goes_on) {
        let is_begun = scan.is_resilver() && (scan.min_txg, scan.max_txg) == txgs;
        if is_begun && is_at_the_beginning(&scan) {
            return Ok(());
        }
        let what = format!("errors={}", scan.errors);
        context.log_event("scan aborted, restarting", &what).await?;
        rotate(context).await?;
    }
    undefer(context).await?;
    begin(context, POOL_SCAN_RESILVER, txgs, 0).await
}

/// Whether a resilver is too far along to restart for a new device.
pub(crate) async fn defers(context: &SyncContext) -> Result<bool> {
    let is_enabled = FeatureCounts::of(&context.edit()).count(RESILVER_DEFER).await?.is_some();
    let running = scan(context).await?.filter(|scan| goes_on(scan) && scan.is_resilver());
    let percent = context.scan_settings().resilver_defer_percent();
    let is_far = |scan: ScanPhys| {
        scan.examined_bytes >= scan.to_examine_bytes.saturating_sub(scan.skipped_bytes) / 100 * percent
    };
    Ok(is_enabled && running.is_some_and(is_far))
}

/// Activates the feature for a leaf that waits for the next resilver.
pub(crate) async fn note_deferred(context: &mut SyncContext) -> Result<()> {
    match FeatureCounts::of(&context.edit()).count(RESILVER_DEFER).await? {
        Some(0) => context.use_feature(RESILVER_DEFER, 1).await,
        _ => Ok(()),
    }
}

/// Includes deferred leaves in the next resilver. Returns whether there were any.
async fn undefer(context: &mut SyncContext) -> Result<bool> {
    if FeatureCounts::of(&context.edit()).count(RESILVER_DEFER).await?.unwrap_or(0) == 0 {
        return Ok(false);
    }
    context.use_feature(RESILVER_DEFER, -1).await?;
    let mut config = context.config().clone();
    let waiting: Vec<Guid> = deferred(&config.vdev_tree).collect();
    for leaf in &waiting {
        config.vdev_tree.leaf_mut(*leaf).into_iter().for_each(|leaf| leaf.resilver_defer = false);
    }
    if !waiting.is_empty() {
        take_tree(context, config, BTreeMap::new(), None).await?;
    }
    Ok(!waiting.is_empty())
}

/// Leaves waiting for the next resilver.
pub(super) fn deferred(root: &VdevConfig) -> impl Iterator<Item = Guid> + '_ {
    root.leaves().filter(|leaf| leaf.resilver_defer).map(|leaf| leaf.guid)
}

/// How far a scrub looks into blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum ScrubDepth {
    /// Checksums and parity.
    #[default]
    Normal,
    /// It also decrypts, where keys are loaded, and decompresses.
    Thorough,
}

/// Starts a full scrub, unless a scan is in progress.
pub(crate) async fn begin_scrub(context: &mut SyncContext) -> Result<()> {
    match scan(context).await?.filter(goes_on) {
        Some(_) => Ok(()),
        None => begin(context, POOL_SCAN_SCRUB, (Txg(0), context.txg()), 0).await,
    }
}

/// Cancels a running or paused scrub.
pub(crate) async fn end_scrub(context: &mut SyncContext) -> Result<()> {
    match scan(context).await?.filter(|scan| goes_on(scan) && scan.is_scrub()) {
        Some(_) => cancel_scrub(context).await,
        None => Ok(()),
    }
}

/// Whether a resilver is in progress.
pub(crate) async fn is_resilvering(context: &SyncContext) -> Result<bool> {
    Ok(scan(context).await?.is_some_and(|scan| goes_on(&scan) && scan.is_resilver()))
}

/// Starts a scrub, or resumes one, which stays as thorough as it began.
pub(super) async fn start_scrub(
    context: &mut SyncContext,
    after: Txg,
    upto: Option<Txg>,
    depth: ScrubDepth,
) -> Result<()> {
    match scan(context).await?.filter(goes_on) {
        Some(before) if before.is_paused() && depth == ScrubDepth::Thorough && !before.is_thorough() => {
            let why = "the paused scrub is no thorough one; use 'zpool scrub' to resume it";
            return Err(DatasetError::unsuitable(context.pool().name(), why));
        }
        Some(before) if before.is_paused() => {
            return put(context, &ScanPhys { flags: before.flags & !DSF_SCRUB_PAUSED, ..before }).await;
        }
        Some(before) => return Err(refused_beside(context, &before)),
        None => error_scrub::refuse_beside(context).await?,
    }
    refuse_while_rebuilding(context, "currently resilvering").await?;
    let upto = upto.map_or(context.txg(), |upto| upto.min(context.txg()));
    let flags = if depth == ScrubDepth::Thorough { DSF_SCRUB_THOROUGH } else { 0 };
    begin(context, POOL_SCAN_SCRUB, (after, upto), flags).await
}

/// Starts or resumes an error scrub. Returns whether there are errors.
pub(super) async fn start_error_scrub(context: &mut SyncContext) -> Result<bool> {
    match scan(context).await?.filter(goes_on) {
        Some(before) => Err(refused_beside(context, &before)),
        None => error_scrub::start(context).await,
    }
}

fn refused_beside(context: &SyncContext, scan: &ScanPhys) -> DatasetError {
    let why = match () {
        () if scan.is_resilver() => "currently resilvering",
        () if scan.is_paused() => {
            "scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub"
        }
        () => "currently scrubbing; use 'zpool scrub -s' to cancel scrub",
    };
    DatasetError::unsuitable(context.pool().name(), why)
}

/// Pauses a scrub.
pub(super) async fn pause_scrub(context: &mut SyncContext) -> Result<()> {
    if error_scrub::pause(context).await? {
        return Ok(());
    }
    let scan = running_scrub(context).await?;
    if scan.is_paused() {
        return Err(DatasetError::unsuitable(context.pool().name(), "scrub is paused"));
    }
    put(context, &ScanPhys { flags: scan.flags | DSF_SCRUB_PAUSED, ..scan }).await?;
    context.log_event("scan paused", "func=1").await
}

/// Cancels a scrub.
pub(super) async fn cancel_scrub(context: &mut SyncContext) -> Result<()> {
    if error_scrub::cancel(context).await? {
        return Ok(());
    }
    let scan = running_scrub(context).await?;
    context.log_event("scan cancelled", &format!("errors={}", scan.errors)).await?;
    end(context, scan, DSS_CANCELED).await
}

async fn running_scrub(context: &SyncContext) -> Result<ScanPhys> {
    let scan = scan(context).await?.filter(|scan| scan.is_running() && scan.is_scrub());
    scan.ok_or_else(|| DatasetError::unsuitable(context.pool().name(), "there is no active scrub"))
}

/// Records a slice. `complete` marks the last one: leaves with the txg up to which they are complete.
pub(super) async fn note(
    context: &mut SyncContext,
    noted: Noted,
    complete: Option<BTreeMap<Guid, Txg>>,
) -> Result<()> {
    let Some(mut scan) = scan(context).await?.filter(goes_on) else { return Ok(()) };
    if (scan.func, scan.start_time_s) != (noted.func, noted.start_time_s) {
        return Ok(());
    }
    scan.examined_bytes = scan.examined_bytes.saturating_add(noted.examined_bytes);
    scan.processed_bytes = scan.processed_bytes.saturating_add(noted.processed_bytes);
    scan.errors = scan.errors.saturating_add(noted.errors);
    match complete {
        Some(complete) => note_end(context, scan, complete).await,
        None => note_place(context, scan, noted).await,
    }
}

async fn note_place(context: &mut SyncContext, mut scan: ScanPhys, noted: Noted) -> Result<()> {
    let Noted { mut added, moved_to, txg, .. } = noted;
    let is_as_before = scan.bookmark.dataset == noted.before;
    if is_as_before {
        scan.bookmark = noted.bookmark;
        (scan.cur_min_txg, scan.cur_max_txg) = noted.txgs;
        if noted.again_is_done {
            scan.flags &= !DSF_VISIT_DS_AGAIN;
        }
    }
    // Tasks have already applied their changes to the dataset recorded before.
    if let Some(now) = moved_to {
        match now_instead(context, &now, txg).await? {
            // Another one comes first: this one waits, to start over.
            _ if !is_as_before => added.push(now),
            Some(same) if same == now.dataset => {}
            Some(taken) if !now.is_snapshot => scan.bookmark.dataset = taken,
            _ => {
                scan.bookmark = bookmark(NOTHING, Position::default());
                added.push(now);
            }
        }
    }
    let edit = context.edit();
    let queue = ZapEdit::new(&edit, scan.queue);
    for dataset in &noted.taken {
        if queue.get(&key(*dataset)).await?.is_some() {
            queue.remove(&key(*dataset)).await?;
        }
    }
    for waiting in added {
        if let Some(dataset) = now_instead(context, &waiting, txg).await? {
            queue.update(&key(dataset), waiting.born_after.0).await?;
        }
    }
    put(context, &scan).await
}

async fn note_end(context: &mut SyncContext, scan: ScanPhys, complete: BTreeMap<Guid, Txg>) -> Result<()> {
    let (func, min, max, errors) = (scan.func, scan.min_txg, scan.max_txg, scan.errors);
    let what = format!("func={func} mintxg={min} maxtxg={max} errors={errors}");
    context.log_event("scan done", &what).await?;
    end(context, scan, DSS_FINISHED).await?;
    if scan.is_scrub() {
        let edit = context.edit();
        let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
        directory.update(names::LAST_SCRUBBED_TXG, max.0).await?;
    }
    let mut config = context.config().clone();
    let were_marked = forget_marks(&mut config.vdev_tree, &complete);
    for (leaf, txg) in complete {
        context.pool().tree().caught_up(leaf, txg, context.txg());
    }
    if were_marked {
        take_tree(context, config, BTreeMap::new(), None).await?;
    }
    if scan.is_resilver() && undefer(context).await? {
        context.log_event("starting deferred resilver", &format!("errors={errors}")).await?;
    }
    Ok(())
}

/// A new snapshot takes over its head's place in the scan.
pub(crate) async fn snapshotted(context: &mut SyncContext, head: ObjectId, snapshot: ObjectId) -> Result<()> {
    let (head, snapshot) = (DatasetId(head.0), DatasetId(snapshot.0));
    let Some(mut scan) = scan(context).await?.filter(goes_on) else { return Ok(()) };
    wait_instead(context, &scan, head, Some(snapshot)).await?;
    if scan.bookmark.dataset == head {
        scan.bookmark.dataset = snapshot;
        put(context, &scan).await?;
    }
    Ok(())
}

/// Swapped heads swap their places in the scan.
pub(crate) async fn swapped(context: &mut SyncContext, one: ObjectId, other: ObjectId) -> Result<()> {
    let (one, other) = (DatasetId(one.0), DatasetId(other.0));
    let Some(mut scan) = scan(context).await?.filter(goes_on) else { return Ok(()) };
    // Both follow the same snapshot: wanted blocks of either may be in the other's tree now.
    for (now, instead) in [(one, other), (other, one)] {
        if scan.bookmark.dataset == now {
            let edit = context.edit();
            ZapEdit::new(&edit, scan.queue).update(&key(now), scan.cur_min_txg.0).await?;
            ZapEdit::new(&edit, scan.queue).update(&key(instead), scan.cur_min_txg.0).await?;
            scan.bookmark = bookmark(NOTHING, Position::default());
            scan.flags &= !DSF_VISIT_DS_AGAIN;
            put(context, &scan).await?;
            return Ok(());
        }
    }
    for (now, instead) in [(one, other), (other, one)] {
        let edit = context.edit();
        let queue = ZapEdit::new(&edit, scan.queue);
        if let Some(from) = queue.get(&key(now)).await?.and_then(|value| value.as_u64()) {
            queue.update(&key(instead), from).await?;
        }
    }
    Ok(())
}

/// Handles a destroyed dataset. Blocks shared with a destroyed snapshot belong to the next version, which is
/// scanned again.
pub(crate) async fn destroyed(context: &mut SyncContext, id: ObjectId, next: ObjectId) -> Result<()> {
    let (id, next) = (DatasetId(id.0), (next.0 != 0).then_some(DatasetId(next.0)));
    let Some(mut scan) = scan(context).await?.filter(goes_on) else { return Ok(()) };
    wait_instead(context, &scan, id, next).await?;
    if scan.bookmark.dataset == id {
        if let Some(next) = next {
            let edit = context.edit();
            ZapEdit::new(&edit, scan.queue).update(&key(next), scan.cur_min_txg.0).await?;
        }
        scan.bookmark = bookmark(NOTHING, Position::default());
        scan.flags &= !DSF_VISIT_DS_AGAIN;
        put(context, &scan).await?;
    }
    Ok(())
}

/// The version to scan instead of one found in the tree of `txg`: the oldest with its blocks. Since then a
/// head may have new snapshots, and a snapshot or its file system may be gone.
async fn now_instead(context: &SyncContext, found: &Waiting, txg: Txg) -> Result<Option<DatasetId>> {
    let is_there = match context.mos().await?.dataset_phys(found.dataset).await {
        // The number may be reused.
        Ok(phys) => phys.creation_txg == found.creation_txg,
        Err(DatasetError::NoObject { .. } | DatasetError::Format { .. }) => false,
        Err(error) => return Err(error),
    };
    let (mut id, since) = match (is_there, found.is_snapshot) {
        (true, true) => return Ok(Some(found.dataset)),
        (true, false) => (ObjectId(found.dataset.0), txg),
        (false, false) => return Ok(None),
        (false, true) => match context.dir_phys(found.dir).await {
            Ok(dir) => (dir.head_dataset, found.born_after),
            // The whole file system is gone.
            Err(DatasetError::NoObject { .. } | DatasetError::Format { .. }) => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    loop {
        let phys = context.dataset_phys(id).await?;
        if phys.prev_snapshot_txg <= since || phys.prev_snapshot.0 == 0 {
            return Ok(Some(DatasetId(id.0)));
        }
        id = phys.prev_snapshot;
    }
}

/// Replaces a dataset in the queue.
async fn wait_instead(
    context: &SyncContext,
    scan: &ScanPhys,
    old: DatasetId,
    new: Option<DatasetId>,
) -> Result<()> {
    let edit = context.edit();
    let queue = ZapEdit::new(&edit, scan.queue);
    let Some(born_after) = queue.get(&key(old)).await? else { return Ok(()) };
    queue.remove(&key(old)).await?;
    match new {
        Some(new) => queue.update(&key(new), born_after).await,
        None => Ok(()),
    }
}

/// A dataset's name in the queue (`zap_add_int_key`).
fn key(dataset: DatasetId) -> String {
    format!("{:x}", dataset.0)
}

async fn begin(
    context: &mut SyncContext,
    func: u64,
    (min_txg, max_txg): (Txg, Txg),
    flags: u64,
) -> Result<()> {
    error_scrub::give_way(context).await?;
    let before = scan(context).await?;
    let edit = context.edit();
    if let Some(queue) = before.map(|scan| scan.queue).filter(|queue| *queue != ObjectId(0)) {
        edit.destroy(queue).await?;
    }
    let vdevs = context.pool().tree().vdevs();
    let allocator = context.allocator();
    let spaces = vdevs.tops().filter_map(|top| allocator.vdev_space(VdevId(top.id)));
    let mut scan = ScanPhys {
        func,
        state: DSS_SCANNING,
        queue: NewZap::of(ObjectType::SCAN_QUEUE).create(&edit).await?,
        min_txg,
        max_txg,
        cur_min_txg: min_txg,
        cur_max_txg: max_txg,
        start_time_s: context.now_s(),
        flags,
        to_examine_bytes: spaces.map(|space| space.allocated_bytes).sum(),
        ..empty(context)?
    };
    // Deduplicated blocks are found in the tree.
    scan.ddt_bookmark.class = scan.ddt_class_max + 1;
    put(context, &scan).await?;
    context.log_event("scan setup", &format!("func={func} mintxg={min_txg} maxtxg={max_txg}")).await
}

async fn end(context: &mut SyncContext, scan: ScanPhys, state: u64) -> Result<()> {
    rotate(context).await?;
    if scan.queue != ObjectId(0) {
        context.edit().destroy(scan.queue).await?;
    }
    let flags = scan.flags & !DSF_SCRUB_PAUSED;
    put(context, &ScanPhys { state, queue: ObjectId(0), end_time_s: context.now_s(), flags, ..scan }).await
}

/// Clears OpenZFS's marks of leaves being resilvered; returns whether there were any.
fn forget_marks(vdev: &mut VdevConfig, complete: &BTreeMap<Guid, Txg>) -> bool {
    let is_marked = vdev.resilver_txg != Txg(0) || vdev.rebuild_txg != Txg(0);
    let mut was = is_marked && complete.contains_key(&vdev.guid);
    if was {
        (vdev.resilver_txg, vdev.rebuild_txg) = (Txg(0), Txg(0));
    }
    for child in &mut vdev.children {
        was |= forget_marks(child, complete);
    }
    was
}

/// Nothing has been scanned yet.
pub(super) fn is_at_the_beginning(scan: &ScanPhys) -> bool {
    scan.bookmark.dataset.0 == 0 && position(&scan.bookmark) == Position::default()
}

/// A scrub or resilver is in progress, or paused.
pub(super) fn goes_on(scan: &ScanPhys) -> bool {
    scan.is_running() && (scan.is_scrub() || scan.is_resilver())
}

async fn scan(context: &SyncContext) -> Result<Option<ScanPhys>> {
    scan_in(&Zap::open_id(&context.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?).await
}

async fn put(context: &SyncContext, scan: &ScanPhys) -> Result<()> {
    let edit = context.edit();
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    directory.update(names::SCAN, &ZapValue::from_words(&scan.to_words())).await
}

fn empty(context: &SyncContext) -> Result<ScanPhys> {
    ScanPhys::from_words(&[0; 24]).map_err(|_| context.damaged("can't note a scan"))
}
