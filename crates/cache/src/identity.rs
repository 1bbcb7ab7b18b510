//! The identity of a block in the cache.
//!
//! A block's first address, properties, physical birth and checksum identify its content forever: if a later
//! sync pass writes to the same place, the checksum differs. All owners share it, even with younger pointers:
//! clones, and files with deduplicated blocks. Policies get a hash of these words; look-ups compare the
//! words.

use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_policy::{BlockId, Class};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u64; 8]);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) key: Key,
    pub(crate) id: BlockId,
    pub(crate) class: Class,
    pub(crate) is_indirect: bool,
}

impl Key {
    pub(crate) fn is_encrypted(&self) -> bool {
        let mut words = [0; 16];
        words[6] = self.0[2];
        Blkptr::from_words(words).is_encrypted()
    }
}

impl Identity {
    /// `None` for holes and embedded blocks: caching gains nothing.
    pub(crate) fn of(bp: &Blkptr) -> Option<Identity> {
        if bp.kind() != BlkptrKind::Normal {
            return None;
        }
        let w = bp.words();
        let words = [w[0], w[1], w[6], bp.physical_birth().0, w[12], w[13], w[14], w[15]];
        // Each step is a bijection of the state, and checksums are nearly random.
        let id = words
            .iter()
            .fold(0, |hash: u64, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        Some(Identity { key: Key(words), id, class: class_of(bp), is_indirect: bp.level() > 0 })
    }
}

fn class_of(bp: &Blkptr) -> Class {
    if bp.level() > 0 || bp.object_type().is_metadata() { Class::Metadata } else { Class::Data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_format::units::{PhysicalBirth, Txg};

    /// The first word of a Fletcher checksum is a plain sum: it is unchanged if one count in a block grows by
    /// one and another shrinks by one.
    #[test]
    fn a_block_written_over_in_place_is_another_one_even_with_the_same_sum() {
        let block = |checksum: [u64; 4]| {
            let mut words = [0; 16];
            (words[0], words[1], words[6], words[10]) = (8, 4096, 7, 123);
            words[12..].copy_from_slice(&checksum);
            Identity::of(&Blkptr::from_words(words)).map(|block| (block.key, block.id))
        };
        let before = block([100, 7, 8, 9]);
        assert!(before.is_some());
        for after in [[101, 7, 8, 9], [100, 6, 8, 9], [100, 7, 5, 9], [100, 7, 8, 4]] {
            assert_ne!(block(after).map(|b| b.0), before.map(|b| b.0));
            assert_ne!(block(after).map(|b| b.1), before.map(|b| b.1));
        }
        assert_eq!(block([100, 7, 8, 9]), before);
    }

    #[test]
    fn a_clone_is_the_block_that_it_was_made_of() {
        let mut words = [0; 16];
        (words[0], words[1], words[6], words[10]) = (8, 4096, 7, 123);
        let bp = Blkptr::from_words(words);
        let key = |bp: &Blkptr| Identity::of(bp).map(|block| block.key);
        assert_eq!(key(&bp.shared_in(Txg(200))), key(&bp));
        assert_ne!(key(&bp.with_births(Txg(200), PhysicalBirth(200))), key(&bp), "the place was used again");
    }
}
