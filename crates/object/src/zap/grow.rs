//! Growing and shrinking a fat ZAP.
//!
//! Idea: a full leaf splits by one more bit of the hash. If the table has no more bits, it is doubled first:
//! out of the header into its own block, then at the end of the object. Two empty leaves that differ in their
//! last bit merge; the table does not shrink.
//!
//! ```text
//!   table, shift 3   [a a a a b b c d]      a: prefix 0 (1 bit)   b: 10 (2)   c: 110 (3)   d: 111 (3)
//!   a is split       [a a e e b b c d]
//!   c is split       [aaaaeeeebbbbcfdd]     needs shift 4
//! ```
//!
//! OpenZFS doubles a large table one block per change; here it is one step, as cheap as the splits since the
//! last. A table that OpenZFS left half copied is finished.

use bytes::BytesMut;
use cenote_format::units::BlockId;
use cenote_format::zap::{LeafMut, ZAP_FLAG_HASH64};

use crate::live::in_place::{Blocks, Step};
use crate::zap::fat::{Fat, HEADER, damaged};

/// A table is in memory while it grows: enough for a billion entries.
const MAX_POINTERS: u64 = 1 << 24;
/// A table grows only up to this many times the size of all leaves; with random hashes it is a thousandth.
const MAX_TABLE_RATIO: u64 = 8;

impl Fat {
    /// `false`: its hashes are too similar.
    pub(super) fn split(&mut self, blocks: &mut Blocks<'_>, id: BlockId) -> Step<bool> {
        let (prefix, prefix_len) = LeafMut::open(blocks.get_mut(id)?)?.prefix();
        if prefix_len > self.head.table.shift {
            return Err(damaged("a leaf has a longer prefix than the table").into());
        }
        let is_growing = self.head.table.next_block.0 != 0;
        if (is_growing || prefix_len == self.head.table.shift) && !self.double_table(blocks)? {
            return Ok(false);
        }
        let range = self.pointers_of(prefix << 1 | 1, prefix_len + 1);
        self.need_pointers(blocks, &range)?;
        let mut sibling = BytesMut::zeroed(self.head.block_bytes());
        LeafMut::open(blocks.get_mut(id)?)?.split(&mut sibling)?;
        let new = self.take_blocks(1);
        blocks.put(new, sibling);
        self.set_pointers(blocks, range, new)?;
        self.head.leaf_count += 1;
        self.head.store(blocks.get_mut(HEADER)?);
        Ok(true)
    }

    /// Merges a leaf with its sibling if both are empty.
    pub(super) fn merge(&mut self, blocks: &mut Blocks<'_>, hash: u64) -> Step<bool> {
        let id = self.leaf_of(blocks, hash)?;
        let (prefix, prefix_len, entries) = LeafMut::summary(blocks.get(id)?)?;
        if entries != 0 || prefix_len == 0 || self.head.table.next_block.0 != 0 {
            return Ok(false);
        }
        if prefix_len > self.head.table.shift || hash >> (64 - prefix_len) != prefix {
            return Err(damaged("a pointer of the table leads to another leaf").into());
        }
        let other = self.leaf_of(blocks, (prefix ^ 1) << (64 - prefix_len))?;
        if LeafMut::summary(blocks.get(other)?)? != (prefix ^ 1, prefix_len, 0) {
            return Ok(false);
        }
        let (kept, gone) = if prefix & 1 == 0 { (id, other) } else { (other, id) };
        let range = self.pointers_of(prefix | 1, prefix_len);
        self.need_pointers(blocks, &range)?;
        LeafMut::open(blocks.get_mut(kept)?)?.widen();
        self.set_pointers(blocks, range, kept)?;
        blocks.punch(gone.0..gone.0 + 1);
        self.head.leaf_count = self.head.leaf_count.saturating_sub(1);
        if gone.0 + 1 == self.head.free_block.0 {
            self.head.free_block = gone;
        }
        self.head.store(blocks.get_mut(HEADER)?);
        Ok(true)
    }

    /// `false`: that would not help.
    fn double_table(&mut self, blocks: &mut Blocks<'_>) -> Step<bool> {
        let hash_bits = if self.head.flags & ZAP_FLAG_HASH64 != 0 { 48 } else { 28 };
        // With two bits left (`zap_grow_ptrtbl`), or a table larger than its leaves, many names have nearly
        // the same hash: more bits would cost memory in vain.
        let leaves_bytes = self.head.leaf_count.saturating_mul(self.head.block_bytes() as u64);
        let is_too_large = self.head.table_len() * 8 > leaves_bytes.saturating_mul(MAX_TABLE_RATIO);
        let is_at_end = self.head.table.shift + 2 >= hash_bits || self.head.table_len() * 2 > MAX_POINTERS;
        if is_at_end || is_too_large {
            return Ok(false);
        }
        let old = self.head.table;
        let half = self.head.block_bytes() / 2;
        if old.blocks == 0 {
            let doubled = doubled(&blocks.get(HEADER)?[half..]);
            let table = self.take_blocks(1);
            blocks.put(table, doubled);
            (self.head.table.first_block, self.head.table.blocks) = (table, 1);
        } else {
            let (first, end) = (old.first_block.0, old.first_block.0.saturating_add(old.blocks));
            let is_whole = old.blocks.checked_mul(half as u64 / 4) == Some(self.head.table_len());
            if !is_whole || end > self.head.free_block.0 || old.blocks_copied > old.blocks {
                return Err(damaged("has a table of another size than it says").into());
            }
            blocks.need(first..end)?;
            let next = if old.next_block.0 != 0 { old.next_block } else { self.take_blocks(old.blocks * 2) };
            for done in old.blocks_copied..old.blocks {
                let block = blocks.get(BlockId(first + done))?;
                let (lower, upper) = (doubled(&block[..half]), doubled(&block[half..]));
                blocks.put(BlockId(next.0 + 2 * done), lower);
                blocks.put(BlockId(next.0 + 2 * done + 1), upper);
            }
            blocks.punch(first..end);
            (self.head.table.first_block, self.head.table.blocks) = (next, old.blocks * 2);
            (self.head.table.next_block, self.head.table.blocks_copied) = (BlockId(0), 0);
        }
        self.head.table.shift += 1;
        self.head.store(blocks.get_mut(HEADER)?);
        Ok(true)
    }

    /// Pointers of a leaf with that prefix.
    fn pointers_of(&self, prefix: u64, prefix_len: u32) -> std::ops::Range<u64> {
        let spare = self.head.table.shift - prefix_len;
        prefix << spare..(prefix + 1) << spare
    }

    fn need_pointers(&self, blocks: &Blocks<'_>, range: &std::ops::Range<u64>) -> Step<()> {
        if range.end - range.start > MAX_POINTERS {
            return Err(damaged("a leaf has more pointers of the table than can be").into());
        }
        let (first, _) = self.head.pointer_place(range.start);
        let (last, _) = self.head.pointer_place(range.end - 1);
        blocks.need(first.0..last.0 + 1)
    }

    fn set_pointers(&self, blocks: &mut Blocks<'_>, range: std::ops::Range<u64>, leaf: BlockId) -> Step<()> {
        for index in range {
            let (block, at) = self.head.pointer_place(index);
            blocks.get_mut(block)?[at..at + 8].copy_from_slice(&leaf.0.to_ne_bytes());
        }
        Ok(())
    }

    fn take_blocks(&mut self, count: u64) -> BlockId {
        let first = self.head.free_block;
        self.head.free_block = BlockId(first.0 + count);
        first
    }
}

fn doubled(pointers: &[u8]) -> BytesMut {
    let pointers = pointers.as_chunks::<8>().0;
    let twice = pointers.iter().flat_map(|pointer| [pointer, pointer]).flatten();
    let mut block = BytesMut::with_capacity(pointers.len() * 16);
    block.extend(twice);
    block
}
