//! The rest of a scan: the current object set, and those in the queue.
//!
//! ```text
//!   MOS -> the oldest of each chain -> next snapshot ... -> head
//!                                   '-> clones of each snapshot, likewise
//! ```
//!
//! Idea: a block is visited in the oldest version of a dataset that has it. Each version is walked for blocks
//! born after its predecessor, and then queues its successors.
//!
//! Source: OpenZFS `dsl_scan.c` (`dsl_scan_visit`, `dsl_scan_visitds`, `dsl_scan_ds_maxtxg`).

use std::collections::{BTreeMap, BTreeSet};

use cenote_dataset::Mos;
use cenote_dataset::traverse::{Part, Position};
use cenote_format::errlog::BlockBookmark;
use cenote_format::scan::{DSF_VISIT_DS_AGAIN, ScanPhys};
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::Result;

/// `DMU_META_OBJSET`.
const MOS: DatasetId = DatasetId(0);
/// `ZB_DESTROYED_OBJSET`: no current object set.
pub(super) const NOTHING: DatasetId = DatasetId(u64::MAX);

/// The object set being walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) dataset: DatasetId,
    /// Births wanted: after the first txg, up to the second.
    pub(super) txgs: (Txg, Txg),
    pub(super) from: Position,
}

/// A dataset version to be scanned for blocks born after a txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) dataset: DatasetId,
    pub(super) born_after: Txg,
    pub(super) dir: ObjectId,
    pub(super) is_snapshot: bool,
    pub(super) creation_txg: Txg,
}

/// The rest of a scan, and changes since it was read.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Births wanted: after the first txg, up to the second.
    txgs: (Txg, Txg),
    pub(super) current: Option<Current>,
    /// Queued object sets, each with the txg after which births are wanted.
    queue: BTreeMap<DatasetId, Txg>,
    /// Visit the current one again, for later births.
    again: bool,
    pub(super) taken: BTreeSet<DatasetId>,
    pub(super) added: BTreeMap<DatasetId, Waiting>,
}

impl Plan {
    /// The plan recorded in the pool.
    pub(super) fn of(scan: &ScanPhys, queue: BTreeMap<DatasetId, Txg>) -> Plan {
        let txgs = (scan.min_txg, scan.max_txg);
        let dataset = scan.bookmark.dataset;
        let txgs_now = if dataset == MOS { txgs } else { (scan.cur_min_txg, scan.cur_max_txg) };
        let current = Current { dataset, txgs: txgs_now, from: position(&scan.bookmark) };
        Plan {
            txgs,
            current: (dataset != NOTHING).then_some(current),
            queue,
            again: scan.flags & DSF_VISIT_DS_AGAIN != 0,
            taken: BTreeSet::new(),
            added: BTreeMap::new(),
        }
    }

    /// Whether nothing is left.
    pub(super) fn is_done(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }

    /// The next object set to walk; skips those without wanted blocks.
    pub(super) async fn next(&mut self, mos: &Mos) -> Result<Option<Part>> {
        loop {
            let Some(current) = self.current else {
                let Some((dataset, txg)) = self.queue.pop_first() else { return Ok(None) };
                if self.added.remove(&dataset).is_none() {
                    self.taken.insert(dataset);
                }
                let phys = mos.dataset_phys(dataset).await?;
                let min = if txg == Txg(0) { phys.prev_snapshot_txg } else { txg };
                let max = if phys.is_snapshot() { phys.creation_txg } else { Txg(u64::MAX) };
                let txgs = (min.max(self.txgs.0), max.min(self.txgs.1));
                self.current = Some(Current { dataset, txgs, from: Position::default() });
                continue;
            };
            let Current { dataset, txgs: (born_after, _), from } = current;
            if dataset == MOS {
                let root = mos.pool().uberblock().rootbp;
                return Ok(Some(Part { dataset, root, head: false, born_after, from }));
            }
            if born_after >= self.txgs.1 {
                self.current = None;
                continue;
            }
            let phys = mos.dataset_phys(dataset).await?;
            let head = !phys.is_snapshot();
            return Ok(Some(Part { dataset, root: phys.bp, head, born_after, from }));
        }
    }

    /// Records progress in the current object set.
    pub(super) fn reached(&mut self, from: Position) {
        self.current.iter_mut().for_each(|current| current.from = from);
    }

    /// Ends the current object set and queues its successors.
    pub(super) async fn finish(&mut self, mos: &Mos) -> Result<()> {
        let Some(Current { dataset, txgs, .. }) = self.current.take() else { return Ok(()) };
        if std::mem::take(&mut self.again) {
            return self.wait(mos, dataset, txgs.1).await;
        }
        let (of, born_after) = match dataset {
            MOS => (None, Txg(0)),
            _ => (Some(dataset), mos.dataset_phys(dataset).await?.creation_txg),
        };
        for next in mos.datasets_after(of).await? {
            self.wait(mos, next, born_after).await?;
        }
        Ok(())
    }

    async fn wait(&mut self, mos: &Mos, dataset: DatasetId, born_after: Txg) -> Result<()> {
        let waiting = waiting(mos, dataset, born_after).await?;
        self.queue.insert(dataset, born_after);
        self.added.insert(dataset, waiting);
        self.taken.remove(&dataset);
        Ok(())
    }

    /// The current object set, unless the MOS.
    pub(super) async fn current_dataset(&self, mos: &Mos) -> Result<Option<Waiting>> {
        match self.current.filter(|current| current.dataset != MOS) {
            Some(current) => Ok(Some(waiting(mos, current.dataset, current.txgs.0).await?)),
            None => Ok(None),
        }
    }

    /// The scan's bookmark.
    pub(super) fn bookmark(&self) -> BlockBookmark {
        let none = bookmark(NOTHING, Position::default());
        self.current.map_or(none, |current| bookmark(current.dataset, current.from))
    }
}

async fn waiting(mos: &Mos, dataset: DatasetId, born_after: Txg) -> Result<Waiting> {
    let phys = mos.dataset_phys(dataset).await?;
    let (dir, is_snapshot, creation_txg) = (phys.dir, phys.is_snapshot(), phys.creation_txg);
    Ok(Waiting { dataset, born_after, dir, is_snapshot, creation_txg })
}

/// The bookmark of a position in an object set.
pub(super) fn bookmark(dataset: DatasetId, at: Position) -> BlockBookmark {
    BlockBookmark { dataset, object: at.object, level: 0, block: at.block }
}

/// A bookmark's position. An object set's root has level -1.
pub(super) fn position(bookmark: &BlockBookmark) -> Position {
    match bookmark.level {
        0 => Position { object: bookmark.object, block: bookmark.block },
        _ => Position::default(),
    }
}
