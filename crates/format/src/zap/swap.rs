//! Converts a block to native byte order in place: changed blocks are written in native order.

use super::leaf::{ARRAY_BYTES, CHUNK_BYTES, CHUNK_ENTRY, HEADER_BYTES, geometry};
use super::{ZBT_LEAF, ZBT_MICRO};

/// Swaps a ZAP block of any kind.
pub fn swap_block(block: &mut [u8]) {
    let first = block.first_chunk::<8>().map(|word| u64::from_ne_bytes(*word).swap_bytes());
    match first {
        Some(ZBT_LEAF) if block.len().is_power_of_two() && block.len() >= 512 => swap_leaf(block),
        Some(ZBT_MICRO) => swap_micro(block),
        // Header and pointer tables.
        _ => swap_words(block),
    }
}

/// Swaps a block of words.
pub fn swap_words(block: &mut [u8]) {
    block.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
}

fn swap_micro(block: &mut [u8]) {
    for (slot, entry) in block.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        if slot == 0 {
            swap_words(entry);
        } else {
            entry[..8].reverse();
            entry[8..12].reverse();
        }
    }
}

fn swap_leaf(block: &mut [u8]) {
    let (buckets, _) = geometry(block.len().ilog2());
    for (at, len) in [(0, 8), (16, 8), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2)] {
        block[at..at + len].reverse();
    }
    let (head, chunks) = block.split_at_mut(HEADER_BYTES + 2 * buckets);
    head[HEADER_BYTES..].as_chunks_mut::<2>().0.iter_mut().for_each(|number| number.reverse());
    for chunk in chunks.as_chunks_mut::<CHUNK_BYTES>().0 {
        if chunk[0] == CHUNK_ENTRY {
            for (at, len) in [(2, 2), (4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 8)] {
                chunk[at..at + len].reverse();
            }
        } else {
            chunk[1 + ARRAY_BYTES..].reverse();
        }
    }
}
