//! What the pool says of its last resilver, or of the one in progress.
//!
//! Idea: a resilver that runs is noted as OpenZFS notes one that has just begun: the range of txgs, a queue
//! of datasets that is empty, and no place reached. So OpenZFS continues it at import, from the beginning,
//! and `zpool status` shows it.
//!
//! Source: OpenZFS `dsl_scan.c` (`dsl_scan_setup_sync`, `dsl_scan_done`), `vdev.c`
//! (`vdev_dtl_should_excise`).

use std::collections::BTreeMap;

use cenote_engine::SyncContext;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::label::VdevConfig;
use cenote_format::scan::ScanPhys;
use cenote_format::units::{Guid, ObjectId, Txg, VdevId};
use cenote_format::words::Phys;
use cenote_object::{NewZap, Result, ZapEdit, ZapValue};

/// `POOL_SCAN_RESILVER`.
const RESILVER: u64 = 2;
/// `DSS_SCANNING`.
const SCANNING: u64 = 1;
/// `DSS_FINISHED`.
const FINISHED: u64 = 2;

/// What a resilver has done.
pub(crate) struct Done {
    /// Leaves that were brought all that was born up to a txg.
    pub(crate) upto: BTreeMap<Guid, Txg>,
    pub(crate) examined_bytes: u64,
    pub(crate) processed_bytes: u64,
    pub(crate) errors: u64,
}

/// A resilver of what was born in these txgs, first and last, begins.
pub(crate) async fn begin_resilver(context: &mut SyncContext, (first, last): (Txg, Txg)) -> Result<()> {
    let before = context.mos().await?.scan_status().await?;
    let (min_txg, max_txg) = (Txg(first.0.saturating_sub(1)), last);
    let is_same = |scan: &ScanPhys| (scan.func, scan.state, scan.max_txg) == (RESILVER, SCANNING, max_txg);
    if before.as_ref().is_some_and(|scan| is_same(scan) && scan.min_txg == min_txg) {
        return Ok(());
    }
    let edit = context.edit();
    if let Some(queue) = before.map(|scan| scan.queue).filter(|queue| *queue != ObjectId(0)) {
        edit.destroy(queue).await?;
    }
    let vdevs = context.pool().vdevs();
    let allocator = context.allocator();
    let spaces = vdevs.tops().filter_map(|top| allocator.vdev_space(VdevId(top.id)));
    let scan = ScanPhys {
        func: RESILVER,
        state: SCANNING,
        queue: NewZap::of(ObjectType::SCAN_QUEUE).create(&edit).await?,
        min_txg,
        max_txg,
        cur_min_txg: min_txg,
        cur_max_txg: max_txg,
        start_time_s: context.now_s(),
        to_examine_bytes: spaces.map(|space| space.allocated_bytes).sum(),
        ..empty(context)?
    };
    put(context, &scan).await?;
    context.log_event("scan setup", &format!("func=2 mintxg={min_txg} maxtxg={max_txg}")).await
}

/// It is done.
pub(crate) async fn end_resilver(context: &mut SyncContext, done: Done) -> Result<()> {
    let scan = match context.mos().await?.scan_status().await? {
        Some(scan) => scan,
        None => empty(context)?,
    };
    if scan.queue != ObjectId(0) {
        context.edit().destroy(scan.queue).await?;
    }
    let scan = ScanPhys {
        state: FINISHED,
        queue: ObjectId(0),
        end_time_s: context.now_s(),
        examined_bytes: done.examined_bytes,
        processed_bytes: done.processed_bytes,
        errors: done.errors,
        ..scan
    };
    put(context, &scan).await?;
    let what = format!("func=2 mintxg={} maxtxg={} errors={}", scan.min_txg, scan.max_txg, scan.errors);
    context.log_event("scan done", &what).await?;
    if forget_marks(&mut context.config().vdev_tree, &done.upto) {
        context.config_has_changed();
    }
    for (leaf, txg) in done.upto {
        context.pool().caught_up(leaf, txg);
    }
    Ok(())
}

/// OpenZFS marks leaves that are being filled; answers whether any was.
fn forget_marks(vdev: &mut VdevConfig, complete: &BTreeMap<Guid, Txg>) -> bool {
    let mut was = vdev.resilver_txg != Txg(0) && complete.contains_key(&vdev.guid);
    if was {
        vdev.resilver_txg = Txg(0);
    }
    for child in &mut vdev.children {
        was |= forget_marks(child, complete);
    }
    was
}

async fn put(context: &SyncContext, scan: &ScanPhys) -> Result<()> {
    let edit = context.edit();
    let directory = ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT);
    directory.update(names::SCAN, &ZapValue::from_words(&scan.to_words())).await
}

fn empty(context: &SyncContext) -> Result<ScanPhys> {
    ScanPhys::from_words(&[0; 24]).map_err(|_| context.damaged("can't note a scan"))
}
