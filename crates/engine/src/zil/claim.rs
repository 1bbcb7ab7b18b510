//! Claiming logs at import, before anything else is allocated.
//!
//! Idea: log blocks are allocated in the txg open at the power cut, so space maps on disk lack those younger
//! than the last txg. The first txg after import allocates them, and records in the header where the log
//! ends: nothing beyond counts, even if devices come back later. A log with an unreadable first block is
//! claimed, too: that block may point to others, which may be overwritten.
//!
//! A claimed log owns the blocks that its records share with other files: else an earlier record could free
//! them before replay.
//!
//! Source: OpenZFS `zil.c` (`zil_claim`, `zil_claim_log_block`, `zil_claim_write`, `zil_claim_clone_range`).

use cenote_format::blkptr::Blkptr;
use cenote_format::objset::{ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, ZilHeader};
use cenote_format::units::Txg;
use cenote_object::{IntentLog, Objset, Result};
use cenote_pool::alloc::Allocator;
use cenote_pool::{ReadContext, Zbookmark};

pub(crate) struct FoundLog {
    pub(crate) header: ZilHeader,
    pub(crate) blocks: Vec<Blkptr>,
    pub(crate) data: Vec<Blkptr>,
    /// Blocks in no space map; only in a new log.
    unclaimed: Vec<Blkptr>,
    /// Other files' blocks to own; `data` has them, too.
    pub(crate) to_share: Vec<Blkptr>,
    pub(crate) needs_replay: bool,
    /// Goes on beyond an unreadable block.
    is_cut: bool,
    /// Not claimed before.
    is_new: bool,
    pub(crate) touched: Txg,
    /// The txg that claims its blocks; on disk before any is freed.
    pub(crate) claimed: Txg,
}

impl FoundLog {
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

    /// A log as read; txg `open` is open.
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

    /// A log after a rewind: blocks after txg `last` belong to abandoned txgs, and nothing is replayed
    /// (`zil_clear_log_block`).
    pub(crate) fn stale(log: IntentLog, header: &ZilHeader, last: Txg, open: Txg) -> FoundLog {
        let blocks = log.chain.into_iter().take_while(|bp| bp.allocation_birth() <= last).collect();
        FoundLog { header: *header, blocks, touched: open, ..FoundLog::nothing() }
    }

    pub(crate) fn into_blocks(self) -> Vec<Blkptr> {
        self.blocks.into_iter().chain(self.data).collect()
    }

    /// Whether the next txg must know it, even if the dataset stays closed.
    pub(crate) fn is_pressing(&self) -> bool {
        self.is_new || self.needs_replay || self.is_cut
    }

    /// Allocates blocks younger than the last txg on disk.
    ///
    /// # Errors
    /// Space maps and log contradict each other.
    pub(crate) async fn claim(&mut self, objset: &Objset, space: &Allocator, first: Txg) -> Result<()> {
        let context = ReadContext::new(Zbookmark { dataset: objset.dataset_id(), ..Zbookmark::default() });
        for bp in &self.unclaimed {
            objset.pool().log_blocks().claim(space, bp, &context, first).await?;
        }
        (self.claimed, self.touched) = (first, Txg(first.0 + 1));
        Ok(())
    }
}
