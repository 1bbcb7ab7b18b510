//! Indirect vdevs: where the blocks of a removed vdev went.
//!
//! Idea: removal copies every allocated range elsewhere and leaves a table, sorted by source offset. A
//! block on the removed vdev is found by looking up each part of its range; parts may in turn lie on
//! another indirect vdev. The table's object holds the entries; its bonus is the head. A second object
//! counts the obsolete bytes of each entry; condensing drops entries that are wholly obsolete. A third
//! object says in which txg each part was copied, for scrubs that repair by birth.
//!
//! Source: OpenZFS `vdev_indirect_mapping.h`, `vdev_indirect_births.h`, `spa_impl.h`.

use crate::blkptr::Dva;
use crate::bytes::Endian;
use crate::error::{FormatError, Result};
use crate::units::{Asize, ObjectId, SPA_MINBLOCKSHIFT, Txg, VdevId};
use crate::words::{Phys, Words, word_struct};

/// Bytes of a head without counts, `VDEV_INDIRECT_MAPPING_SIZE_V0`.
pub const VDEV_INDIRECT_MAPPING_SIZE_V0: usize = 24;

word_struct! {
    /// Head of the table, `vdev_indirect_mapping_phys_t`: its bonus.
    pub struct IndirectMappingPhys("indirect mapping", bytes: 32, required: 3) {
        /// End of the mapped part of the vdev: everything below has been copied.
        pub max_offset_bytes: u64,
        /// Bytes that the entries cover.
        pub bytes_mapped: u64,
        /// Entries in the object.
        pub num_entries: u64,
        /// Object with one 32-bit count per entry, of its obsolete bytes; 0 if there is none (or in the old
        /// format).
        pub counts_object: ObjectId,
    }
}

/// An entry of the table, `vdev_indirect_mapping_entry_phys_t`: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectMappingEntry {
    /// Start of the range on the removed vdev.
    pub src_offset_bytes: u64,
    /// Where it is now; its `asize` is the length of the range.
    pub dst: Dva,
}

impl IndirectMappingEntry {
    /// Bytes of the range.
    pub fn len_bytes(&self) -> u64 {
        self.dst.asize.0
    }

    /// One past the range's last byte on the removed vdev.
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

/// Decodes the obsolete counts of consecutive entries: how many bytes of each are no longer needed.
pub fn decode_obsolete_counts(data: &[u8], endian: Endian) -> impl Iterator<Item = u32> + '_ {
    data.as_chunks::<4>().0.iter().map(move |c| match endian {
        Endian::Little => u32::from_le_bytes(*c),
        Endian::Big => u32::from_be_bytes(*c),
    })
}

/// The whole table, ready for look-ups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndirectMapping {
    entries: Vec<IndirectMappingEntry>,
}

impl IndirectMapping {
    /// Takes the entries as read from the object.
    ///
    /// # Errors
    /// Entries that overlap or are not sorted by source offset.
    pub fn new(entries: Vec<IndirectMappingEntry>) -> Result<Self> {
        if entries.windows(2).any(|w| w[0].src_end_bytes() > w[1].src_offset_bytes) {
            return Err(FormatError::Corrupt {
                what: "indirect mapping",
                why: "entries overlap or are not sorted",
            });
        }
        Ok(IndirectMapping { entries })
    }

    /// More has been copied, behind all that was.
    ///
    /// # Errors
    /// Entries that overlap or are not sorted by source offset.
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

    /// The end of what has been copied.
    pub fn end_bytes(&self) -> u64 {
        self.entries.last().map_or(0, IndirectMappingEntry::src_end_bytes)
    }

    /// All entries, sorted by source offset.
    pub fn entries(&self) -> &[IndirectMappingEntry] {
        &self.entries
    }

    /// The current pieces of `len` bytes at `offset` of the removed vdev, in order. Empty if any byte of
    /// the range is not mapped.
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
    /// Head of the births table, `vdev_indirect_birth_phys_t`: its bonus.
    pub struct IndirectBirthsPhys("indirect births", bytes: 8, required: all) {
        /// Entries in the object.
        pub count: u64,
    }
}

word_struct! {
    /// Everything from the previous entry up to `offset_bytes` was copied in this txg.
    pub struct IndirectBirth("indirect birth", bytes: 16, required: all) {
        /// End of the part, exclusive.
        pub offset_bytes: u64,
        /// Physical birth of the copies.
        pub phys_birth: Txg,
    }
}

word_struct! {
    /// A condensing in progress, `spa_condensing_indirect_phys_t`: words in the MOS directory.
    pub struct CondensingIndirect("condensing indirect", bytes: 24, required: all) {
        /// The vdev whose table is being condensed.
        pub vdev: VdevId,
        /// Space map of the obsolete ranges being folded in.
        pub prev_obsolete_sm: ObjectId,
        /// The new table.
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
