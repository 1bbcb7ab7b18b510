//! ZAP blocks: the first (micro map or fat header) and leaves.

use cenote_format::zap::{Leaf, ZapBlock0};

use super::{both, consume};

/// Block 0: a whole micro ZAP, or the header of a fat one.
pub fn block0(data: &[u8]) {
    both(data, |block, endian| {
        let Ok(first) = ZapBlock0::decode(block, endian) else { return };
        let hasher = first.hasher();
        match &first {
            ZapBlock0::Micro(micro) => {
                for entry in micro.entries().take(64) {
                    assert!(micro.lookup(entry.name).is_some(), "an entry is found by its name");
                }
                consume(micro.entries().count());
            }
            ZapBlock0::Fat(fat) => {
                for i in 0..64 {
                    let index = fat.table_index(hasher.words(&[i]));
                    consume((fat.locate(index), fat.locate(i), fat.locate(u64::MAX - i)));
                }
            }
        }
    });
}

/// A leaf of a fat ZAP: all entries, in both orders, and each looked up.
pub fn leaf(data: &[u8]) {
    both(data, |block, endian| {
        let Ok(leaf) = Leaf::decode(block, endian) else { return };
        for entry in leaf.entries().flatten() {
            let name = entry.name();
            consume((entry.name_words(), entry.value_u64(), entry.value_words(), entry.value_bytes()));
            if let Ok(name) = name {
                consume(leaf.lookup(entry.hash, &name));
            }
        }
        consume(leaf.entries_in_order().map(|entries| entries.len()));
        consume(leaf.lookup_words(u64::MAX, &[1, 2, 3]));
    });
}
