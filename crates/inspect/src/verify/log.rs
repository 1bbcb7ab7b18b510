//! Blocks of intent logs.
//!
//! Idea: a log is a chain, each block allocated before it is written; it ends where a block does not verify. The last pointer leads to
//! a block that is allocated and holds nothing yet: it counts as live, and is not verified.
//!
//! Which blocks are live depends on whether the log was claimed, that is, whether the pool was opened for writing after the log
//! was last written. If not, blocks born after the uberblock's group are not allocated in this state of the pool, and
//! the chain ends at the first of them. If so, blocks up to the number in the header count, and so do the data blocks that
//! write records point to.
//!
//! Source: OpenZFS `zil.c` (`zil_parse`), `dmu_traverse.c` (`traverse_zil`).

use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::objset::ZilHeader;
use cenote_format::units::{BlockId, DatasetId, Txg};
use cenote_format::zil::{LogBlock, LogLayout, Operation, ZIL_ZC_SEQ};
use cenote_pool::{Place, Pool, ReadContext};
use std::collections::HashSet;

/// A log to be walked.
#[derive(Debug)]
pub(super) struct Log {
    /// Whose log.
    pub(super) dataset: DatasetId,
    /// Where it starts.
    pub(super) header: ZilHeader,
}

/// A live block of a log.
#[derive(Debug)]
pub(super) struct LogPointer {
    /// The block.
    pub(super) bp: Blkptr,
    /// Its log; the block number is the log's own count, or of a record's data, that in the file.
    pub(super) place: Place,
    /// It has been written.
    pub(super) written: bool,
}

impl Log {
    /// Walks the chain. Blocks born at or after `first_unsynced` are not part of this state of the pool.
    pub(super) async fn blocks(&self, pool: &Pool, first_unsynced: Txg) -> Vec<LogPointer> {
        let header = &self.header;
        let (claimed, last_block) = (header.is_claimed(), header.last_block());
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut bp = header.log;
        while !bp.is_hole() {
            let number = bp.checksum()[ZIL_ZC_SEQ];
            let unsynced = !claimed && bp.logical_birth() >= first_unsynced;
            if unsynced || number > last_block || !seen.insert(bp.dvas().next()) {
                break;
            }
            let place = Place { dataset: self.dataset, block: BlockId(number), ..Place::default() };
            let block = read_block(pool, &bp, place).await;
            found.push(LogPointer { bp, place, written: block.is_some() });
            let Some(block) = block else { break };
            if claimed && !self.data_blocks(&block, &mut seen, &mut found) {
                break;
            }
            bp = block.next;
        }
        found
    }

    /// Adds what the write records of a block point to; `false` if the log ends in it.
    fn data_blocks(
        &self,
        block: &LogBlock,
        seen: &mut HashSet<Option<Dva>>,
        found: &mut Vec<LogPointer>,
    ) -> bool {
        for record in block.records() {
            let Ok(record) = record else { return true };
            if record.seq > self.header.last_record() {
                return false;
            }
            let Operation::Write { already_synced: false, object, offset_bytes, bp, .. } = record.operation
            else {
                continue;
            };
            let new = !bp.is_hole() && bp.logical_birth() >= self.header.claim_txg;
            if new && seen.insert(bp.dvas().next()) {
                let block = BlockId(offset_bytes / bp.lsize().0.max(1));
                let place = Place { dataset: self.dataset, object, level: 0, block };
                found.push(LogPointer { bp, place, written: true });
            }
        }
        true
    }
}

/// A block of the chain; `None` if it was never written (or is damaged: there is no telling).
async fn read_block(pool: &Pool, bp: &Blkptr, place: Place) -> Option<LogBlock> {
    let layout = LogLayout::of_checksum(bp.checksum_id())?;
    let bytes = pool.read_physical(bp, &ReadContext::new(place)).await.ok()?;
    LogBlock::decode(&bytes, layout).ok().filter(|block| block.continues(bp))
}
