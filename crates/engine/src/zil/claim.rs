//! Logs that an import finds: their blocks are claimed before anything else is allocated.
//!
//! Idea: blocks of a log are allocated in the txg that was open when the power went, so no space map on disk
//! knows of those that are younger than the last txg. The first txg after the import notes them, and in the
//! head that the log was claimed and how far it goes: even if devices come back later, nothing beyond is ever
//! taken for a part of it. So a log whose first block can't be read is claimed, too: that block may lead to
//! others, which nobody keeps from being written over.
//!
//! A claimed log owns what its records share of other files: else it might be freed before they are replayed,
//! by a record before them.
//!
//! Source: OpenZFS `zil.c` (`zil_claim`, `zil_claim_log_block`, `zil_claim_write`, `zil_claim_clone_range`).

use cenote_format::blkptr::Blkptr;
use cenote_format::objset::{ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, ZilHeader};
use cenote_format::units::Txg;
use cenote_object::{IntentLog, Objset, Result};
use cenote_pool::alloc::Allocator;
use cenote_pool::{ReadContext, Zbookmark};

/// What was on disk when a dataset was opened.
pub(crate) struct FoundLog {
    pub(crate) header: ZilHeader,
    pub(crate) blocks: Vec<Blkptr>,
    pub(crate) data: Vec<Blkptr>,
    /// Blocks that no space map has: none, if it is not new.
    unclaimed: Vec<Blkptr>,
    /// Blocks of other files that it is to become an owner of; `data` has them, too.
    pub(crate) to_share: Vec<Blkptr>,
    pub(crate) needs_replay: bool,
    /// It goes on where it can't be read.
    is_cut: bool,
    /// It had not been claimed.
    is_new: bool,
    /// The txg that changes it: the open one, if there is anything to change.
    pub(crate) touched: Txg,
    /// The txg that its blocks are claimed in, if they are: it is on disk before any is freed.
    pub(crate) claimed: Txg,
}

impl FoundLog {
    /// No log.
    pub(crate) fn nothing() -> FoundLog {
        let (blocks, data, unclaimed, to_share) = Default::default();
        FoundLog {
            header: ZilHeader::EMPTY,
            blocks,
            data,
            unclaimed,
            to_share,
            needs_replay: false,
            is_cut: false,
            is_new: false,
            touched: Txg(0),
            claimed: Txg(0),
        }
    }

    /// A log that was read, with txg `open` being the open one.
    pub(crate) fn of(log: IntentLog, header: &ZilHeader, open: Txg) -> FoundLog {
        let mut header = *header;
        let (needs_replay, is_cut) = (!log.records.is_empty(), log.damaged.is_some());
        let is_unclaimed = |bp: &&Blkptr| !header.is_claimed() && bp.allocation_birth() >= open;
        let unclaimed: Vec<Blkptr> =
            log.chain.iter().chain(&log.data).filter(is_unclaimed).copied().collect();
        let (mut data, mut to_share) = (log.data, Vec::new());
        let is_new = !header.is_claimed() && !header.log.is_hole();
        if is_new {
            to_share.clone_from(&log.clones);
            header.claim_txg = open;
            header.claim_blk_seq = log.last_block;
            header.claim_lr_seq = log.last_record;
            header.flags |= ZIL_CLAIM_LR_SEQ_VALID | if needs_replay { ZIL_REPLAY_NEEDED } else { 0 };
        }
        if header.is_claimed() {
            data.extend(log.clones);
        }
        FoundLog {
            header,
            blocks: log.chain,
            data,
            unclaimed,
            to_share,
            needs_replay,
            is_cut,
            is_new,
            touched: open,
            claimed: Txg(0),
        }
    }

    /// A log of an older state that was gone back to: what it leads to after txg `last` is of a time that
    /// is no more, and none of it is replayed (`zil_clear_log_block`).
    pub(crate) fn stale(log: IntentLog, header: &ZilHeader, last: Txg, open: Txg) -> FoundLog {
        let blocks = log.chain.into_iter().take_while(|bp| bp.allocation_birth() <= last).collect();
        FoundLog { header: *header, blocks, touched: open, ..FoundLog::nothing() }
    }

    /// All that it has: it is given up.
    pub(crate) fn into_blocks(self) -> Vec<Blkptr> {
        self.blocks.into_iter().chain(self.data).collect()
    }

    /// Whether the next txg has to know of it, even if nobody opens the dataset.
    pub(crate) fn is_pressing(&self) -> bool {
        self.is_new || self.needs_replay || self.is_cut
    }

    /// Allocates, in txg `first`, what is younger than the last txg on disk.
    ///
    /// # Errors
    /// A place is taken: space maps and log contradict each other.
    pub(crate) async fn claim(&mut self, objset: &Objset, space: &Allocator, first: Txg) -> Result<()> {
        let context = ReadContext::new(Zbookmark { dataset: objset.dataset_id(), ..Zbookmark::default() });
        for bp in &self.unclaimed {
            objset.pool().claim(space, bp, &context, first).await?;
        }
        (self.claimed, self.touched) = (first, Txg(first.0 + 1));
        Ok(())
    }
}
