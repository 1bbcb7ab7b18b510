//! Scans: a scrub verifies every block and rewrites bad copies; a resilver fills devices that lack data. The
//! pool stays in use.
//!
//! ```text
//!   begin     records a scan and the births of its blocks in the pool                (state)
//!   slice     some seconds of it, over the tree of the last txg on disk              (walk)
//!             freed space is held back meanwhile, so that the tree stays intact
//!   note      records the progress                                                   (state)
//!   end       a resilver: DTLs shrink, reads may use the devices, replaced ones leave
//! ```
//!
//! Idea: a scan's plan and progress are on disk, in OpenZFS's form and order. A scan begun here or in OpenZFS
//! continues in either after an export or power cut. [`run_scan`] only follows that state: tasks that begin,
//! pause or cancel scans change it in a txg.
//!
//! A thorough scrub also decodes blocks (`thorough`).
//!
//! Known errors may be scrubbed alone ([`start_error_scrub`]): see `error_scrub`.
//!
//! A resilver has priority. A leaf lacks the blocks born in the txgs of its dirty time log (DTL), so a
//! resilver visits only subtrees with such births. A device that joins during a resilver waits for the next,
//! as recorded in the labels (`resilver_defer`).
//!
//! Memory: a window of pointers, a batch of metadata, and the queue of datasets.
//!
//! Locking: one scan at a time ([`Background::turn`]). It may be dropped at any await: the state on disk says
//! where to continue.
//!
//! Source: OpenZFS `dsl_scan.c`, `vdev.c` (`vdev_dtl_reassess`).

mod error_scrub;
mod plan;
pub(crate) mod state;
mod thorough;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use cenote_boxed::boxed;
use cenote_engine::{Engine, Pass, SyncContext, WeakEngine};
use cenote_format::scan::ScanPhys;
use cenote_format::units::{Guid, TXG_CONCURRENT_STATES, Txg};
use cenote_object::{DatasetError, Result};
use cenote_pool::Pool;
use cenote_runtime::Watcher;
use futures::future::{BoxFuture, Either, select};

use crate::pool::detach::let_replaced_go;
use crate::pool::errors::note_lost;
use crate::pool::rebuild::active as rebuilding;
use crate::pool::validate::validate;
use state::{Noted, goes_on, is_at_the_beginning};
use walk::Slice;

pub use state::ScrubDepth;

/// Progress of a scan.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ScanProgress {
    /// Allocated bytes examined.
    pub done_bytes: u64,
    /// The pool's allocated bytes at the start. A resilver skips blocks older than the missing ones.
    pub total_bytes: u64,
}

/// Results of scans.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// Leaves that are complete now.
    pub complete: Vec<Guid>,
    /// Leaves still incomplete: they fail, or no device has their data.
    pub incomplete: Vec<Guid>,
    /// Bytes written to devices.
    pub written_bytes: u64,
    /// Lost blocks and malformed metadata.
    pub errors: u64,
}

/// Starts a scrub of blocks born after a txg, or resumes a paused one, for [`run_scan`]. First takes devices
/// with foreign labels out of use.
///
/// # Errors
/// A scan is running.
#[boxed]
pub async fn start_scrub(engine: &Engine, after: Txg) -> Result<()> {
    start_scrub_between(engine, after, None, ScrubDepth::Normal).await
}

/// The same, of blocks born up to another txg; `None`: the present.
///
/// # Errors
/// A scan is running, or a scrub of another depth is paused.
#[boxed]
pub async fn start_scrub_between(
    engine: &Engine,
    after: Txg,
    upto: Option<Txg>,
    depth: ScrubDepth,
) -> Result<()> {
    validate(engine, None).await?;
    order(engine, move |context| {
        Box::pin(async move { state::start_scrub(context, after, upto, depth).await })
    })
    .await
}

/// Starts a scrub of the blocks in the error log, or resumes a paused one, for [`run_scan`]. Returns `false`
/// if the log is empty.
///
/// # Errors
/// A scan is running or paused.
#[boxed]
pub async fn start_error_scrub(engine: &Engine) -> Result<bool> {
    order(engine, |context| Box::pin(state::start_error_scrub(context))).await
}

/// Pauses the scrub.
///
/// # Errors
/// No scrub is running.
#[boxed]
pub async fn pause_scrub(engine: &Engine) -> Result<()> {
    order(engine, |context| Box::pin(state::pause_scrub(context))).await
}

/// Cancels the scrub, running or paused.
///
/// # Errors
/// There is none.
#[boxed]
pub async fn cancel_scrub(engine: &Engine) -> Result<()> {
    order(engine, |context| Box::pin(state::cancel_scrub(context))).await
}

/// Runs a task that changes the plan, and notifies the runner.
async fn order<F, T>(engine: &Engine, task: F) -> Result<T>
where
    F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let order = |engine: Engine| async move {
        let done = engine.run_on_pool(task).await?;
        engine.background().scans.order();
        Ok(done)
    };
    engine.to_end(order).await
}

/// Resilvers every incomplete device in use, then runs the recorded scrub. Returns when nothing is left to do
/// or the scrub is paused.
///
/// # Errors
/// The pool's metadata can't be read, or a txg can't be written. Failing devices are in the result.
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

/// Runs scans as needed, while the engine lives.
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

/// Stops showing the engine's current pass on drop.
struct ShownPass<'a>(&'a Engine);

impl Drop for ShownPass<'_> {
    fn drop(&mut self) {
        self.0.background().set_scan_pass(None);
    }
}

struct Run<'a> {
    engine: &'a Engine,
    orders: Watcher<u64>,
    done: Scanned,
    /// Leaves that can't be completed in this run.
    failed: BTreeSet<Guid>,
    /// Another runner began the scan; whether its devices failed is unknown.
    is_resumed: bool,
    /// Malformed metadata kept parts of the tree from being visited.
    has_nonsense: bool,
}

impl Run<'_> {
    async fn finish(&mut self, progress: &(dyn Fn(ScanProgress) + Send + Sync)) -> Result<()> {
        let mut pass: Option<Pass> = None;
        loop {
            self.orders.catch_up();
            let_replaced_go(self.engine).await?;
            let mos = self.engine.mos().await?;
            if !rebuilding(&mos).await?.is_empty() {
                // The rebuild may fill the leaves.
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
            self.engine.run_on_pool(move |context| Box::pin(state::note(context, noted, done))).await?;
            if is_last {
                pass = None;
                self.is_resumed = false;
            }
        }
    }

    /// Missing txgs of leaves in use, except failed ones.
    fn behind(&self) -> BTreeMap<Guid, (Txg, Txg)> {
        let mut behind = self.engine.pool().lacking().behind();
        behind.retain(|leaf, _| !self.failed.contains(leaf));
        behind
    }

    /// Returns `false` if no leaf lacks data.
    async fn begin_resilver(&mut self, behind: &BTreeMap<Guid, (Txg, Txg)>) -> Result<bool> {
        let Some(range) = whole_range(behind) else { return Ok(false) };
        self.engine.run_on_pool(move |context| Box::pin(state::begin_resilver(context, range))).await?;
        Ok(true)
    }

    /// Continues an error scrub. Returns `false` if none is in progress.
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
        self.engine.run_on_pool(move |context| Box::pin(error_scrub::note(context, looked))).await?;
        Ok(true)
    }

    /// After a complete scan, returns leaves with the txg up to which they are complete. A leaf that misses a
    /// later txg was away and perhaps passed over, so it needs another scan. Its DTL always has the txgs in
    /// which it went and returned (see `leaves`).
    fn complete(&mut self, scan: &ScanPhys) -> BTreeMap<Guid, Txg> {
        let (mut upto, pool) = (BTreeMap::new(), self.engine.pool());
        let (last, missed) = (last_txg(scan), pool.lacking().all());
        let was_away = |leaf| missed.get(leaf).and_then(|runs| runs.last()).is_some_and(|run| run.1 > last);
        let deferred = deferred(&pool);
        let behind = pool.lacking().behind().into_iter().filter(|(leaf, _)| !deferred.contains(leaf));
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

/// Leaves waiting for the next resilver.
fn deferred(pool: &Pool) -> BTreeSet<Guid> {
    pool.tree().config().vdevs.iter().flat_map(state::deferred).collect()
}

/// Writes the last txg of a scan: from then on the tree has all blocks that leaves lack, and they lack no new
/// ones. Waits at most for the txgs in flight, even if the recorded txg is later.
pub(crate) async fn sync_through(engine: &Engine, last: Txg) -> Result<()> {
    let under_way = Txg(engine.pool().uberblock().txg.0 + TXG_CONCURRENT_STATES);
    while engine.pool().uberblock().txg < last.min(under_way) {
        engine.force_sync().await?;
    }
    Ok(())
}

/// Whether the current scan will complete all leaves that lacked data when it began. A resumed scan with
/// errors may have left some out.
fn is_enough(scan: &ScanPhys, behind: &BTreeMap<Guid, (Txg, Txg)>, is_resumed: bool) -> bool {
    let Some((first, _)) = whole_range(behind) else { return true };
    let is_in_doubt = is_resumed && !is_at_the_beginning(scan) && scan.errors > 0;
    let last = behind.values().map(|txgs| txgs.0).max().unwrap_or(first);
    let is_covered = scan.min_txg < first && last <= last_txg(scan);
    scan.is_resilver() && is_covered && !is_in_doubt
}

/// The last txg that a scan covers.
fn last_txg(scan: &ScanPhys) -> Txg {
    Txg(scan.max_txg.0.saturating_sub(1))
}

/// The first and last txg that any leaf lacks.
fn whole_range(behind: &BTreeMap<Guid, (Txg, Txg)>) -> Option<(Txg, Txg)> {
    Some((behind.values().map(|txgs| txgs.0).min()?, behind.values().map(|txgs| txgs.1).max()?))
}

fn write_errors(pool: &Pool) -> BTreeMap<Guid, u64> {
    pool.counters().errors().into_iter().map(|(leaf, errors)| (leaf, errors.write)).collect()
}

/// Leaves with new write errors.
fn failing<'a>(
    before: &'a BTreeMap<Guid, u64>,
    after: &'a BTreeMap<Guid, u64>,
) -> impl Iterator<Item = Guid> + 'a {
    after.iter().filter(|(leaf, errors)| before.get(leaf) != Some(errors)).map(|(leaf, _)| *leaf)
}
