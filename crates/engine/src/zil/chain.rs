//! The chain of log blocks that the head of the object set leads to.
//!
//! ```text
//!   head --> [written] --> [written] --> (foretold)
//!            freed when its records' txgs and that of its successor's place are on disk
//! ```
//!
//! Invariants: the last block has a place and is not written; each other one leads to its successor. What has
//! a place was allocated in the txg of its birth. When that txg is written, the block that leads there is
//! on disk, or the chain has ended: so no place gets lost, for whoever follows the chain after a power cut
//! finds it.
//!
//! Source: OpenZFS `zil.c` (`zil_sync`, `zil_destroy`).

use std::collections::{BTreeMap, VecDeque};

use cenote_format::blkptr::Blkptr;
use cenote_format::objset::ZilHeader;
use cenote_format::units::Txg;

use crate::zil::claim::FoundLog;

/// A block of the chain.
struct Placed {
    bp: Blkptr,
    /// The txg that it was placed in. One that was found may be born in a later one than is open now:
    /// txgs without changes leave no trace on disk.
    placed: Txg,
    /// The last txg that its records, or its successor's place, belong to.
    last_txg: Txg,
    is_written: bool,
}

/// Where a log is.
pub(crate) struct Chain {
    header: ZilHeader,
    /// From the one that the head leads to.
    blocks: VecDeque<Placed>,
    /// Content in blocks of its own, and the txgs it was placed in: nothing but records leads there. Freed
    /// with that txg.
    data: Vec<(Txg, Blkptr)>,
    /// The txg that its first block was placed in.
    begun: Txg,
    /// The txg that what was found on disk is claimed in.
    claimed: Txg,
    /// The last txg in which anything changed.
    touched: Txg,
    /// Nothing more is written to it: it goes as soon as txgs cover what it holds.
    is_ending: bool,
    /// Progress of the replay that has to come first: by txg, the last record that is in the tree.
    replayed: Option<BTreeMap<Txg, u64>>,
    /// Number of the last record written.
    last_record: u64,
}

/// What a txg leaves of a log.
pub(crate) struct Settled {
    pub(crate) header: ZilHeader,
    /// Blocks to be freed.
    pub(crate) dead: Vec<Blkptr>,
}

impl Chain {
    /// A chain that was found on disk, and is to go when it is replayed.
    pub(crate) fn of(found: FoundLog) -> Chain {
        let placed = |bp| Placed { bp, placed: Txg(0), last_txg: Txg(0), is_written: true };
        Chain {
            is_ending: !found.blocks.is_empty(),
            header: found.header,
            blocks: found.blocks.into_iter().map(placed).collect(),
            data: found.data.into_iter().map(|bp| (Txg(0), bp)).collect(),
            begun: Txg(0),
            claimed: found.claimed,
            touched: found.touched,
            replayed: found.needs_replay.then(BTreeMap::new),
            last_record: 0,
        }
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.replayed.is_some()
    }

    /// Commits can't be written, but only covered by a txg.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// The block that is to be written next.
    pub(crate) fn foretold(&self) -> Option<Blkptr> {
        self.blocks.back().map(|last| last.bp)
    }

    /// The txg whose head leads to it first, if there is a chain.
    pub(crate) fn begun(&self) -> Option<Txg> {
        self.blocks.back().map(|_| self.begun)
    }

    /// A number for the next record.
    pub(crate) fn next_record(&mut self) -> u64 {
        self.last_record += 1;
        self.last_record
    }

    /// A block got its place in txg `txg`; the one before it is about to be written and leads there.
    pub(crate) fn foretell(&mut self, bp: Blkptr, txg: Txg) {
        match self.blocks.back_mut() {
            Some(last) => last.last_txg = txg,
            None => self.begun = txg,
        }
        self.blocks.push_back(Placed { bp, placed: txg, last_txg: txg, is_written: false });
        self.touched = txg;
    }

    /// Content got a block of its own in txg `txg`.
    pub(crate) fn add_data(&mut self, bp: Blkptr, txg: Txg) {
        self.data.push((txg, bp));
        self.touched = txg;
    }

    /// All but the last block are on disk.
    pub(crate) fn all_written(&mut self) {
        let all = self.blocks.len().saturating_sub(1);
        self.blocks.iter_mut().take(all).for_each(|block| block.is_written = true);
    }

    /// No more of it is written. Blocks after one that is missing lead nowhere.
    pub(crate) fn end(&mut self, txg: Txg) {
        self.is_ending = !self.blocks.is_empty();
        self.touched = self.touched.max(txg);
        let whole = self.blocks.iter().take_while(|block| block.is_written).count();
        self.blocks.iter_mut().skip(whole).for_each(|block| block.is_written = false);
    }

    /// A record is in the tree, as of txg `txg`.
    pub(crate) fn note_replayed(&mut self, txg: Txg, sequence: u64) {
        if let Some(replayed) = &mut self.replayed {
            replayed.insert(txg, sequence);
            self.touched = txg;
        }
    }

    pub(crate) fn end_replay(&mut self, txg: Txg) {
        self.replayed = None;
        self.end(txg);
    }

    /// Whether txg `txg` has anything to do with it.
    pub(crate) fn is_touched(&self, txg: Txg) -> bool {
        self.touched >= txg
    }

    /// Whether all blocks are on disk that lead to places of txg `txg` or an earlier one.
    pub(crate) fn is_complete(&self, txg: Txg) -> bool {
        let leads_here = |next: &Placed| next.placed <= txg;
        let mut pairs = self.blocks.iter().zip(self.blocks.iter().skip(1));
        self.is_ending || pairs.all(|(block, next)| block.is_written || !leads_here(next))
    }

    /// SyncingTxg `txg` is being written: what it leaves.
    pub(crate) fn settle(&mut self, txg: Txg) -> Settled {
        if let Some(replayed) = &self.replayed {
            if let Some((_, &sequence)) = replayed.range(..=txg).next_back() {
                self.header.replay_seq = sequence;
            }
            return Settled { header: self.header, dead: Vec::new() };
        }
        if txg <= self.claimed {
            return Settled { header: self.header, dead: Vec::new() };
        }
        while let Some(first) = self.blocks.front()
            && first.is_written
            && first.last_txg <= txg
            && first.placed <= txg
        {
            self.data.extend(self.blocks.pop_front().map(|block| (block.placed, block.bp)));
        }
        if self.is_ending && self.blocks.front().is_none_or(|first| !first.is_written) {
            self.data.extend(self.blocks.drain(..).map(|block| (block.placed, block.bp)));
            self.is_ending = false;
        }
        let (dead, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.data).into_iter().partition(|(placed, _)| *placed <= txg);
        self.data = later;
        let dead = dead.into_iter().map(|(_, bp)| bp).collect();
        let log = self.blocks.front().map_or(Blkptr::HOLE, |first| first.bp);
        self.header = ZilHeader { log, ..ZilHeader::EMPTY };
        Settled { header: self.header, dead }
    }

    /// SyncingTxg `txg` is the last of the log: all its blocks, none of which is of a later txg.
    pub(crate) fn abandon(&mut self, txg: Txg) -> Vec<Blkptr> {
        let blocks = self.blocks.drain(..).map(|block| (block.placed, block.bp));
        let blocks: Vec<_> = blocks.chain(self.data.drain(..)).collect();
        // Freed in `txg`, a block of the open txg would be allocated after it was free: no import believes
        // that.
        assert!(blocks.iter().all(|(placed, _)| *placed <= txg), "the log has blocks of a later txg");
        blocks.into_iter().map(|(_, bp)| bp).collect()
    }
}
