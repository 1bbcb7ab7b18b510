//! Resilvering: devices are brought what they lack, while others go on reading and writing.
//!
//! ```text
//!   DTL of a leaf: txgs 4 to 120        it joined in txg 118, or was away
//!   sync until txg 120 is on disk       from then on, no new block is born in what the leaf missed
//!   keep what is freed; take the tree   so that the tree stays whole while it is walked
//!   walk what was born since txg 4      verify, put together, write what differs
//!   a last task: the DTL is empty       reads may choose the leaf
//! ```
//!
//! Idea: what a device lacks is known by birth (its dirty time log), so only subtrees with blocks born then
//! are visited. The log is the job's state in the pool: it is emptied when all is there. If the pool is
//! closed or the power fails before, the log says what to bring, to us and to OpenZFS alike; no bookmark is
//! kept, so the walk begins anew, but what is there already is not written again. Meanwhile the pool's scan
//! says that a resilver is in progress ([`scan`](super::scan)).
//!
//! Memory: a window of pointers, a batch of metadata. Space that is freed meanwhile can't be used again
//! before the end.
//!
//! Locking: one resilver at a time; a second one waits for it, and finds nothing left to do. It may be
//! dropped at any await: the log still says what is missing.
//!
//! Source: OpenZFS `dsl_scan.c` (`dsl_scan_setup_sync`, `dsl_scan_done`), `vdev.c` (`vdev_dtl_reassess`).

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_dataset::traverse::{Log, Met, Tree};
use cenote_engine::Engine;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_object::{DatasetError, Result};
use cenote_pool::{Healed, IoClass, Pool, VdevConfig, VerifyItem, Zbookmark};

use crate::pool::scan::{Done, begin_resilver, end_resilver};

/// Blocks that are healed together: enough to go over the disks in order.
const WINDOW_BLOCKS: usize = 8_192;

/// How far a resilver has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ResilverProgress {
    /// Allocated bytes that were looked at.
    pub done_bytes: u64,
    /// Allocated bytes of the pool: an upper bound, since what is older than what is missing is passed over.
    pub total_bytes: u64,
}

/// What a resilver did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Resilvered {
    /// Leaves that lack nothing any more.
    pub complete: Vec<Guid>,
    /// Leaves that still do.
    pub incomplete: Vec<Guid>,
    /// Bytes written to them.
    pub written_bytes: u64,
    /// Copies of blocks that nobody has whole, and metadata that makes no sense.
    pub errors: u64,
}

/// Brings every device that is in use what it lacks; returns when all is on disk.
///
/// # Errors
/// The pool's metadata can't be read, or a txg not be written. Devices that fail are in the result.
pub async fn resilver(engine: &Engine, progress: impl Fn(ResilverProgress)) -> Result<Resilvered> {
    let _alone = engine.resilver_turn().await;
    let behind = engine.pool().behind();
    let Some(range) = whole_range(&behind) else { return Ok(Resilvered::default()) };
    engine.run(move |context| Box::pin(async move { begin_resilver(context, range).await })).await?;
    while engine.pool().uberblock().txg < range.1 {
        engine.force_sync().await?;
    }
    let errors = write_errors(&engine.pool());
    let _kept = engine.keep_freed();
    let mos = engine.mos().await?;
    let mut walk = Walk {
        pool: engine.pool().for_class(IoClass::Scrub),
        window: Vec::new(),
        healed: Healed::default(),
        done_bytes: 0,
        nonsense: 0,
    };
    let total_bytes = allocated_bytes(engine, &mos);
    let report = |done_bytes| progress(ResilverProgress { done_bytes, total_bytes });
    walk.all(&mos, range.0, &report).await?;
    // What a flush fails to bring shows in the counters.
    drop(walk.pool.flush(Txg(mos.uberblock().txg.0 + 1)).await);
    let failed = write_errors(&walk.pool);
    let Walk { healed, done_bytes, nonsense, .. } = walk;
    let is_whole = |leaf: &Guid| {
        nonsense == 0 && !healed.unhealed.contains(leaf) && failed.get(leaf) == errors.get(leaf)
    };
    let (complete, incomplete): (Vec<Guid>, Vec<Guid>) = behind.keys().copied().partition(is_whole);
    let errors = healed.lost_copies + nonsense;
    let done = Done {
        upto: complete.iter().map(|leaf| (*leaf, behind[leaf].1)).collect(),
        examined_bytes: done_bytes,
        processed_bytes: healed.written_bytes,
        errors,
    };
    engine.run(move |context| Box::pin(async move { end_resilver(context, done).await })).await?;
    Ok(Resilvered { complete, incomplete, written_bytes: healed.written_bytes, errors })
}

/// The same for a change that is done only when it is complete.
///
/// # Errors
/// Those of [`resilver`]; or a device lacks something still.
pub(crate) async fn resilver_fully(engine: &Engine, leaf: Guid) -> Result<()> {
    let done = resilver(engine, |_| {}).await?;
    if done.incomplete.contains(&leaf) {
        let why = "the device could not be brought all that it should hold: see `zpool status`. What is \
                   there stays in use, and `cenote zpool resilver` tries again";
        return Err(DatasetError::unsuitable(engine.pool().name(), why));
    }
    Ok(())
}

/// From the first to the last txg that any leaf lacks.
fn whole_range(behind: &BTreeMap<Guid, (Txg, Txg)>) -> Option<(Txg, Txg)> {
    Some((behind.values().map(|txgs| txgs.0).min()?, behind.values().map(|txgs| txgs.1).max()?))
}

struct Walk {
    pool: Pool,
    window: Vec<VerifyItem>,
    healed: Healed,
    done_bytes: u64,
    /// Metadata that make no sense: what lies below was not visited.
    nonsense: u64,
}

impl Walk {
    /// Everything that the pool on disk has and that was born in `first` or later.
    async fn all(&mut self, mos: &Mos, first: Txg, report: &impl Fn(u64)) -> Result<()> {
        let uberblock = *mos.pool().uberblock();
        let mut roots = vec![uberblock.rootbp];
        roots.extend(mos.checkpoint().await?.map(|checkpoint| checkpoint.rootbp));
        for root in roots {
            let mut met = Vec::new();
            let tree = Tree::born_after(mos.pool(), root, Txg(first.0.saturating_sub(1)), &mut met);
            self.tree(tree, met, uberblock.txg, report).await;
        }
        // Of what waits to be freed, only trees of destroyed datasets are read again.
        for entry in mos.pending_destroys().await? {
            let mut met = Vec::new();
            let tree = Tree::resume(mos.pool(), &entry, &mut met);
            self.tree(tree, met, uberblock.txg, report).await;
        }
        self.heal().await;
        report(self.done_bytes);
        Ok(())
    }

    async fn tree(&mut self, mut tree: Tree, mut met: Vec<Met>, txg: Txg, report: &impl Fn(u64)) {
        loop {
            for met in met.drain(..) {
                match met {
                    Met::Block { bp, place } => self.meet(bp, place),
                    Met::Log(log) => self.heal_log(&log, txg).await,
                    Met::Nonsense { .. } => self.nonsense += 1,
                }
            }
            if self.window.len() >= WINDOW_BLOCKS {
                self.heal().await;
                report(self.done_bytes);
            }
            if !tree.step(&mut met).await {
                break;
            }
        }
    }

    fn meet(&mut self, bp: Blkptr, place: Zbookmark) {
        if bp.kind() != BlkptrKind::Normal {
            return;
        }
        self.done_bytes += bp.asize().0;
        if self.pool.may_lack(&bp) {
            self.window.push(VerifyItem { bp, place });
        }
    }

    async fn heal(&mut self) {
        let healed = self.pool.heal_many(std::mem::take(&mut self.window)).await;
        self.healed.add(healed);
    }

    /// The end of a log was never written, or torn: that is no loss.
    async fn heal_log(&mut self, log: &Log, txg: Txg) {
        let blocks = log.blocks(&self.pool, Txg(txg.0 + 1)).await;
        for (bp, place) in blocks.live {
            let mut healed = self.pool.heal_many(vec![VerifyItem { bp, place }]).await;
            if healed.lost_copies > 0 {
                healed = Healed { written_bytes: healed.written_bytes, ..Healed::default() };
            }
            self.healed.add(healed);
        }
    }
}

fn write_errors(pool: &Pool) -> BTreeMap<Guid, u64> {
    pool.error_counters().into_iter().map(|(leaf, errors)| (leaf, errors.write)).collect()
}

fn allocated_bytes(engine: &Engine, mos: &Mos) -> u64 {
    let vdevs = mos.pool().vdevs();
    let of = |top: &VdevConfig| engine.allocator().vdev_space(VdevId(top.id));
    vdevs.tops().filter_map(of).map(|space| space.allocated_bytes).sum()
}
