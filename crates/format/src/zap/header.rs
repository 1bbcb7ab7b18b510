//! Header of a fat ZAP: block 0, with the pointer table in its second half or elsewhere in the object.
//!
//! Layout, in words:
//!
//! ```text
//!   0 block type  1 magic  2 table: first block  3 blocks (0: the table is here)  4 shift
//!   5 next block of a table being doubled  6 blocks copied to it
//!   7 free block  8 leaves  9 entries  10 salt  11 normflags  12 flags
//!   second half of the block: the embedded table
//! ```
//!
//! Source: OpenZFS `zap_impl.h` (`zap_phys_t`).

use bytes::Bytes;

use super::{ZBT_HEADER, ZapHasher};
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result, at_most};
use crate::units::BlockId;

/// `ZAP_MAGIC`.
pub const ZAP_MAGIC: u64 = 0x2_F52A_B2AB;
const WHAT: &str = "fat ZAP";
/// log2 of the smallest and the largest block that a fat ZAP has had.
const BLOCK_SHIFTS: std::ops::RangeInclusive<u32> = 9..=20;
/// A table cannot be indexed by more bits than the hash has.
const MAX_TABLE_SHIFT: u64 = 48;
/// Words of the header's fields.
const FIELDS: usize = 13;

const _: () =
    assert!(FIELDS * 8 <= 1 << (*BLOCK_SHIFTS.start() - 1), "the fields end before an embedded table");

/// Where the pointers to the leaves lie, `zap_table_phys_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerTable {
    /// First block of the table.
    pub first_block: BlockId,
    /// Blocks that it takes; 0 if it is embedded in the header.
    pub blocks: u64,
    /// Bits of the hash that index it.
    pub shift: u32,
    /// First block of the table of twice the size that this one is being copied to; 0 if there is none.
    pub next_block: BlockId,
    /// Blocks already copied. Look-ups use this table until all are.
    pub blocks_copied: u64,
}

/// The header of a fat ZAP.
#[derive(Debug, Clone)]
pub struct FatHeader {
    /// The pointer table.
    pub table: PointerTable,
    /// The first block that has never been used: the ZAP's end.
    pub free_block: BlockId,
    /// Number of leaves.
    pub leaf_count: u64,
    /// Number of entries.
    pub entry_count: u64,
    /// Start value of the hash.
    pub salt: u64,
    /// Normalization of names.
    pub normflags: u64,
    /// `ZAP_FLAG_*`.
    pub flags: u64,
    block_shift: u32,
    endian: Endian,
    block: Bytes,
}

/// Where to find the pointer to a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafPointer {
    /// In the header: this is the leaf.
    Leaf(BlockId),
    /// In a block of the table, at this byte: see `read_pointer`.
    InTable {
        /// The block to read.
        block: BlockId,
        /// Offset in that block.
        offset_bytes: usize,
    },
}

impl FatHeader {
    /// Opens block 0, whose length is the ZAP's block size.
    ///
    /// # Errors
    /// Another magic number, a block size that is not a power of two, a table larger than its blocks.
    pub fn decode(block: Bytes, endian: Endian) -> Result<FatHeader> {
        Ok(FatHeader { block: block.clone(), ..FatHeader::decode_fields(&block, endian)? })
    }

    /// The fields alone, without the block: an embedded table can't be read.
    ///
    /// # Errors
    /// As `decode`.
    pub fn decode_fields(block: &[u8], endian: Endian) -> Result<FatHeader> {
        let block_shift = block_shift(block)?;
        let mut r = Reader::new(WHAT, block, endian);
        let [block_type, magic, first_block, blocks, shift, next_block, blocks_copied, rest @ ..] =
            r.words::<FIELDS>()?;
        let [free_block, leaf_count, entry_count, salt, normflags, flags] = rest;
        if block_type != ZBT_HEADER || magic != ZAP_MAGIC {
            return Err(FormatError::BadMagic { what: WHAT, found: magic });
        }
        at_most("fat ZAP table shift", shift, MAX_TABLE_SHIFT)?;
        let room = match blocks {
            0 => 1 << (block_shift - 4),
            _ => blocks.saturating_mul(1 << (block_shift - 3)),
        };
        at_most("fat ZAP table entries", 1 << shift, room)?;
        first_block.checked_add(blocks).ok_or(FormatError::OutOfRange {
            what: "fat ZAP table block",
            value: first_block,
            bound: u64::MAX - blocks,
        })?;
        Ok(FatHeader {
            table: PointerTable {
                first_block: BlockId(first_block),
                blocks,
                shift: shift as u32,
                next_block: BlockId(next_block),
                blocks_copied,
            },
            free_block: BlockId(free_block),
            leaf_count,
            entry_count,
            salt,
            normflags,
            flags,
            block_shift,
            endian,
            block: Bytes::new(),
        })
    }

    /// Hashes its names.
    pub fn hasher(&self) -> ZapHasher {
        ZapHasher { salt: self.salt, flags: self.flags }
    }

    /// Pointers in the table.
    pub fn table_len(&self) -> u64 {
        1 << self.table.shift
    }

    /// The index in the table for a hash.
    pub fn table_index(&self, hash: u64) -> u64 {
        hash.checked_shr(64 - self.table.shift).unwrap_or(0)
    }

    /// Where the pointer at an index is; an index beyond `table_len` counts as the last.
    pub fn locate(&self, index: u64) -> LeafPointer {
        let (block, offset_bytes) = self.pointer_place(index);
        if self.table.blocks == 0 {
            let leaf = read_pointer(&self.block, offset_bytes, self.endian);
            return LeafPointer::Leaf(leaf.unwrap_or_default());
        }
        LeafPointer::InTable { block, offset_bytes }
    }

    /// The block (possibly the header itself) and the byte in it of the pointer at an index; an index
    /// beyond the table counts as the last.
    pub fn pointer_place(&self, index: u64) -> (BlockId, usize) {
        let index = index.min(self.table_len() - 1);
        if self.table.blocks == 0 {
            return (BlockId(0), (1 << (self.block_shift - 1)) + index as usize * 8);
        }
        let per_block_shift = self.block_shift - 3;
        let block = BlockId(self.table.first_block.0 + (index >> per_block_shift));
        (block, (index & ((1 << per_block_shift) - 1)) as usize * 8)
    }

    /// The header as a block of `1 << block_shift` bytes, with an embedded table if it has no other.
    ///
    /// # Errors
    /// A table that does not fit.
    pub fn encode(&self, embedded: &[BlockId]) -> Result<Vec<u8>> {
        let mut w = Writer::new(self.endian);
        w.words(&self.words());
        let half = 1 << (self.block_shift - 1);
        at_most("fat ZAP embedded table bytes", embedded.len() as u64 * 8, half as u64)?;
        w.pad_to(half);
        embedded.iter().for_each(|leaf| _ = w.u64(leaf.0));
        w.pad_to(2 * half);
        Ok(w.finish())
    }
}

impl FatHeader {
    /// Bytes of the ZAP's blocks.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }

    /// The header of an empty ZAP with blocks of `1 << block_shift` bytes: the table is embedded, and block
    /// 1 is its only leaf.
    pub fn empty(block_shift: u32, hasher: ZapHasher, normflags: u64) -> FatHeader {
        let table = PointerTable {
            first_block: BlockId(0),
            blocks: 0,
            shift: block_shift - 4,
            next_block: BlockId(0),
            blocks_copied: 0,
        };
        FatHeader {
            table,
            free_block: BlockId(2),
            leaf_count: 1,
            entry_count: 0,
            salt: hasher.salt,
            normflags,
            flags: hasher.flags,
            block_shift,
            endian: Endian::NATIVE,
            block: Bytes::new(),
        }
    }

    /// Writes the fields into a block in this machine's byte order; an embedded table is left alone.
    pub fn store(&self, block: &mut [u8]) {
        for (place, word) in block.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *place = word.to_ne_bytes();
        }
    }

    fn words(&self) -> [u64; FIELDS] {
        let t = &self.table;
        let table = [t.first_block.0, t.blocks, t.shift.into(), t.next_block.0, t.blocks_copied];
        let [first_block, blocks, shift, next_block, copied] = table;
        let (free_block, leaves, entries) = (self.free_block.0, self.leaf_count, self.entry_count);
        let head = [ZBT_HEADER, ZAP_MAGIC, first_block, blocks, shift, next_block, copied];
        let rest = [free_block, leaves, entries, self.salt, self.normflags, self.flags];
        std::array::from_fn(|i| if i < head.len() { head[i] } else { rest[i - head.len()] })
    }
}

/// The pointer at this byte of a table block.
///
/// # Errors
/// A block that ends before the pointer.
pub fn read_pointer(block: &[u8], offset_bytes: usize, endian: Endian) -> Result<BlockId> {
    let mut r = Reader::new("ZAP pointer table", block, endian);
    r.skip(offset_bytes)?;
    Ok(BlockId(r.u64()?))
}

/// log2 of a fat ZAP block's size.
pub(super) fn block_shift(block: &[u8]) -> Result<u32> {
    let shift = block.len().checked_ilog2().unwrap_or(0);
    if !block.len().is_power_of_two() || !BLOCK_SHIFTS.contains(&shift) {
        return Err(FormatError::OutOfRange {
            what: "fat ZAP block bytes",
            value: block.len() as u64,
            bound: 1 << BLOCK_SHIFTS.end(),
        });
    }
    Ok(shift)
}
