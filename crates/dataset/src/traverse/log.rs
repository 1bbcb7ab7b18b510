//! Blocks of intent logs.
//!
//! Idea: a log is a chain whose blocks are allocated before they are written; it ends at the first block that
//! does not verify. The last pointer leads to a block that is allocated but not written, or torn by a power
//! cut: it counts as live and is not an error. Nor is it known which copies were being written at that
//! moment, so a log block only has to be readable.
//!
//! Which blocks are live depends on whether the log was claimed, that is, whether the pool was opened for
//! writing after the log was last written. If not, blocks born after the uberblock's txg are not allocated in
//! this state of the pool, and the chain ends at the first of them. If so, blocks up to the sequence number
//! in the header count, and so do the data blocks referenced by write records; an unreadable one of these is
//! lost.
//!
//! Source: OpenZFS `zil.c` (`zil_parse`), `dmu_traverse.c` (`traverse_zil`); `zdb.c` and `dsl_scan.c` expect
//! failures, too.

use cenote_format::blkptr::Blkptr;
use cenote_format::objset::ZilHeader;
use cenote_format::units::{BlockId, DatasetId, Txg};
use cenote_format::zil::record::WrittenBlock;
use cenote_format::zil::{LogBlock, LogLayout, ZIL_ZC_SEQ};
use cenote_pool::{Pool, ReadContext, Zbookmark};
use std::collections::HashSet;

/// A log to be walked.
#[derive(Debug)]
pub struct Log {
    /// Its dataset.
    pub dataset: DatasetId,
    /// Its header.
    pub header: ZilHeader,
}

/// The blocks of a log.
#[derive(Debug, Default)]
pub struct LogBlocks {
    /// Allocated blocks with their bookmarks: the block number is the log's sequence number or, for a
    /// record's data, the block in the file.
    pub live: Vec<(Blkptr, Zbookmark)>,
    /// Blocks of others that clones in a claimed log share: once it is replayed, they may be nobody else's.
    pub shared: Vec<Blkptr>,
    /// Claimed blocks that can't be read.
    pub lost: Vec<Zbookmark>,
}

impl Log {
    /// Walks the chain. Blocks born at or after `first_unsynced` are not part of this state of the pool.
    pub async fn blocks(&self, pool: &Pool, first_unsynced: Txg) -> LogBlocks {
        let header = &self.header;
        let claimed = header.is_claimed();
        let mut found = LogBlocks::default();
        let mut seen = HashSet::new();
        let (mut bp, mut last_record) = (header.log, 0);
        while !bp.is_hole() {
            let number = bp.checksum()[ZIL_ZC_SEQ];
            let unsynced = !claimed && bp.allocation_birth() >= first_unsynced;
            if unsynced || number > header.last_block() || !seen.insert(bp.dvas().next()) {
                break;
            }
            let place = Zbookmark { dataset: self.dataset, block: BlockId(number), ..Zbookmark::default() };
            found.live.push((bp, place));
            let is_claimed = claimed && !header.may_end_before(number, last_record);
            let Some(block) = read_block(pool, &bp, place, is_claimed).await else {
                found.lost.extend(is_claimed.then_some(place));
                break;
            };
            // This works with and without a key.
            for record in block.clear_records().map_while(|record| record.ok()) {
                if record.seq > header.last_record() {
                    return found;
                }
                last_record = record.seq;
                if claimed {
                    found.shared.extend(&record.shared);
                }
                let data = record.written.and_then(|written| self.claimed_data(&written));
                let Some((bp, place)) = data.filter(|(bp, _)| seen.insert(bp.dvas().next())) else {
                    continue;
                };
                let is_lost = pool.read_physical(&bp, &ReadContext::of_log(place, true)).await.is_err();
                found.lost.extend(is_lost.then_some(place));
                found.live.push((bp, place));
            }
            bp = block.next;
        }
        found
    }

    /// The data block of a write record, if the log and the block were claimed.
    fn claimed_data(&self, written: &WrittenBlock) -> Option<(Blkptr, Zbookmark)> {
        let WrittenBlock { object, offset_bytes, bp } = *written;
        let is_claimed = self.header.is_claimed() && bp.allocation_birth() >= self.header.claim_txg;
        if !is_claimed || bp.is_hole() || bp.is_embedded() {
            return None;
        }
        let nowhere = Zbookmark { dataset: self.dataset, ..Zbookmark::default() };
        let block = BlockId(offset_bytes / bp.lsize().0.max(1));
        Some((bp, if bp.is_encrypted() { nowhere } else { Zbookmark { object, level: 0, block, ..nowhere } }))
    }
}

/// A block of the chain; `None` if it was never written (or is damaged, which looks the same, and is the only
/// possibility if the log was claimed with it).
async fn read_block(pool: &Pool, bp: &Blkptr, place: Zbookmark, is_claimed: bool) -> Option<LogBlock> {
    let layout = LogLayout::of_checksum(bp.checksum_id())?;
    let bytes = pool.read_physical(bp, &ReadContext::of_log(place, is_claimed)).await.ok()?;
    LogBlock::decode(&bytes, layout).ok().filter(|block| block.continues(bp))
}
