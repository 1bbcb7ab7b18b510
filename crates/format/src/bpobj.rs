//! Bpobj: a list of block pointers that grows at its end and may contain other lists.
//!
//! Idea: the object's content is an array of block pointers, `blkptr_count` long; its bonus is the head
//! below. The head may name another object: an array of `subobj_count` object numbers, each a bpobj whose
//! blocks also belong to this list. Thus lists are merged without copying. Subobjects may nest: a walk must
//! bound the depth and the total.
//!
//! Entries are stored without checksum (unless deduplicated), payload or fill count. In a livelist, the
//! lowest bit of the fill count says that the block was freed rather than allocated.
//!
//! Source: OpenZFS `bpobj.h`, `bpobj.c`; `bptree.h`.

use crate::blkptr::Blkptr;
use crate::units::{ObjectId, Txg};
use crate::words::word_struct;

word_struct! {
    /// Head of a bpobj, `bpobj_phys_t`: its bonus. It has grown over time: two words, then four
    /// (`BPOBJ_SIZE_V0`, `_V1`), six (`_V2`), and seven since livelists.
    pub struct BpobjPhys("bpobj", bytes: 56, required: 2) {
        /// Block pointers in the object's content.
        pub blkptr_count: u64,
        /// Space of all blocks, including those of subobjects.
        pub bytes: u64,
        /// Their bytes as stored; from `BPOBJ_SIZE_V1` on.
        pub compressed_bytes: u64,
        /// Their bytes before compression; from `BPOBJ_SIZE_V1` on.
        pub uncompressed_bytes: u64,
        /// Object that holds the array of subobjects, 0: none; from `BPOBJ_SIZE_V2` on.
        pub subobjs: ObjectId,
        /// Length of that array; from `BPOBJ_SIZE_V2` on.
        pub subobj_count: u64,
        /// Number of block pointers that are marked as freed.
        pub freed_count: u64,
    }
}

/// An entry of a list, and whether the block was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpobjEntry {
    /// The block; its checksum, payload and fill count are not those of the original pointer.
    pub bp: Blkptr,
    /// Livelists: the clone freed the block (otherwise it allocated it).
    pub freed: bool,
}

/// Words of a block pointer: properties, birth, fill count, and the first word of the checksum.
const PROP: usize = 6;
const LOGICAL_BIRTH: usize = 10;
const FILL: usize = 11;
const CHECKSUM: usize = 12;

impl BpobjEntry {
    /// Separates the mark from a stored block pointer.
    pub fn from_blkptr(bp: Blkptr) -> Self {
        BpobjEntry { bp, freed: bp.words()[FILL] & 1 == 1 }
    }

    /// The pointer to store. Words that freeing a block does not need are zero, because zeros compress.
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
    /// Head of the list of datasets being destroyed in the background, `bptree_phys_t`: its bonus.
    pub struct BptreePhys("bptree", bytes: 40, required: all) {
        /// First entry still to do.
        pub begin: u64,
        /// One past the last entry.
        pub end: u64,
        /// Space still to free.
        pub bytes: u64,
        /// The same as stored.
        pub compressed_bytes: u64,
        /// The same before compression.
        pub uncompressed_bytes: u64,
    }
}

word_struct! {
    /// A tree of blocks to free, `bptree_entry_phys_t`.
    pub struct BptreeEntry("bptree entry", bytes: 168, required: all) {
        /// Root of the tree.
        pub bp: Blkptr,
        /// Only blocks born after this txg are to be freed.
        pub birth_txg: Txg,
        /// Where to resume: objset, object, level, block (`zbookmark_phys_t`).
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
