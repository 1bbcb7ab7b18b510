//! The intent log of a dataset: what synchronous writers were promised since the last transaction group.
//!
//! Idea: a chain of blocks from the object set's head. Each block names the next, allocated ahead; the chain ends at the first block
//! that isn't the one foretold (its own checksum and its place in the chain are inside it). What a write record wrote may lie in
//! a block of its own: [`ZilRecords`] reads it.
//!
//! A record counts if its group is later than the one the pool was opened at, and it was not replayed already. An import by
//! OpenZFS first claims a log: it notes the group and how far the chain goes; those then bound what counts.
//!
//! Source: OpenZFS `zil.c` (`zil_parse`, `zil_claim`, `zil_replay`).

use std::collections::VecDeque;

use bytes::Bytes;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_format::zil::record::WriteData;
use cenote_format::zil::{LogBlock, LogLayout, LogRecord, Operation, ZIL_ZC_SEQ};

use crate::error::Result;
use crate::objset::Objset;

/// `ZIL_CLAIM_LR_SEQ_VALID`: the header's `claim_lr_seq` is set.
const ZIL_CLAIM_LR_SEQ_VALID: u64 = 1 << 1;
/// Log blocks of one chain that are followed: 128 GiB of them.
const MAX_BLOCKS: u64 = 1 << 20;

/// A record and what it wrote.
#[derive(Debug, Clone)]
pub struct ZilRecord {
    /// The record.
    pub record: LogRecord,
    /// Of an indirect write: the content of its block, `None` if that is a hole (zeros).
    pub data: Option<Bytes>,
}

/// An iteration over a dataset's intent log.
#[derive(Debug)]
pub struct ZilRecords {
    objset: Objset,
    /// The next block, until the chain has ended.
    next: Option<Blkptr>,
    blocks: u64,
    ready: VecDeque<LogRecord>,
    /// Numbers of the records that count: later than what was replayed, up to what was claimed.
    seqs: std::ops::RangeInclusive<u64>,
    /// The last block of the chain that was claimed.
    last_block_seq: u64,
    /// The first group whose records are not part of the object set.
    first_txg: Txg,
}

impl Objset {
    /// The records of the intent log that are not yet part of the object set, in order.
    ///
    /// The object set must be opened with its key if it is encrypted.
    pub fn intent_log(&self) -> ZilRecords {
        let header = &self.phys().zil_header;
        let claimed = header.claim_txg.0 != 0;
        let bounded = claimed && header.flags & ZIL_CLAIM_LR_SEQ_VALID != 0;
        ZilRecords {
            objset: self.clone(),
            next: Some(header.log).filter(|log| !log.is_hole()),
            blocks: 0,
            ready: VecDeque::new(),
            seqs: header.replay_seq.saturating_add(1)..=if bounded { header.claim_lr_seq } else { u64::MAX },
            last_block_seq: if claimed { header.claim_blk_seq } else { u64::MAX },
            first_txg: if claimed { header.claim_txg } else { Txg(self.pool().uberblock().txg.0 + 1) },
        }
    }
}

impl ZilRecords {
    /// The next record; `None` at the end of the log.
    ///
    /// An error is of a record's own block (the log goes on behind it) or of the chain (it ends).
    pub async fn next(&mut self) -> Option<Result<ZilRecord>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                if record.txg < self.first_txg || !self.seqs.contains(&record.seq) {
                    continue;
                }
                return Some(self.resolve(record).await);
            }
            let own = self.next.take()?;
            if let Err(error) = self.read_block(own).await {
                return Some(Err(error));
            }
        }
    }

    /// The block pointers of the chain itself, each followed by those that its write records name.
    ///
    /// # Errors
    /// A block of the chain is there and makes no sense.
    pub async fn blocks(mut self) -> Result<Vec<Blkptr>> {
        let mut found = Vec::new();
        while let Some(own) = self.next.take() {
            let before = self.blocks;
            self.read_block(own).await?;
            if self.blocks > before {
                found.push(own);
            }
            for record in self.ready.drain(..).filter(|r| r.txg >= self.first_txg) {
                match record.operation {
                    Operation::Write { bp, data: WriteData::Indirect, .. } if !bp.is_hole() => found.push(bp),
                    Operation::CloneRange { blocks, .. } => found.extend(blocks),
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// Reads a block of the chain; one that can't be read, or is another, is the chain's end.
    async fn read_block(&mut self, own: Blkptr) -> Result<()> {
        let Some(layout) = LogLayout::of_checksum(own.checksum_id()) else { return Ok(()) };
        if self.blocks >= MAX_BLOCKS {
            return Err(self.objset.damaged(ObjectId(0), "the intent log has no end"));
        }
        let seq = own.checksum()[ZIL_ZC_SEQ];
        if seq > self.last_block_seq {
            return Ok(());
        }
        let ctx = self.objset.context(ObjectId(0), 0, BlockId(seq));
        let bytes = match self.objset.pool().read_log_block(&own, &ctx).await {
            Ok(bytes) => bytes,
            Err(error @ (cenote_pool::PoolError::NoKey { .. } | cenote_pool::PoolError::Decrypt { .. })) => {
                return Err(error.into());
            }
            Err(_) => return Ok(()),
        };
        let Ok(block) = LogBlock::decode(&bytes, layout) else { return Ok(()) };
        if !block.continues(&own) {
            return Ok(());
        }
        self.blocks += 1;
        for record in block.records() {
            self.ready.push_back(record.map_err(|e| self.objset.format(ObjectId(0), e))?);
        }
        self.next = Some(block.next).filter(|next| !next.is_hole());
        Ok(())
    }

    async fn resolve(&self, record: LogRecord) -> Result<ZilRecord> {
        let data = match &record.operation {
            Operation::Write { object, bp, data: WriteData::Indirect, .. } if !bp.is_hole() => {
                let ctx = self.objset.context(*object, 0, BlockId(0));
                Some(self.objset.pool().read(bp, &ctx).await?)
            }
            _ => None,
        };
        Ok(ZilRecord { record, data })
    }
}
