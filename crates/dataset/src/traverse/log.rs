//! Blocks of intent logs.
//!
//! Idea: a log is a chain whose blocks are allocated before they are written; it ends at the first block that
//! does not verify, never written or torn by a power cut. This block counts as live and is no error. The
//! power cut may have hit any copy of a block, so one readable copy suffices.
//!
//! A log is claimed if the pool was opened for writing after the log's last write. In an unclaimed log,
//! blocks born after the uberblock's txg are not allocated in this state, and the chain ends at the first. In
//! a claimed log, blocks up to the header's sequence number count, with the data blocks of their write
//! records; an unreadable one is lost.
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

/// Log to walk.
#[derive(Debug)]
pub struct Log {
    /// Dataset.
    pub dataset: DatasetId,
    /// Header.
    pub header: ZilHeader,
}

/// Blocks of a log.
#[derive(Debug, Default)]
pub struct LogBlocks {
    /// Allocated blocks with their bookmarks. The block number is the log's sequence number or, for a
    /// record's data, the block in the file.
    pub live: Vec<(Blkptr, Zbookmark)>,
    /// Blocks that clones in a claimed log share; after the replay, the clone may be the only owner.
    pub shared: Vec<Blkptr>,
    /// Unreadable claimed blocks.
    pub lost: Vec<Zbookmark>,
}

impl Log {
    /// Walks the chain. Blocks born in or after `first_unsynced` are not part of this state.
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
            // Works with and without a key.
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
                let is_lost = pool.as_stored().read(&bp, &ReadContext::of_log(place, true)).await.is_err();
                found.lost.extend(is_lost.then_some(place));
                found.live.push((bp, place));
            }
            bp = block.next;
        }
        found
    }

    /// Data block of a write record, if log and block were claimed.
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

/// Reads a block of the chain; `None` if never written, or damaged. If the log was claimed with this block,
/// only damage is possible.
async fn read_block(pool: &Pool, bp: &Blkptr, place: Zbookmark, is_claimed: bool) -> Option<LogBlock> {
    let layout = LogLayout::of_checksum(bp.checksum_id())?;
    let bytes = pool.as_stored().read(bp, &ReadContext::of_log(place, is_claimed)).await.ok()?;
    LogBlock::decode(&bytes, layout).ok().filter(|block| block.continues(bp))
}
