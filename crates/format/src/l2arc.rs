//! Cache devices (L2ARC): headers and logs that make the cached blocks usable after an import.
//!
//! ```text
//!   0 labels, boot area   4 MiB header   | payload ... log block | payload ... log block |   end: labels
//!                           |                             ^  |                     ^
//!                           |     the one before it ------'  '--- [1]              |
//!                           '----------------------------------------- [0] --------'
//! ```
//!
//! Idea: the device is a ring. After every `log_entries` blocks, a log block lists them. Log blocks form two
//! interleaved chains, so two can be read at a time: the header points to the newest of each chain, and each
//! log block points two back. Blocks behind the eviction hand are invalid.
//!
//! A block is identified by its first address and birth; the pointer that reads it has the checksum.
//!
//! Source: OpenZFS `arc_impl.h` (`l2arc_dev_hdr_phys_t`, `l2arc_log_blk_phys_t`, `l2arc_log_ent_phys_t`),
//! `arc.c` (`l2arc_log_blkptr_valid`).

use crate::blkptr::Dva;
use crate::bytes::Endian;
use crate::error::{FormatError, Result};
use crate::gang::ZIO_ECK_BYTES;
use crate::units::{Guid, PhysicalBirth, SPA_MINBLOCKSHIFT};
use crate::words::{Pad, Phys, Words, word_struct};

/// `L2ARC_DEV_HDR_MAGIC`, "ZFSCACHE".
pub const L2ARC_DEV_HDR_MAGIC: u64 = 0x5a46_5343_4143_4845;
/// `L2ARC_LOG_BLK_MAGIC`, "LOGBLKHD".
pub const L2ARC_LOG_BLK_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
/// `L2ARC_PERSISTENT_VERSION`.
pub const L2ARC_PERSISTENT_VERSION: u64 = 1;
/// `L2ARC_LOG_BLK_MAX_ENTRIES`.
pub const L2ARC_LOG_BLK_MAX_ENTRIES: usize = 1022;
/// `L2ARC_DEV_HDR_EVICT_FIRST`: the first round is not complete.
pub const L2ARC_DEV_HDR_EVICT_FIRST: u64 = 1;
/// Header with checksum; padded to a sector if larger.
pub const L2ARC_DEV_HDR_BYTES: usize = 512;
/// Uncompressed log block.
pub const L2ARC_LOG_BLK_BYTES: usize = 64 << 10;
/// Bytes before the entries.
const LOG_BLK_HEAD_BYTES: usize = 128;

word_struct! {
    /// Location of a log block, `l2arc_log_blkptr_t`.
    pub struct LogPointer("L2ARC log pointer", bytes: 64, required: all) {
        /// Byte offset on the device.
        pub at_bytes: u64,
        /// Device bytes of its blocks.
        pub payload_asize: u64,
        /// Byte offset of its first block.
        pub payload_start_bytes: u64,
        /// Sizes, compression and checksum algorithm.
        pub prop: Prop,
        /// Fletcher-4 of the stored bytes.
        pub checksum: [u64; 4],
    }
}

word_struct! {
    /// Header of a cache device, `l2arc_dev_hdr_phys_t`, without its checksum.
    pub struct DeviceHeader("L2ARC device header", bytes: 472, required: all) {
        /// `L2ARC_DEV_HDR_MAGIC`.
        pub magic: u64,
        /// `L2ARC_PERSISTENT_VERSION`.
        pub version: u64,
        /// Pool guid.
        pub pool: Guid,
        /// Device guid.
        pub vdev: Guid,
        /// Entries per log block.
        pub log_entries: u64,
        /// Eviction hand: the previous round's data are gone up to here.
        pub evict_bytes: u64,
        /// `L2ARC_DEV_HDR_*`.
        pub flags: u64,
        /// Start of the ring.
        pub start_bytes: u64,
        /// End of the ring.
        pub end_bytes: u64,
        /// Newest log block and its predecessor.
        pub newest: [LogPointer; 2],
        /// Bytes of all log blocks.
        pub log_asize: u64,
        /// Number of log blocks.
        pub log_count: u64,
        /// Last TRIM of the whole device, seconds since 1970.
        pub trim_time_s: u64,
        /// `vdev_trim_state_t`.
        pub trim_state: u64,
        /// Unused.
        pub pad: Pad<30>,
    }
}

word_struct! {
    /// Cached block, `l2arc_log_ent_phys_t`.
    pub struct LogEntry("L2ARC log entry", bytes: 64, required: all) {
        /// First address in the pool.
        pub dva: Dva,
        /// Birth.
        pub birth: PhysicalBirth,
        /// Sizes, compression and kind.
        pub prop: Prop,
        /// Byte offset on the device.
        pub at_bytes: u64,
        /// Compression level, `ZIO_COMPLEVEL_*`.
        pub level: u64,
        /// Unused.
        pub pad: Pad<2>,
    }
}

const _: () = {
    assert!(DeviceHeader::COUNT * 8 + ZIO_ECK_BYTES == L2ARC_DEV_HDR_BYTES);
    assert!(LOG_BLK_HEAD_BYTES + L2ARC_LOG_BLK_MAX_ENTRIES * LogEntry::COUNT * 8 <= L2ARC_LOG_BLK_BYTES);
};

/// Packed properties of a block, `le_prop` and `lbp_prop`.
///
/// ```text
///   bit 0 lsize (16)   16 psize (16)   32 compression (7)   39 prefetch   40 checksum (8)
///      48 type + 1 (8)   56 protected   57 ARC state (4)
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Prop(pub u64);

impl Words for Prop {
    const COUNT: usize = 1;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        Prop(u64::take(source))
    }

    fn put(&self, sink: &mut Vec<u64>) {
        sink.push(self.0);
    }
}

/// Decoded [`Prop`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PropParts {
    /// Uncompressed bytes: 512-byte sectors, up to 32 MiB.
    pub lsize_bytes: u64,
    /// Stored bytes, likewise; for a log block, padded to the sector.
    pub psize_bytes: u64,
    /// `ZIO_COMPRESS_*`.
    pub compression: u8,
    /// Prefetched and not read since.
    pub is_prefetch: bool,
    /// `ZIO_CHECKSUM_*`; log blocks only.
    pub checksum: u8,
    /// Metadata (`ARC_BUFC_METADATA`).
    pub is_metadata: bool,
    /// Encrypted or authenticated.
    pub is_protected: bool,
    /// ARC list of origin, `arc_state_type_t`.
    pub state: u8,
}

impl Prop {
    /// Encodes the parts.
    pub fn of(parts: PropParts) -> Prop {
        let size = |bytes: u64| {
            debug_assert!(bytes > 0 && bytes <= 1 << (16 + SPA_MINBLOCKSHIFT), "{bytes}");
            (bytes >> SPA_MINBLOCKSHIFT).saturating_sub(1) & 0xffff
        };
        let type_number = u64::from(parts.is_metadata) + 1;
        Prop(
            size(parts.lsize_bytes)
                | size(parts.psize_bytes) << 16
                | u64::from(parts.compression & 0x7f) << 32
                | u64::from(parts.is_prefetch) << 39
                | u64::from(parts.checksum) << 40
                | type_number << 48
                | u64::from(parts.is_protected) << 56
                | u64::from(parts.state & 0xf) << 57,
        )
    }

    /// Decodes the word.
    pub fn parts(self) -> PropParts {
        let bits = |low: u32, len: u32| self.0 >> low & ((1 << len) - 1);
        PropParts {
            lsize_bytes: (bits(0, 16) + 1) << SPA_MINBLOCKSHIFT,
            psize_bytes: (bits(16, 16) + 1) << SPA_MINBLOCKSHIFT,
            compression: bits(32, 7) as u8,
            is_prefetch: bits(39, 1) != 0,
            checksum: bits(40, 8) as u8,
            is_metadata: bits(48, 8) == 2,
            is_protected: bits(56, 1) != 0,
            state: bits(57, 4) as u8,
        }
    }
}

impl DeviceHeader {
    /// Decodes a verified header in either byte order.
    ///
    /// # Errors
    /// Not a header.
    pub fn decode_any(sector: &[u8]) -> Result<DeviceHeader> {
        DeviceHeader::decode(sector, order(sector, L2ARC_DEV_HDR_MAGIC, DeviceHeader::WHAT)?)
    }

    /// Encodes a sector; the caller adds the checksum at its end.
    pub fn encode_sector(&self, sector_bytes: usize) -> Vec<u8> {
        let mut sector = self.encode(Endian::Little);
        sector.resize(sector_bytes.max(L2ARC_DEV_HDR_BYTES), 0);
        sector
    }
}

/// Log block, `l2arc_log_blk_phys_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlock {
    /// Log block two back.
    pub previous: LogPointer,
    /// Oldest first; the header's `log_entries` gives the number.
    pub entries: Vec<LogEntry>,
}

impl LogBlock {
    /// Decodes the first `count` entries of a verified, decompressed log block.
    ///
    /// # Errors
    /// Not a log block, or too short.
    pub fn decode(block: &[u8], count: usize) -> Result<LogBlock> {
        const WHAT: &str = "L2ARC log block";
        let endian = order(block, L2ARC_LOG_BLK_MAGIC, WHAT)?;
        let count = count.min(L2ARC_LOG_BLK_MAX_ENTRIES);
        let need = LOG_BLK_HEAD_BYTES + count * LogEntry::COUNT * 8;
        let truncated = FormatError::Truncated { what: WHAT, need, have: block.len() };
        let entries = block.get(LOG_BLK_HEAD_BYTES..need).ok_or(truncated)?;
        let entries = entries.chunks_exact(LogEntry::COUNT * 8);
        Ok(LogBlock {
            previous: LogPointer::decode(&block[8..], endian)?,
            entries: entries.map(|entry| LogEntry::decode(entry, endian)).collect::<Result<_>>()?,
        })
    }

    /// Encodes the 64 KiB.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() <= L2ARC_LOG_BLK_MAX_ENTRIES, "a log block has no room for that");
        let mut words = vec![L2ARC_LOG_BLK_MAGIC];
        self.previous.put(&mut words);
        words.resize(LOG_BLK_HEAD_BYTES / 8, 0);
        self.entries.iter().for_each(|entry| entry.put(&mut words));
        words.resize(L2ARC_LOG_BLK_BYTES / 8, 0);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

fn order(data: &[u8], magic: u64, what: &'static str) -> Result<Endian> {
    let found = data.first_chunk().copied().unwrap_or_default();
    Endian::of_magic(magic, found).ok_or(FormatError::BadMagic { what, found: u64::from_le_bytes(found) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::VdevId;
    use crate::words::check_phys;

    #[test]
    fn words_come_back() {
        check_phys::<LogPointer>();
        check_phys::<DeviceHeader>();
        check_phys::<LogEntry>();
    }

    #[test]
    fn parts_of_a_word_come_back_and_lie_where_openzfs_has_them() {
        let parts = PropParts {
            lsize_bytes: 128 << 10,
            psize_bytes: 4096,
            compression: 15,
            is_prefetch: true,
            checksum: 7,
            is_metadata: true,
            is_protected: true,
            state: 3,
        };
        assert_eq!(Prop::of(parts).parts(), parts);
        assert_eq!(
            Prop::of(parts).0,
            255 | 7 << 16 | 15 << 32 | 1 << 39 | 7 << 40 | 2 << 48 | 1 << 56 | 3 << 57
        );
    }

    #[test]
    fn a_log_block_comes_back_in_both_byte_orders() {
        let entry = |n: u64| LogEntry {
            dva: Dva { vdev: VdevId(n), offset_bytes: n << 12, ..Dva::default() },
            birth: PhysicalBirth(n),
            prop: Prop(n),
            at_bytes: n << 20,
            level: 0,
            pad: Pad,
        };
        let previous = LogPointer { at_bytes: 7, checksum: [1, 2, 3, 4], ..LogPointer::zeroed() };
        let block = LogBlock { previous, entries: (0..1022).map(entry).collect() };
        let bytes = block.encode();
        assert_eq!(bytes.len(), L2ARC_LOG_BLK_BYTES);
        assert_eq!(LogBlock::decode(&bytes, 1022), Ok(block.clone()));
        let swapped: Vec<u8> = bytes.chunks(8).flat_map(|word| word.iter().rev().copied()).collect();
        assert_eq!(LogBlock::decode(&swapped, 3).map(|b| b.entries), Ok(block.entries[..3].to_vec()));
        assert!(LogBlock::decode(&bytes[..4096], 1022).is_err());
        assert!(LogBlock::decode(&[0; 65536], 1).is_err());
    }
}
