//! Block reference table: how often cloned blocks are referenced, by address.
//!
//! Idea: each top-level vdev with cloned blocks has an object in the MOS directory, named
//! `com.fudosecurity:brt:vdev:N`. Its bonus is the head below. Its content is an array of 16-bit counts,
//! one for each range (16 MiB) of the vdev: the number of entries there, so that most frees need no
//! look-up. The entries are a ZAP. Its key is one 64-bit word, the block's offset in bytes. Its value is
//! the number of references beyond the first: 8 bytes in the byte order of the machine that wrote them or,
//! while feature `block_cloning_endian` is active, one number, which has the ZAP's order. All tables of a
//! pool have the same form.
//!
//! Source: OpenZFS `brt_impl.h`, `brt.c`.

use crate::bytes::Endian;
use crate::units::ObjectId;
use crate::words::word_struct;

/// `BRT_OBJECT_VDEV_PREFIX`: prefix of the table's key in the MOS directory; the vdev's number follows.
pub const BRT_OBJECT_VDEV_PREFIX: &str = "com.fudosecurity:brt:vdev:";

word_struct! {
    /// Head of a vdev's table, `brt_vdev_phys_t`: its bonus.
    pub struct BrtVdevPhys("BRT vdev", bytes: 56, required: all) {
        /// ZAP of entries.
        pub entries_zap: ObjectId,
        /// Length of the array of counts.
        pub range_count: u64,
        /// Byte order of the counts: 0 little, 1 big.
        pub byteorder: u64,
        /// Sum of the counts.
        pub total_count: u64,
        /// Bytes of the vdev that one count covers.
        pub range_bytes: u64,
        /// Space of the cloned blocks, each counted once.
        pub used_bytes: u64,
        /// Space that the further references save.
        pub saved_bytes: u64,
    }
}

impl BrtVdevPhys {
    /// Byte order of the array of counts and of the entries' values.
    pub fn endian(&self) -> Endian {
        if self.byteorder == 0 { Endian::Little } else { Endian::Big }
    }

    /// The range that holds a block's offset; `None` if the head has no such range.
    pub fn range_of(&self, offset_bytes: u64) -> Option<u64> {
        offset_bytes.checked_div(self.range_bytes).filter(|&range| range < self.range_count)
    }
}

/// Bytes of the vdev that one count covers (`BRT_RANGESIZE`).
pub const BRT_RANGE_BYTES: u64 = 16 << 20;

/// Decodes counts of consecutive ranges.
pub fn decode_entry_counts(data: &[u8], endian: Endian) -> impl Iterator<Item = u16> + '_ {
    data.as_chunks::<2>().0.iter().map(move |c| match endian {
        Endian::Little => u16::from_le_bytes(*c),
        Endian::Big => u16::from_be_bytes(*c),
    })
}

/// An entry: the number of further references to the block at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrtEntry {
    /// Byte offset on the vdev, as in the block's DVA.
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
