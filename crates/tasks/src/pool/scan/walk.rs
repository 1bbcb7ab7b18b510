//! A slice of a scan: some seconds of it, over the tree of the last txg on disk.
//!
//! ```text
//!   plan --> object set --> pointers --> window --sorted by address--> scrub: read all, rewrite bad copies
//!                                                                      resilver: write missing copies
//! ```
//!
//! Idea: pointers are collected in tree order, and blocks read in disk order. A slice ends with an empty
//! window, so that its place in the tree is its progress.
//!
//! Progress stays valid although the tree keeps changing: a block that gains an owner behind the scan is
//! written to all leaves then, or was born on all (`Repair::bring_shared`). So at the end all blocks of the
//! last tree are complete. Blocks outside the tree come last, so checkpoints taken and datasets destroyed
//! meanwhile need no special care.
//!
//! OpenZFS does not visit a checkpoint; while one exists, its resilvers complete no device.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cenote_dataset::Mos;
use cenote_dataset::traverse::{DESTROYED, Log, Met, Position, Tree, listed_blocks};
use cenote_engine::Engine;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::scan::ScanPhys;
use cenote_format::units::Txg;
use cenote_object::Result;
use cenote_pool::{Fault, Healed, IoClass, Pool, VerifyItem, Zbookmark};
use cenote_runtime::Instant;

use super::plan::Plan;
use super::state::queue_of;
use super::thorough::{Keys, contexts};

/// Blocks read together: enough to follow disk order.
const WINDOW_BLOCKS: usize = 16 << 10;

/// A slice of a scan.
pub(super) struct Slice<'a> {
    scan: &'a ScanPhys,
    /// Duration before the place is recorded.
    length: Duration,
    /// Also holds back frees until the walk is done.
    pub(super) mos: Mos,
    pool: Pool,
    /// The rest of the scan.
    pub(super) plan: Plan,
    window: Vec<VerifyItem>,
    keys: Keys,
    pub(super) healed: Healed,
    pub(super) examined_bytes: u64,
    /// Lost blocks.
    pub(super) lost: u64,
    /// Malformed metadata.
    pub(super) nonsense: u64,
}

impl<'a> Slice<'a> {
    pub(super) async fn new(engine: &Engine, scan: &'a ScanPhys) -> Result<Slice<'a>> {
        let mos = engine.mos_to_mend().await?;
        Ok(Slice {
            scan,
            length: engine.background().settings().slice(scan.is_resilver()),
            pool: mos.pool().for_class(IoClass::Scrub),
            plan: Plan::of(scan, queue_of(&mos, scan).await?),
            mos,
            window: Vec::new(),
            keys: Keys::default(),
            healed: Healed::default(),
            examined_bytes: 0,
            lost: 0,
            nonsense: 0,
        })
    }

    /// Scans for a while.
    pub(super) async fn run(&mut self) -> Result<()> {
        let (mos, until) = (self.mos.clone(), self.pool.runtime().now() + self.length);
        while let Some(part) = self.plan.next(&mos).await? {
            let mut met = Vec::new();
            let tree = Tree::of_objset(mos.pool(), &part, &mut met);
            // Returning to the starting place is no progress.
            let is_over = |at: Position, now: Instant| now >= until && at > part.from;
            match self.walk(tree, met, is_over).await {
                Some(position) => {
                    self.plan.reached(position);
                    break;
                }
                None => self.plan.finish(&mos).await?,
            }
        }
        if self.plan.is_done() {
            self.visit_apart(&mos).await?;
        }
        self.flush_window().await;
        // Failed flushes show in the counters.
        drop(self.pool.flush(self.next_txg()).await);
        Ok(())
    }

    fn next_txg(&self) -> Txg {
        Txg(self.pool.uberblock().txg.0 + 1)
    }

    /// Visits blocks outside the pool's tree: pending frees and the checkpoint.
    async fn visit_apart(&mut self, mos: &Mos) -> Result<()> {
        self.visit_pending(mos).await?;
        if let Some(checkpoint) = mos.checkpoint().await? {
            let mut met = Vec::new();
            let tree = Tree::born_after(mos.pool(), checkpoint.rootbp, self.scan.min_txg, &mut met);
            self.walk(tree, met, |_, _| false).await;
            match mos.at_checkpoint(&checkpoint).await {
                Ok(then) => self.visit_pending(&then).await?,
                Err(error) if error.is_damage() => self.nonsense += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Visits pending frees, as far as freeing will read them: trees of destroyed datasets, and gang headers.
    async fn visit_pending(&mut self, mos: &Mos) -> Result<()> {
        for entry in mos.pending_destroys().await? {
            let mut met = Vec::new();
            let tree = Tree::resume(mos.pool(), &entry, &mut met);
            self.walk(tree, met, |_, _| false).await;
        }
        let mut gangs = Vec::new();
        listed_blocks(mos, |bp| gangs.extend(bp.is_gang().then_some(bp))).await?;
        for bp in gangs {
            self.meet(bp, Zbookmark { dataset: DESTROYED, ..Zbookmark::default() });
            if self.window.len() >= WINDOW_BLOCKS {
                self.flush_window().await;
            }
        }
        Ok(())
    }

    /// Walks a tree until its end or `is_over`; then returns the start of the rest.
    async fn walk(
        &mut self,
        mut tree: Tree,
        mut met: Vec<Met>,
        is_over: impl Fn(Position, Instant) -> bool,
    ) -> Option<Position> {
        loop {
            self.take(&mut met).await;
            if self.window.len() >= WINDOW_BLOCKS {
                self.flush_window().await;
            }
            let now = self.pool.runtime().now();
            let position = tree.position()?;
            if is_over(position, now) {
                return Some(position);
            }
            tree.step(&mut met).await;
        }
    }

    async fn take(&mut self, met: &mut Vec<Met>) {
        for met in met.drain(..) {
            match met {
                Met::Block { bp, place } => self.meet(bp, place),
                Met::Log(log) => self.visit_log(&log).await,
                Met::Nonsense { .. } => self.nonsense += 1,
            }
        }
    }

    /// Later blocks were written to all devices. The pointer may be younger than the block.
    fn meet(&mut self, bp: Blkptr, place: Zbookmark) {
        if bp.kind() != BlkptrKind::Normal || bp.physical_birth().txg() > self.scan.max_txg {
            return;
        }
        self.examined_bytes += bp.asize().0;
        if !self.scan.is_resilver() || self.pool.lacking().may_lack(&bp) {
            self.window.push(VerifyItem { bp, place });
        }
    }

    async fn flush_window(&mut self) {
        let blocks = std::mem::take(&mut self.window);
        if blocks.is_empty() {
            return;
        }
        if self.scan.is_resilver() {
            let healed = self.pool.repair().heal(blocks).await;
            self.lost += healed.lost_copies;
            return self.healed.add(healed);
        }
        let contexts = match self.scan.is_thorough() {
            true => contexts(&self.mos, &mut self.keys, &blocks).await,
            false => BTreeMap::new(),
        };
        let (findings, healed, undecodable) = self.pool.repair().scrub_thoroughly(blocks, contexts).await;
        let lost = findings.iter().filter(|finding| finding.fault == Fault::Lost);
        let lost: BTreeSet<usize> = lost.map(|finding| finding.item).collect();
        self.lost += (lost.len() + undecodable.len()) as u64;
        self.healed.add(healed);
    }

    /// Visits only logs awaiting replay: blocks of others are in a txg soon, and their next block is
    /// unwritten. A torn end is no loss.
    async fn visit_log(&mut self, log: &Log) {
        if !log.header.is_claimed() {
            return;
        }
        // A device may lack some of a log since power failed: blame none.
        let pool = self.pool.without_counting();
        let blocks = log.blocks(&pool, self.next_txg()).await;
        for bp in blocks.shared {
            self.meet(bp, Zbookmark { dataset: log.dataset, ..Zbookmark::default() });
        }
        for (bp, place) in blocks.live {
            let healed = match self.scan.is_resilver() {
                true => pool.repair().heal(vec![VerifyItem { bp, place }]).await,
                false => pool.repair().scrub(vec![VerifyItem { bp, place }]).await.1,
            };
            if healed.lost_copies == 0 {
                self.healed.add(healed);
            }
        }
    }
}
