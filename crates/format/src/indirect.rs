//! Indirect vdevs: the map from a removed vdev to the new locations of its blocks.
//!
//! Idea: removal copies every allocated range elsewhere and leaves a table sorted by source offset. A read of
//! the removed vdev looks up each part of its range; parts may lie on another indirect vdev. The table's
//! object holds the entries, its bonus the head. A second object counts each entry's obsolete bytes;
//! condensing drops wholly obsolete entries. A third records the txg of each copied part, for scrubs that
//! repair by birth.
//!
//! Source: OpenZFS `vdev_indirect_mapping.h`, `vdev_indirect_births.h`, `spa_impl.h`.

use crate::blkptr::Dva;
use crate::bytes::Endian;
use crate::error::{FormatError, Result};
use crate::units::{Asize, ObjectId, SPA_MINBLOCKSHIFT, Txg, VdevId};
use crate::words::{Phys, Words, word_struct};

/// Head without counts, `VDEV_INDIRECT_MAPPING_SIZE_V0`.
pub const VDEV_INDIRECT_MAPPING_SIZE_V0: usize = 24;

word_struct! {
    /// Bonus of the table, `vdev_indirect_mapping_phys_t`.
    pub struct IndirectMappingPhys("indirect mapping", bytes: 32, required: 3) {
        /// End of the copied part of the vdev.
        pub max_offset_bytes: u64,
        /// Bytes covered by entries.
        pub bytes_mapped: u64,
        /// Entries.
        pub num_entries: u64,
        /// Object with a 32-bit count of obsolete bytes per entry; 0 if none, or in the old format.
        pub counts_object: ObjectId,
    }
}

/// Table entry, `vdev_indirect_mapping_entry_phys_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectMappingEntry {
    /// Start on the removed vdev.
    pub src_offset_bytes: u64,
    /// New location; its `asize` is the length.
    pub dst: Dva,
}

impl IndirectMappingEntry {
    /// Length.
    pub fn len_bytes(&self) -> u64 {
        self.dst.asize.0
    }

    /// Exclusive end on the removed vdev.
    pub fn src_end_bytes(&self) -> u64 {
        self.src_offset_bytes.saturating_add(self.len_bytes())
    }
}

impl Words for IndirectMappingEntry {
    const COUNT: usize = 3;

    fn take(source: &mut dyn Iterator<Item = u64>) -> Self {
        let src = u64::take(source) & !(1 << 63);
        IndirectMappingEntry { src_offset_bytes: src << SPA_MINBLOCKSHIFT, dst: Dva::take(source) }
    }

    fn put(&self, sink: &mut Vec<u64>) {
        sink.push(self.src_offset_bytes >> SPA_MINBLOCKSHIFT);
        self.dst.put(sink);
    }
}

const _: () = assert!(<IndirectMappingEntry as Words>::COUNT * 8 == 24);

impl Phys for IndirectMappingEntry {
    const WHAT: &'static str = "indirect mapping entry";
    const REQUIRED: usize = 3;
}

/// Decodes obsolete byte counts of consecutive entries.
pub fn decode_obsolete_counts(data: &[u8], endian: Endian) -> impl Iterator<Item = u32> + '_ {
    data.as_chunks::<4>().0.iter().map(move |c| match endian {
        Endian::Little => u32::from_le_bytes(*c),
        Endian::Big => u32::from_be_bytes(*c),
    })
}

/// Table prepared for lookups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndirectMapping {
    entries: Vec<IndirectMappingEntry>,
}

impl IndirectMapping {
    /// Checks and takes the stored entries.
    ///
    /// # Errors
    /// Overlapping or unsorted entries.
    pub fn new(entries: Vec<IndirectMappingEntry>) -> Result<Self> {
        if entries.windows(2).any(|w| w[0].src_end_bytes() > w[1].src_offset_bytes) {
            return Err(FormatError::Corrupt {
                what: "indirect mapping",
                why: "entries overlap or are not sorted",
            });
        }
        Ok(IndirectMapping { entries })
    }

    /// Adds entries behind the existing ones.
    ///
    /// # Errors
    /// Overlapping or unsorted entries.
    pub fn append(&mut self, more: &[IndirectMappingEntry]) -> Result<()> {
        let more = IndirectMapping::new(more.to_vec())?.entries;
        if more.first().is_some_and(|first| first.src_offset_bytes < self.end_bytes()) {
            return Err(FormatError::Corrupt {
                what: "indirect mapping",
                why: "entries overlap or are not sorted",
            });
        }
        self.entries.extend(more);
        Ok(())
    }

    /// End of the copied part.
    pub fn end_bytes(&self) -> u64 {
        self.entries.last().map_or(0, IndirectMappingEntry::src_end_bytes)
    }

    /// Entries by source offset.
    pub fn entries(&self) -> &[IndirectMappingEntry] {
        &self.entries
    }

    /// Current locations of a range of the removed vdev, in order. Empty if any byte is unmapped.
    pub fn resolve(&self, offset_bytes: u64, len: u64) -> Vec<Dva> {
        let Some(end) = offset_bytes.checked_add(len) else { return Vec::new() };
        let first = self.entries.partition_point(|e| e.src_end_bytes() <= offset_bytes);
        let mut pieces = Vec::new();
        let mut at = offset_bytes;
        for entry in &self.entries[first..] {
            if at >= end || entry.src_offset_bytes > at {
                break;
            }
            let skip = at - entry.src_offset_bytes;
            let take = entry.src_end_bytes().min(end) - at;
            let offset_bytes = entry.dst.offset_bytes.saturating_add(skip);
            pieces.push(Dva { offset_bytes, asize: Asize(take), ..entry.dst });
            at += take;
        }
        if at == end { pieces } else { Vec::new() }
    }
}

word_struct! {
    /// Bonus of the births table, `vdev_indirect_birth_phys_t`.
    pub struct IndirectBirthsPhys("indirect births", bytes: 8, required: all) {
        /// Entries.
        pub count: u64,
    }
}

word_struct! {
    /// Txg that copied everything from the previous entry up to `offset_bytes`.
    pub struct IndirectBirth("indirect birth", bytes: 16, required: all) {
        /// Exclusive end.
        pub offset_bytes: u64,
        /// Physical birth of the copies.
        pub phys_birth: Txg,
    }
}

word_struct! {
    /// Condensing in progress, `spa_condensing_indirect_phys_t`, in the MOS directory.
    pub struct CondensingIndirect("condensing indirect", bytes: 24, required: all) {
        /// Vdev being condensed.
        pub vdev: VdevId,
        /// Obsolete ranges to fold in, a space map.
        pub prev_obsolete_sm: ObjectId,
        /// New table.
        pub next_mapping: ObjectId,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::check_phys;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<IndirectMappingPhys>();
        check_phys::<IndirectMappingEntry>();
        check_phys::<IndirectBirthsPhys>();
        check_phys::<IndirectBirth>();
        check_phys::<CondensingIndirect>();
    }

    #[test]
    fn counts_are_32_bits_each() {
        let raw = [1, 0, 0, 0, 0, 1, 0, 0, 9];
        assert_eq!(decode_obsolete_counts(&raw, Endian::Little).collect::<Vec<_>>(), [1, 256]);
    }

    fn entry(src: u64, len: u64, vdev: u64, dst: u64) -> IndirectMappingEntry {
        let dst = Dva { vdev: VdevId(vdev), asize: Asize(len), offset_bytes: dst, gang: false };
        IndirectMappingEntry { src_offset_bytes: src, dst }
    }

    #[test]
    fn a_range_over_two_entries_splits_and_a_gap_is_not_found() {
        let map = IndirectMapping::new(vec![
            entry(0, 4096, 1, 1 << 20),
            entry(4096, 4096, 2, 2 << 20),
            entry(16384, 512, 1, 0),
        ])
        .unwrap();
        let pieces = map.resolve(3584, 1024);
        assert_eq!(pieces, [entry(0, 512, 1, (1 << 20) + 3584).dst, entry(0, 512, 2, 2 << 20).dst]);
        assert!(map.resolve(7680, 1024).is_empty());
        assert!(map.resolve(8192, 512).is_empty());
        assert!(map.resolve(20000, 512).is_empty());
        assert!(IndirectMapping::new(vec![entry(512, 1024, 1, 0), entry(1024, 512, 1, 0)]).is_err());
        let (mut longer, end) = (map.clone(), map.end_bytes());
        assert!(longer.append(&[entry(end - 512, 1024, 1, 0)]).is_err());
        longer.append(&[entry(end, 512, 1, 0), entry(end + 4096, 512, 1, 0)]).unwrap();
        assert_eq!((map.entries().len() + 2, end + 4608), (longer.entries().len(), longer.end_bytes()));
    }

    proptest! {
        #[test]
        fn resolved_pieces_cover_the_range(
            raw in prop::collection::vec(any::<[u64; 3]>(), 0..20),
            offset in any::<u64>(),
            len in 1..u64::MAX,
        ) {
            let entry = |words: &[u64; 3]| IndirectMappingEntry::from_words(words).unwrap();
            let mut entries: Vec<_> = raw.iter().map(entry).collect();
            entries.sort_by_key(|e| e.src_offset_bytes);
            if let Ok(map) = IndirectMapping::new(entries) {
                let pieces = map.resolve(offset, len);
                let sum: u64 = pieces.iter().map(|p| p.asize.0).sum();
                prop_assert!(pieces.is_empty() || sum == len);
            }
        }
    }
}
