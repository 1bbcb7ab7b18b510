//! The chain of log blocks that starts at the objset's header.
//!
//! ```text
//!   head --> [written] --> [written] --> (foretold)
//!            freed when its records' txgs and that of its successor's place are on disk
//! ```
//!
//! Invariants: the last block is placed but not written; each other block points to its successor. A place is
//! allocated in the txg of its birth, and before that txg is written, the block that points to it is on disk
//! or the chain has ended. So no place leaks: after a power cut it is found by following the chain. No
//! written block is behind an unwritten one: a commit looks only at its own blocks, not at the thousands that
//! the txg has by then.
//!
//! Source: OpenZFS `zil.c` (`zil_sync`, `zil_destroy`).

use std::collections::{BTreeMap, VecDeque};

use cenote_format::blkptr::Blkptr;
use cenote_format::objset::ZilHeader;
use cenote_format::units::Txg;

use crate::zil::claim::FoundLog;

struct Placed {
    bp: Blkptr,
    /// Txg of the allocation. A block found at import may have a birth later than the open txg, because empty
    /// txgs leave no trace on disk.
    placed: Txg,
    /// Last txg of its records and its successor's place.
    last_txg: Txg,
    is_written: bool,
}

pub(crate) struct Chain {
    header: ZilHeader,
    blocks: VecDeque<Placed>,
    /// Data blocks that only records point to, with the txgs of their allocation.
    data: Vec<(Txg, Blkptr)>,
    begun: Txg,
    /// Txg that claims a log found on disk.
    claimed: Txg,
    touched: Txg,
    /// Takes no more records; freed once txgs cover it.
    is_ending: bool,
    /// By txg, the last replayed record in its tree.
    replayed: Option<BTreeMap<Txg, u64>>,
    last_record: u64,
}

pub(crate) struct Settled {
    pub(crate) header: ZilHeader,
    pub(crate) dead: Vec<Blkptr>,
}

impl Chain {
    /// A chain found on disk, to be freed after replay.
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

    /// Commits must write a txg instead.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending
    }

    pub(crate) fn foretold(&self) -> Option<Blkptr> {
        self.blocks.back().map(|last| last.bp)
    }

    /// First txg whose header points to the chain.
    pub(crate) fn begun(&self) -> Option<Txg> {
        self.blocks.back().map(|_| self.begun)
    }

    pub(crate) fn next_record(&mut self) -> u64 {
        self.last_record += 1;
        self.last_record
    }

    /// Adds a block placed in `txg`; its predecessor is about to point to it.
    pub(crate) fn foretell(&mut self, bp: Blkptr, txg: Txg) {
        match self.blocks.back_mut() {
            Some(last) => last.last_txg = txg,
            None => self.begun = txg,
        }
        self.blocks.push_back(Placed { bp, placed: txg, last_txg: txg, is_written: false });
        self.touched = txg;
    }

    pub(crate) fn add_data(&mut self, bp: Blkptr, txg: Txg) {
        self.data.push((txg, bp));
        self.touched = txg;
    }

    /// All but the last block are on disk.
    pub(crate) fn all_written(&mut self) {
        let unwritten = self.blocks.iter_mut().rev().skip(1).take_while(|block| !block.is_written);
        unwritten.for_each(|block| block.is_written = true);
    }

    /// Blocks behind an unwritten one are unreachable.
    pub(crate) fn end(&mut self, txg: Txg) {
        self.is_ending = !self.blocks.is_empty();
        self.touched = self.touched.max(txg);
        let whole = self.blocks.iter().take_while(|block| block.is_written).count();
        self.blocks.iter_mut().skip(whole).for_each(|block| block.is_written = false);
    }

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

    pub(crate) fn is_touched(&self, txg: Txg) -> bool {
        self.touched >= txg
    }

    /// Whether the blocks that point to places up to `txg` are on disk.
    pub(crate) fn is_complete(&self, txg: Txg) -> bool {
        let leads_here = |next: &Placed| next.placed <= txg;
        let mut pairs = self.blocks.iter().zip(self.blocks.iter().skip(1));
        self.is_ending || pairs.all(|(block, next)| block.is_written || !leads_here(next))
    }

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

    /// Takes all blocks; `txg` is the log's last.
    pub(crate) fn abandon(&mut self, txg: Txg) -> Vec<Blkptr> {
        let blocks = self.blocks.drain(..).map(|block| (block.placed, block.bp));
        let blocks: Vec<_> = blocks.chain(self.data.drain(..)).collect();
        // A block of the open txg would be freed before it is allocated, which no import accepts.
        assert!(blocks.iter().all(|(placed, _)| *placed <= txg), "the log has blocks of a later txg");
        blocks.into_iter().map(|(_, bp)| bp).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(chain: &Chain) -> Vec<bool> {
        chain.blocks.iter().map(|block| block.is_written).collect()
    }

    #[test]
    fn all_but_the_last_block_are_written() {
        let mut chain = Chain::of(FoundLog::nothing());
        chain.all_written();
        (0..3).for_each(|_| chain.foretell(Blkptr::HOLE, Txg(7)));
        chain.all_written();
        assert_eq!(written(&chain), [true, true, false]);
        (0..2).for_each(|_| chain.foretell(Blkptr::HOLE, Txg(7)));
        chain.all_written();
        assert_eq!(written(&chain), [true, true, true, true, false]);
    }

    #[test]
    fn a_commit_does_not_visit_the_blocks_of_earlier_ones() {
        // Minutes, if each visited all.
        let mut chain = Chain::of(FoundLog::nothing());
        for _ in 0..500_000 {
            chain.foretell(Blkptr::HOLE, Txg(7));
            chain.all_written();
        }
        assert!(written(&chain)[..499_999].iter().all(|is_written| *is_written));
    }
}
