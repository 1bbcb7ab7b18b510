//! Bpobj: an append-only list of block pointers, which may contain other lists.
//!
//! Idea: the object is an array of `blkptr_count` block pointers; its bonus is the head below. The head may
//! name an array of `subobj_count` bpobjs whose blocks also belong to this list, so lists merge without
//! copying. Subobjects may nest: a walk must bound the depth and the total.
//!
//! Stored entries omit checksum (unless deduplicated), payload and fill count. In a livelist, the lowest bit
//! of the fill count marks a freed block.
//!
//! Source: OpenZFS `bpobj.h`, `bpobj.c`; `bptree.h`.

use crate::blkptr::Blkptr;
use crate::units::{ObjectId, Txg};
use crate::words::word_struct;

word_struct! {
    /// Bonus of a bpobj, `bpobj_phys_t`: two words, later four (`BPOBJ_SIZE_V0`, `_V1`), six (`_V2`), and
    /// seven with livelists.
    pub struct BpobjPhys("bpobj", bytes: 56, required: 2) {
        /// Block pointers in the object.
        pub blkptr_count: u64,
        /// Space of all blocks, with subobjects.
        pub bytes: u64,
        /// Stored bytes; since `BPOBJ_SIZE_V1`.
        pub compressed_bytes: u64,
        /// Uncompressed bytes; since `BPOBJ_SIZE_V1`.
        pub uncompressed_bytes: u64,
        /// Array of subobjects, 0: none; since `BPOBJ_SIZE_V2`.
        pub subobjs: ObjectId,
        /// Length of that array; since `BPOBJ_SIZE_V2`.
        pub subobj_count: u64,
        /// Block pointers marked as freed.
        pub freed_count: u64,
    }
}

/// List entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpobjEntry {
    /// Block pointer without the original checksum, payload and fill count.
    pub bp: Blkptr,
    /// Livelist: freed by the clone, not allocated.
    pub freed: bool,
}

/// Block pointer words: properties, birth, fill count, first checksum word.
const PROP: usize = 6;
const LOGICAL_BIRTH: usize = 10;
const FILL: usize = 11;
const CHECKSUM: usize = 12;

impl BpobjEntry {
    /// Decodes a stored pointer and its mark.
    pub fn from_blkptr(bp: Blkptr) -> Self {
        BpobjEntry { bp, freed: bp.words()[FILL] & 1 == 1 }
    }

    /// Encodes the pointer. Words not needed to free the block are zero, which compresses well.
    pub fn to_blkptr(&self) -> Blkptr {
        let mut words = *self.bp.words();
        if self.bp.is_embedded() {
            let kept = [PROP, LOGICAL_BIRTH];
            words.iter_mut().enumerate().filter(|(i, _)| !kept.contains(i)).for_each(|(_, word)| *word = 0);
        } else if !self.bp.is_dedup() {
            words[CHECKSUM..].fill(0);
        }
        words[FILL] = u64::from(self.freed);
        Blkptr::from_words(words)
    }
}

word_struct! {
    /// Bonus of the list of datasets destroyed in the background, `bptree_phys_t`.
    pub struct BptreePhys("bptree", bytes: 40, required: all) {
        /// First remaining entry.
        pub begin: u64,
        /// Exclusive end.
        pub end: u64,
        /// Space left to free.
        pub bytes: u64,
        /// Stored bytes left.
        pub compressed_bytes: u64,
        /// Uncompressed bytes left.
        pub uncompressed_bytes: u64,
    }
}

word_struct! {
    /// Block tree to free, `bptree_entry_phys_t`.
    pub struct BptreeEntry("bptree entry", bytes: 168, required: all) {
        /// Root.
        pub bp: Blkptr,
        /// Free only blocks born after this txg.
        pub birth_txg: Txg,
        /// Position to resume at: objset, object, level, block (`zbookmark_phys_t`).
        pub resume: [u64; 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Phys, check_phys};

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<BpobjPhys>();
        check_phys::<BptreePhys>();
        check_phys::<BptreeEntry>();
    }

    #[test]
    fn older_heads_lack_what_came_later() {
        let v1 = BpobjPhys::from_words(&[1, 2, 3, 4]).unwrap();
        assert_eq!((v1.blkptr_count, v1.uncompressed_bytes, v1.subobj_count), (1, 4, 0));
    }

    #[test]
    fn the_mark_survives() {
        for freed in [false, true] {
            let entry = BpobjEntry { bp: Blkptr::from_words([6; 16]), freed };
            let stored = entry.to_blkptr();
            assert_eq!(BpobjEntry::from_blkptr(stored).freed, freed);
            assert_eq!((stored.words()[12..].to_vec(), stored.logical_birth()), (vec![0; 4], Txg(6)));
        }
    }
}
