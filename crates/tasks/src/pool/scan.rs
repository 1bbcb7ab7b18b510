//! Scans: a scrub verifies every block and writes again what is wrong; a resilver brings devices what they
//! lack. Others go on reading and writing.
//!
//! ```text
//!   begin     the pool says which blocks, by birth, and that a scan is in progress   (state)
//!   slice     some seconds of it, over the tree of the last txg on disk              (walk)
//!             freed space is kept meanwhile, so that the tree stays whole
//!   note      the pool says how far it has come                                      (state)
//!   end       a resilver: DTLs shrink, reads may choose the devices, those that were replaced leave
//! ```
//!
//! Idea: what there is to do, and how far it has come, is in the pool, in OpenZFS's form and order. So a scan
//! goes on after an export or a power cut, here or in OpenZFS, and goes on here if OpenZFS began it. Whoever
//! runs [`run_scan`] only follows that: tasks that begin, pause or cancel scans change it in a txg.
//!
//! Known errors may be scrubbed alone ([`start_error_scrub`]): see `error_scrub`.
//!
//! A resilver comes first: leaves whose dirty time logs (DTL) name txgs lack what was born then, so only
//! subtrees with blocks of that time are visited. A device that joins while one is on its way waits for the
//! next, as the labels say (`resilver_defer`).
//!
//! Memory: a window of pointers, a batch of metadata, and the queue of datasets.
//!
//! Locking: one scan at a time ([`Background::turn`]). It may be dropped at any await: the pool still says
//! what is left.
//!
//! Source: OpenZFS `dsl_scan.c`, `vdev.c` (`vdev_dtl_reassess`).

mod error_scrub;
mod plan;
pub(crate) mod state;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use cenote_boxed::boxed;
use cenote_engine::{Engine, Pass, SyncContext, WeakEngine};
use cenote_format::scan::ScanPhys;
use cenote_format::units::{Guid, TXG_CONCURRENT_STATES, Txg};
use cenote_object::{DatasetError, Result};
use cenote_pool::Pool;
use futures::future::{BoxFuture, Either, select};
use tokio::sync::watch;

use crate::pool::detach::let_replaced_go;
use crate::pool::errors::note_lost;
use crate::pool::rebuild::active as rebuilding;
use crate::pool::validate::validate;
use state::{Noted, goes_on, is_at_the_beginning};
use walk::Slice;

/// How far a scan has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ScanProgress {
    /// Allocated bytes that were looked at.
    pub done_bytes: u64,
    /// Allocated bytes of the pool when it began. A resilver passes over what is older than what is missing.
    pub total_bytes: u64,
}

/// What scans did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// Leaves that lack nothing any more.
    pub complete: Vec<Guid>,
    /// Leaves that still do: they fail, or others don't have what they lack.
    pub incomplete: Vec<Guid>,
    /// Bytes written to devices.
    pub written_bytes: u64,
    /// Blocks that nobody has whole, and metadata that makes no sense.
    pub errors: u64,
}

/// A scrub of what was born after a txg is to run, or goes on if it was paused. It is done by [`run_scan`].
/// Devices that are not their leaves' any more go out of use first.
///
/// # Errors
/// A scan runs already.
#[boxed]
pub async fn start_scrub(engine: &Engine, after: Txg) -> Result<()> {
    validate(engine, None).await?;
    order(engine, move |context| Box::pin(async move { state::start_scrub(context, after).await })).await
}

/// A scrub of the blocks in the error log is to run, or goes on if it was paused. It is done by [`run_scan`].
/// Answers `false` if the log has none.
///
/// # Errors
/// A scan runs already, or is paused.
#[boxed]
pub async fn start_error_scrub(engine: &Engine) -> Result<bool> {
    order(engine, |context| Box::pin(state::start_error_scrub(context))).await
}

/// The scrub that runs is to go on later.
///
/// # Errors
/// None runs.
#[boxed]
pub async fn pause_scrub(engine: &Engine) -> Result<()> {
    order(engine, |context| Box::pin(state::pause_scrub(context))).await
}

/// The scrub that runs, or is paused, ends.
///
/// # Errors
/// There is none.
#[boxed]
pub async fn cancel_scrub(engine: &Engine) -> Result<()> {
    order(engine, |context| Box::pin(state::cancel_scrub(context))).await
}

/// Runs a task that changes what is to be scanned, and tells whoever scans.
async fn order<F, T>(engine: &Engine, task: F) -> Result<T>
where
    F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let order = |engine: Engine| async move {
        let done = engine.run(task).await?;
        engine.background().scans.order();
        Ok(done)
    };
    engine.to_end(order).await
}

/// Brings every device that is in use what it lacks, then goes on with the scrub that the pool says is in
/// progress; returns when there is nothing left to do, or the scrub is paused.
///
/// # Errors
/// The pool's metadata can't be read, or a txg not be written. Devices that fail are in the result.
#[boxed]
pub async fn run_scan(engine: &Engine, progress: &(dyn Fn(ScanProgress) + Send + Sync)) -> Result<Scanned> {
    let _alone = engine.background().scans.turn().await;
    let mut run = Run {
        engine,
        orders: engine.background().scans.orders(),
        done: Scanned::default(),
        failed: BTreeSet::new(),
        is_resumed: true,
        has_nonsense: false,
    };
    let _shown = ShownPass(engine);
    run.finish(progress).await.map(|()| run.done)
}

/// Scans whenever there is something to scan, as long as the engine lives.
pub async fn keep_scanning(engine: WeakEngine, failed: impl Fn(DatasetError)) {
    let Ok(mut orders) = engine.upgrade().map(|engine| engine.background().scans.orders()) else { return };
    loop {
        let Ok(engine) = engine.upgrade() else { return };
        if let Err(error) = run_scan(&engine, &|_| {}).await {
            failed(error);
        }
        drop(engine);
        if orders.changed().await.is_err() {
            return;
        }
    }
}

/// The pass that the engine shows ends with this.
struct ShownPass<'a>(&'a Engine);

impl Drop for ShownPass<'_> {
    fn drop(&mut self) {
        self.0.background().set_scan_pass(None);
    }
}

struct Run<'a> {
    engine: &'a Engine,
    orders: watch::Receiver<u64>,
    done: Scanned,
    /// Leaves that can't be brought all that they lack: not in this run.
    failed: BTreeSet<Guid>,
    /// The scan was begun by somebody else; whether its devices failed is not known.
    is_resumed: bool,
    /// Metadata make no sense: what lies below was not visited.
    has_nonsense: bool,
}

impl Run<'_> {
    async fn finish(&mut self, progress: &(dyn Fn(ScanProgress) + Send + Sync)) -> Result<()> {
        let mut pass: Option<Pass> = None;
        loop {
            self.orders.mark_unchanged();
            let_replaced_go(self.engine).await?;
            let mos = self.engine.mos().await?;
            if !rebuilding(&mos).await?.is_empty() {
                // What leaves lack may be on its way.
                return Ok(());
            }
            let scan = mos.scan_status().await?.filter(goes_on);
            let mut behind = self.behind();
            if scan.as_ref().is_some_and(ScanPhys::is_resilver) {
                deferred(&self.engine.pool()).iter().for_each(|leaf| _ = behind.remove(leaf));
            }
            let Some(scan) = scan.filter(|scan| is_enough(scan, &behind, self.is_resumed)) else {
                if self.begin_resilver(&behind).await? {
                    self.is_resumed = false;
                } else if !self.scrub_errors().await? {
                    return Ok(());
                }
                continue;
            };
            if scan.is_paused() || self.engine.background().settings().is_suspended() {
                return Ok(());
            }
            sync_through(self.engine, last_txg(&scan)).await?;
            let since = pass.get_or_insert(Pass { since: self.engine.runtime().now(), done_bytes: 0 });
            self.engine.background().set_scan_pass(Some(*since));
            let errors = write_errors(&self.engine.pool());
            let turn = self.engine.background().walk_turn().await;
            let mut slice = Slice::new(self.engine, &scan).await?;
            let interrupted = {
                let (walk, orders) = (std::pin::pin!(slice.run()), std::pin::pin!(self.orders.changed()));
                match select(walk, orders).await {
                    Either::Left((done, _)) => done.map(|()| false)?,
                    Either::Right(_) => true,
                }
            };
            if interrupted {
                continue;
            }
            self.failed.extend(slice.healed.unhealed.iter().copied());
            self.failed.extend(failing(&errors, &write_errors(&self.engine.pool())));
            self.has_nonsense |= slice.nonsense > 0;
            since.done_bytes += slice.examined_bytes;
            let done_bytes = scan.examined_bytes.saturating_add(slice.examined_bytes);
            progress(ScanProgress { done_bytes, total_bytes: scan.to_examine_bytes });
            self.done.written_bytes += slice.healed.written_bytes;
            self.done.errors += slice.lost + slice.nonsense;
            note_lost(self.engine).await?;
            let is_last = slice.plan.is_done();
            let noted = Noted::of(&scan, &slice).await?;
            drop((slice, turn));
            let done = is_last.then(|| self.complete(&scan));
            self.engine.run(move |context| Box::pin(state::note(context, noted, done))).await?;
            if is_last {
                pass = None;
                self.is_resumed = false;
            }
        }
    }

    /// What leaves in use lack, without those that failed.
    fn behind(&self) -> BTreeMap<Guid, (Txg, Txg)> {
        let mut behind = self.engine.pool().behind();
        behind.retain(|leaf, _| !self.failed.contains(leaf));
        behind
    }

    /// Answers `false` if no leaf lacks anything.
    async fn begin_resilver(&mut self, behind: &BTreeMap<Guid, (Txg, Txg)>) -> Result<bool> {
        let Some(range) = whole_range(behind) else { return Ok(false) };
        self.engine.run(move |context| Box::pin(state::begin_resilver(context, range))).await?;
        Ok(true)
    }

    /// Goes on with a scrub of known errors. Answers `false` if none is in progress.
    async fn scrub_errors(&mut self) -> Result<bool> {
        if self.engine.background().settings().is_suspended() {
            return Ok(false);
        }
        let turn = self.engine.background().walk_turn().await;
        let looked = {
            let look = std::pin::pin!(error_scrub::look(self.engine));
            match select(look, std::pin::pin!(self.orders.changed())).await {
                Either::Left((looked, _)) => looked?,
                Either::Right(_) => return Ok(true),
            }
        };
        drop(turn);
        let Some(looked) = looked else { return Ok(false) };
        self.done.written_bytes += looked.written_bytes;
        self.done.errors += looked.remaining();
        self.engine.run(move |context| Box::pin(error_scrub::note(context, looked))).await?;
        Ok(true)
    }

    /// A scan is done: answers which leaves were brought all that was born up to which txg. A leaf that
    /// misses anything later was away in the course of it, so it may have been passed over, and needs another
    /// scan: the txgs in which it goes and in which it returns are missed in any case (see `leaves`).
    fn complete(&mut self, scan: &ScanPhys) -> BTreeMap<Guid, Txg> {
        let (mut upto, pool) = (BTreeMap::new(), self.engine.pool());
        let (last, missed) = (last_txg(scan), pool.missed());
        let was_away = |leaf| missed.get(leaf).and_then(|runs| runs.last()).is_some_and(|run| run.1 > last);
        let deferred = deferred(&pool);
        let behind = pool.behind().into_iter().filter(|(leaf, _)| !deferred.contains(leaf));
        for (leaf, txgs) in &behind.filter(|_| scan.is_resilver()).collect::<BTreeMap<_, _>>() {
            if self.failed.contains(leaf) || self.has_nonsense {
                self.failed.insert(*leaf);
                self.done.incomplete.push(*leaf);
            } else if !was_away(leaf) {
                upto.insert(*leaf, txgs.1.min(last));
                self.done.complete.push(*leaf);
            }
        }
        upto
    }
}

/// Leaves that wait for the next resilver.
fn deferred(pool: &Pool) -> BTreeSet<Guid> {
    pool.config().vdevs.iter().flat_map(state::deferred).collect()
}

/// Brings the last txg of a scan to the disk: from then on, no new block is born in what leaves lack, and the
/// tree has all that was. It is one of those under way at most, whatever the pool says.
pub(crate) async fn sync_through(engine: &Engine, last: Txg) -> Result<()> {
    let under_way = Txg(engine.pool().uberblock().txg.0 + TXG_CONCURRENT_STATES);
    while engine.pool().uberblock().txg < last.min(under_way) {
        engine.force_sync().await?;
    }
    Ok(())
}

/// Whether the scan in progress brings leaves all that they lacked when it began. One that somebody else
/// began, and that met errors, may have left something out.
fn is_enough(scan: &ScanPhys, behind: &BTreeMap<Guid, (Txg, Txg)>, is_resumed: bool) -> bool {
    let Some((first, _)) = whole_range(behind) else { return true };
    let is_in_doubt = is_resumed && !is_at_the_beginning(scan) && scan.errors > 0;
    let last = behind.values().map(|txgs| txgs.0).max().unwrap_or(first);
    let is_covered = scan.min_txg < first && last <= last_txg(scan);
    scan.is_resilver() && is_covered && !is_in_doubt
}

/// The last txg of which a scan brings everything.
fn last_txg(scan: &ScanPhys) -> Txg {
    Txg(scan.max_txg.0.saturating_sub(1))
}

/// From the first to the last txg that any leaf lacks.
fn whole_range(behind: &BTreeMap<Guid, (Txg, Txg)>) -> Option<(Txg, Txg)> {
    Some((behind.values().map(|txgs| txgs.0).min()?, behind.values().map(|txgs| txgs.1).max()?))
}

fn write_errors(pool: &Pool) -> BTreeMap<Guid, u64> {
    pool.error_counters().into_iter().map(|(leaf, errors)| (leaf, errors.write)).collect()
}

/// Leaves that failed to take something meanwhile.
fn failing<'a>(
    before: &'a BTreeMap<Guid, u64>,
    after: &'a BTreeMap<Guid, u64>,
) -> impl Iterator<Item = Guid> + 'a {
    after.iter().filter(|(leaf, errors)| before.get(leaf) != Some(errors)).map(|(leaf, _)| *leaf)
}
