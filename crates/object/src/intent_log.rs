//! Reading the intent log (ZIL) of a dataset: records made durable after the last txg.
//!
//! Idea: the object set's head points to the first block of a chain. Each block names its successor, which
//! may not be written yet: every chain ends at a block without the identity that its pointer demands. This
//! reads the records that the kernel would replay on import: of txgs not synced, and not replayed before.
//!
//! ```text
//!   objset head: claim txg, replayed seq, first block --> [records | next] --> [records | next] --> (none)
//! ```
//!
//! Memory: the log's records, at most [`MAX_LOG_BYTES`].
//!
//! Source: OpenZFS `zil.c` (`zil_parse`, `zil_read_log_block`, `zil_replay_log_record`).

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_format::zil::record::{LogRecord, Operation, WriteData};
use cenote_format::zil::{LogBlock, LogLayout, ZIL_ZC_SEQ};
use cenote_pool::{PoolError, ReadContext};

use crate::error::{DatasetError, Result};
use crate::objset::Objset;

/// Most bytes of log blocks read; a log has the writes of a few txgs.
pub const MAX_LOG_BYTES: u64 = 4 << 30;

/// A log, read to its end.
#[derive(Debug, Clone, Default)]
pub struct IntentLog {
    /// Records to replay, in order.
    pub records: Vec<LogRecord>,
    /// Records in the tree already.
    pub synced: u64,
    /// Blocks in the chain.
    pub blocks: u64,
    /// The chain, with the successor of its last block.
    pub chain: Vec<Blkptr>,
    /// Data blocks written since the log began.
    pub data: Vec<Blkptr>,
    /// Blocks shared with other files, once per share.
    pub clones: Vec<Blkptr>,
    /// Number of the last block of `chain`.
    pub last_block: u64,
    /// Number of the last record, also if synced.
    pub last_record: u64,
    /// A device error, a damaged claimed block, or an invalid record.
    pub damaged: Option<DatasetError>,
}

impl Objset {
    /// Reads the log of a live dataset: a snapshot's head may still name one long gone. Encrypted records
    /// need the set's key.
    #[boxed]
    pub async fn intent_log(&self) -> IntentLog {
        let header = &self.phys().zil_header;
        let claimed = header.is_claimed();
        // An import claims the log in the txg after this uberblock's.
        let first_txg = if claimed { header.claim_txg } else { Txg(self.pool().uberblock().txg.0 + 1) };
        let (last_block, last_record) = (header.last_block(), header.last_record());

        let mut log = IntentLog::default();
        let mut bp = header.log;
        let mut bytes = 0;
        while !bp.is_hole() && bp.checksum()[ZIL_ZC_SEQ] <= last_block && bytes < MAX_LOG_BYTES {
            bytes += bp.lsize().0;
            log.chain.push(bp);
            log.last_block = bp.checksum()[ZIL_ZC_SEQ];
            let is_claimed = claimed && !header.may_end_before(log.last_block, log.last_record);
            let block = match self.read_log_block(&bp, is_claimed).await {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(error) => {
                    let is_end = if claimed { !is_claimed } else { is_torn(&error) };
                    log.damaged = (!is_end).then_some(error);
                    break;
                }
            };
            log.blocks += 1;
            for record in block.records() {
                let record = match record {
                    Ok(record) if record.seq > last_record => return log,
                    Ok(record) => record,
                    Err(source) => {
                        log.damaged = Some(self.format(ObjectId(0), source));
                        return log;
                    }
                };
                if let Some(data) = content_of(&record).filter(|bp| bp.allocation_birth() >= first_txg) {
                    // A block that did not reach the disk was never acknowledged.
                    if !claimed && let Err(error) = self.read_stored(&data).await {
                        log.damaged = (!is_torn(&error)).then_some(error);
                        return log;
                    }
                    log.data.extend((!log.data.contains(&data)).then_some(data));
                }
                if let Operation::CloneRange { blocks, .. } = &record.operation {
                    let shared = blocks.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded());
                    if shared.clone().any(|bp| bp.physical_birth().txg() >= first_txg) {
                        return log;
                    }
                    log.clones.extend(shared);
                }
                log.last_record = record.seq;
                match record.seq <= header.replay_seq || record.txg < first_txg {
                    true => log.synced += 1,
                    false => log.records.push(record),
                }
            }
            bp = block.next;
        }
        log
    }

    async fn read_stored(&self, bp: &Blkptr) -> Result<Bytes> {
        let context = ReadContext::of_log(self.place(ObjectId(0), 0, BlockId(0)), false);
        Ok(self.pool().as_stored().read(bp, &context).await?)
    }

    /// Reads one block of the chain; `None`: another block is there, the end. Unless it is known to be
    /// claimed (`is_claimed`), it may never have been written, and no device is blamed.
    ///
    /// # Errors
    /// Unreadable block; no log block.
    #[boxed]
    pub async fn read_log_block(&self, bp: &Blkptr, is_claimed: bool) -> Result<Option<LogBlock>> {
        let Some(layout) = LogLayout::of_checksum(bp.checksum_id()) else {
            return Err(self.damaged(ObjectId(0), "an intent log block has another checksum than logs have"));
        };
        let place = self.place(ObjectId(0), 0, BlockId(bp.checksum()[ZIL_ZC_SEQ]));
        let context = ReadContext::of_log(place, is_claimed).with_key(self.key().cloned());
        let block: Bytes = self.pool().log_blocks().read(bp, &context).await?;
        let block = LogBlock::decode(&block, layout).map_err(|source| self.format(ObjectId(0), source))?;
        Ok(block.continues(bp).then_some(block))
    }
}

/// Whether a block is missing or torn by a power cut. After a device error it may be whole.
fn is_torn(error: &DatasetError) -> bool {
    matches!(error, DatasetError::Pool(PoolError::Checksum { .. }))
}

/// The data block of a record.
fn content_of(record: &LogRecord) -> Option<Blkptr> {
    match &record.operation {
        Operation::Write { bp, data: WriteData::Indirect, .. } if !bp.is_hole() => Some(*bp),
        _ => None,
    }
}
