//! Intent log (ZIL): changes acknowledged to synchronous writers since the last txg.
//!
//! Idea: each dataset has a chain of log blocks that starts at its `ZilHeader`. A block holds records and the
//! pointer to the next block, allocated before the block is written; the chain therefore ends at the first
//! block that does not verify. Instead of a checksum, the pointer holds the next block's identity (two random
//! words, the dataset, a sequence number). The block's own checksum lies in its `zio_eck`.
//!
//! Layout: the 184-byte chain structure is at the end of a block with checksum `zilog`, at the start with
//! `zilog2`, so that only the used part is written and read.
//!
//! ```text
//!   zilog   | records ... (used bytes) | ...             | pad 8 | next 128 | used 8 | eck 40 |
//!   zilog2  | pad 8 | next 128 | used 8 | eck 40 | records ... up to used bytes | ... |
//! ```
//!
//! Source: OpenZFS `zil.h`, `zil.c`.

pub mod attr;
pub mod record;

use bytes::Bytes;

pub use record::{ClearRecord, LogRecord, Operation};

use record::LR_BYTES;

use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result};
use crate::gang::{EmbeddedChecksum, ZIO_ECK_BYTES};

/// `sizeof (zil_chain_t)`.
pub const ZIL_CHAIN_BYTES: usize = 8 + BLKPTR_BYTES + 8 + ZIO_ECK_BYTES;
/// Smallest log block, `ZIL_MIN_BLKSZ`.
pub const ZIL_MIN_BLKSZ: usize = 4096;

const _: () = assert!(ZIL_CHAIN_BYTES == 184 && ZIL_CHAIN_BYTES + LR_BYTES <= ZIL_MIN_BLKSZ);
/// Dataset word of a log block's identity, `ZIL_ZC_OBJSET`.
pub const ZIL_ZC_OBJSET: usize = 2;
/// Sequence number word, `ZIL_ZC_SEQ`.
pub const ZIL_ZC_SEQ: usize = 3;

/// Position of the chain structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLayout {
    /// Checksum `ZIO_CHECKSUM_ZILOG`: at the end.
    Tail,
    /// Checksum `ZIO_CHECKSUM_ZILOG2`: at the start.
    Head,
}

impl LogLayout {
    /// Layout of an intent-log checksum algorithm.
    pub fn of_checksum(checksum_id: u8) -> Option<LogLayout> {
        match checksum_id {
            5 => Some(LogLayout::Tail),
            9 => Some(LogLayout::Head),
            _ => None,
        }
    }
}

/// Log block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlock {
    /// Byte order of the block.
    pub endian: Endian,
    /// Next block. Its checksum words are the identity that the block must carry.
    pub next: Blkptr,
    /// Checksum of this block.
    pub eck: EmbeddedChecksum,
    /// Concatenated records.
    pub records: Bytes,
}

impl LogBlock {
    /// Decodes a verified (and decrypted) block.
    pub fn decode(block: &Bytes, layout: LogLayout) -> Result<Self> {
        let chain_at = match layout {
            LogLayout::Head => 0,
            LogLayout::Tail => block.len().saturating_sub(ZIL_CHAIN_BYTES),
        };
        let chain = block.get(chain_at..chain_at + ZIL_CHAIN_BYTES).ok_or(FormatError::Truncated {
            what: "log block",
            need: ZIL_CHAIN_BYTES,
            have: block.len(),
        })?;
        let eck = EmbeddedChecksum::decode(&chain[ZIL_CHAIN_BYTES - ZIO_ECK_BYTES..])?;
        let mut r = Reader::new("log block", chain, eck.endian);
        r.skip(8)?;
        let next = Blkptr::read(&mut r)?;
        let used = r.u64()?;
        let (start, limit) = match layout {
            LogLayout::Head => (ZIL_CHAIN_BYTES, block.len()),
            LogLayout::Tail => (0, chain_at),
        };
        let end = usize::try_from(used).unwrap_or(usize::MAX);
        if end < start || end > limit {
            return Err(FormatError::OutOfRange {
                what: "log block's used bytes",
                value: used,
                bound: limit as u64,
            });
        }
        Ok(LogBlock { endian: eck.endian, next, eck, records: block.slice(start..end) })
    }

    /// Encodes `block_bytes` with the checksum of `eck`.
    ///
    /// # Errors
    /// The records do not fit.
    pub fn encode(&self, layout: LogLayout, block_bytes: usize) -> Result<Vec<u8>> {
        let room = block_bytes.saturating_sub(ZIL_CHAIN_BYTES);
        if self.records.len() > room {
            return Err(FormatError::OutOfRange {
                what: "log block's records",
                value: self.records.len() as u64,
                bound: room as u64,
            });
        }
        let mut w = Writer::new(self.endian);
        if layout == LogLayout::Tail {
            w.bytes(&self.records).pad_to(room);
        }
        w.u64(0);
        self.next.write(&mut w);
        let used = self.records.len() + if layout == LogLayout::Head { ZIL_CHAIN_BYTES } else { 0 };
        w.u64(used as u64);
        self.eck.write(&mut w);
        if layout == LogLayout::Head {
            w.bytes(&self.records).pad_to(block_bytes);
        }
        assert_eq!(w.position(), block_bytes);
        Ok(w.finish())
    }

    /// Whether the next block's identity follows that of `own`, the pointer to this block. Otherwise the
    /// chain ends before this block.
    pub fn continues(&self, own: &Blkptr) -> bool {
        let mut expected = own.checksum();
        expected[ZIL_ZC_SEQ] = expected[ZIL_ZC_SEQ].wrapping_add(1);
        self.next.checksum() == expected
    }

    /// Records in order. The iterator ends after the first error.
    pub fn records(&self) -> impl Iterator<Item = Result<LogRecord>> + '_ {
        self.each(LogRecord::decode)
    }

    /// Unencrypted parts of the records, for callers without the key. The iterator ends after the first
    /// error.
    pub fn clear_records(&self) -> impl Iterator<Item = Result<ClearRecord>> + '_ {
        self.each(ClearRecord::decode)
    }

    fn each<R: 'static>(
        &self,
        decode: fn(&Bytes, Endian) -> Result<(R, usize)>,
    ) -> impl Iterator<Item = Result<R>> + '_ {
        let mut rest = self.records.clone();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let record = decode(&rest, self.endian);
            match &record {
                Ok((_, len)) => rest = rest.slice(*len..),
                Err(_) => rest = Bytes::new(),
            }
            Some(record.map(|(record, _)| record))
        })
    }
}

#[cfg(test)]
mod tests;
