//! A slice of a scan: some seconds of it, over the tree of the last txg on disk.
//!
//! ```text
//!   plan --> object set --> pointers --> window --sorted by address--> scrub: read all, write what is wrong
//!                                                                      resilver: write what leaves lack
//! ```
//!
//! Idea: pointers are collected in the order of the tree, and blocks are read in that of the disk. A slice
//! ends with an empty window, so that its place in the tree says what is done.
//!
//! What is done stays done, although the tree goes on changing there: a block that gets an owner behind the
//! scan was brought to all leaves with that, or is new to all of them (`Pool::bring_shared`). So at the end
//! whatever the last tree leads to has been brought. What the pool has beside that tree comes last: then it
//! does not matter when a checkpoint was taken, or a dataset destroyed. A later one is part of what is done.
//!
//! OpenZFS does not visit a checkpoint; while there is one, its resilvers make no device complete.

use std::collections::BTreeSet;
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

/// Blocks that are read together: enough to go over the disks in order.
const WINDOW_BLOCKS: usize = 16 << 10;

/// A slice of a scan.
pub(super) struct Slice<'a> {
    scan: &'a ScanPhys,
    /// How long pointers are collected and blocks read before the place is noted.
    length: Duration,
    /// With the tree. What that refers to is not given away before it has been walked over.
    pub(super) mos: Mos,
    pool: Pool,
    /// What is left after it.
    pub(super) plan: Plan,
    window: Vec<VerifyItem>,
    pub(super) healed: Healed,
    pub(super) examined_bytes: u64,
    /// Blocks that nobody has whole.
    pub(super) lost: u64,
    /// Metadata that make no sense.
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
            // The way back to where it began is no progress.
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
        // What a flush fails to bring shows in the counters.
        drop(self.pool.flush(self.next_txg()).await);
        Ok(())
    }

    fn next_txg(&self) -> Txg {
        Txg(self.pool.uberblock().txg.0 + 1)
    }

    /// What the tree of the pool does not lead to: what waits to be freed, and a checkpoint.
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

    /// What waits to be freed, as far as that is read then: trees of destroyed datasets, and the headers of
    /// gangs.
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

    /// Walks over a tree to its end, or until `is_over`; then it answers where the rest begins.
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

    /// What was written later was written to all devices. The pointer may be younger than the bytes.
    fn meet(&mut self, bp: Blkptr, place: Zbookmark) {
        if bp.kind() != BlkptrKind::Normal || bp.physical_birth().txg() > self.scan.max_txg {
            return;
        }
        self.examined_bytes += bp.asize().0;
        if !self.scan.is_resilver() || self.pool.may_lack(&bp) {
            self.window.push(VerifyItem { bp, place });
        }
    }

    async fn flush_window(&mut self) {
        let blocks = std::mem::take(&mut self.window);
        if blocks.is_empty() {
            return;
        }
        if self.scan.is_resilver() {
            let healed = self.pool.heal_many(blocks).await;
            self.lost += healed.lost_copies;
            return self.healed.add(healed);
        }
        let (findings, healed) = self.pool.scrub_many(blocks).await;
        let lost = findings.iter().filter(|finding| finding.fault == Fault::Lost);
        self.lost += lost.map(|finding| finding.item).collect::<BTreeSet<_>>().len() as u64;
        self.healed.add(healed);
    }

    /// Only logs that wait to be replayed: what others say a txg has soon, and where they end nothing was
    /// written yet. The end of a log may be torn: that is no loss.
    async fn visit_log(&mut self, log: &Log) {
        if !log.header.is_claimed() {
            return;
        }
        // A device that lacks some of a log may have been written to when the power went: none is blamed.
        let pool = self.pool.without_counting();
        let blocks = log.blocks(&pool, self.next_txg()).await;
        for bp in blocks.shared {
            self.meet(bp, Zbookmark { dataset: log.dataset, ..Zbookmark::default() });
        }
        for (bp, place) in blocks.live {
            let healed = match self.scan.is_resilver() {
                true => pool.heal_many(vec![VerifyItem { bp, place }]).await,
                false => pool.scrub_many(vec![VerifyItem { bp, place }]).await.1,
            };
            if healed.lost_copies == 0 {
                self.healed.add(healed);
            }
        }
    }
}
