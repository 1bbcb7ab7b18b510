//! Block reference table: reference counts of cloned blocks, by address.
//!
//! Idea: each top-level vdev with cloned blocks has an object in the MOS directory, named
//! `com.fudosecurity:brt:vdev:N`. Its bonus is the head below. Its content is an array of 16-bit entry
//! counts, one for each 16 MiB range of the vdev, so most frees need no lookup. The entries are a ZAP from
//! the block's byte offset (one word) to its references beyond the first: 8 bytes in the writer's byte order
//! or, while feature `block_cloning_endian` is active, one number in the ZAP's order. All tables of a pool
//! have the same form.
//!
//! Source: OpenZFS `brt_impl.h`, `brt.c`.

use crate::bytes::Endian;
use crate::units::ObjectId;
use crate::words::word_struct;

/// `BRT_OBJECT_VDEV_PREFIX`: MOS directory key before the vdev number.
pub const BRT_OBJECT_VDEV_PREFIX: &str = "com.fudosecurity:brt:vdev:";

word_struct! {
    /// Bonus of a vdev's table, `brt_vdev_phys_t`.
    pub struct BrtVdevPhys("BRT vdev", bytes: 56, required: all) {
        /// ZAP: entries.
        pub entries_zap: ObjectId,
        /// Number of counts.
        pub range_count: u64,
        /// Byte order of the counts: 0 little, 1 big.
        pub byteorder: u64,
        /// Sum of the counts.
        pub total_count: u64,
        /// Vdev bytes per count.
        pub range_bytes: u64,
        /// Space of the cloned blocks, each once.
        pub used_bytes: u64,
        /// Space saved by further references.
        pub saved_bytes: u64,
    }
}

impl BrtVdevPhys {
    /// Byte order of counts and entry values.
    pub fn endian(&self) -> Endian {
        if self.byteorder == 0 { Endian::Little } else { Endian::Big }
    }

    /// Range of an offset, if the head has one.
    pub fn range_of(&self, offset_bytes: u64) -> Option<u64> {
        offset_bytes.checked_div(self.range_bytes).filter(|&range| range < self.range_count)
    }
}

/// Vdev bytes per count (`BRT_RANGESIZE`).
pub const BRT_RANGE_BYTES: u64 = 16 << 20;

/// Decodes counts of consecutive ranges.
pub fn decode_entry_counts(data: &[u8], endian: Endian) -> impl Iterator<Item = u16> + '_ {
    data.as_chunks::<2>().0.iter().map(move |c| match endian {
        Endian::Little => u16::from_le_bytes(*c),
        Endian::Big => u16::from_be_bytes(*c),
    })
}

/// References to the block at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrtEntry {
    /// Byte offset as in the DVA.
    pub offset_bytes: u64,
    /// References beyond the first.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Phys, check_phys};

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<BrtVdevPhys>();
    }

    #[test]
    fn ranges_are_bounded_by_the_head() {
        let head = BrtVdevPhys::from_words(&[9, 2, 1, 3, 1 << 24, 0, 0]).unwrap();
        assert_eq!(head.range_of((1 << 24) + 5), Some(1));
        assert_eq!(head.range_of(2 << 24), None);
        assert_eq!(BrtVdevPhys { range_bytes: 0, ..head }.range_of(0), None);
        assert_eq!(decode_entry_counts(&[0, 1, 2, 0, 9], head.endian()).collect::<Vec<_>>(), [1, 512]);
    }
}
