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
/// Accepted log2 block sizes.
const BLOCK_SHIFTS: std::ops::RangeInclusive<u32> = 9..=20;
/// Bound on index bits, from the hash's width.
const MAX_TABLE_SHIFT: u64 = 48;
const FIELDS: usize = 13;

const _: () =
    assert!(FIELDS * 8 <= 1 << (*BLOCK_SHIFTS.start() - 1), "the fields end before an embedded table");

/// Location of the leaf pointers, `zap_table_phys_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerTable {
    /// First block of the table.
    pub first_block: BlockId,
    /// Blocks of the table; 0 if embedded in the header.
    pub blocks: u64,
    /// Hash bits used as index.
    pub shift: u32,
    /// First block of the doubled table being filled; 0 if none.
    pub next_block: BlockId,
    /// Blocks already copied. Lookups use this table until all are.
    pub blocks_copied: u64,
}

/// Header of a fat ZAP.
#[derive(Debug, Clone)]
pub struct FatHeader {
    /// Pointer table.
    pub table: PointerTable,
    /// First unused block: the end of the ZAP.
    pub free_block: BlockId,
    /// Number of leaves.
    pub leaf_count: u64,
    /// Number of entries.
    pub entry_count: u64,
    /// Hash salt.
    pub salt: u64,
    /// Name normalization.
    pub normflags: u64,
    /// `ZAP_FLAG_*`.
    pub flags: u64,
    block_shift: u32,
    endian: Endian,
    block: Bytes,
}

/// Location of a leaf pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafPointer {
    /// Embedded: this leaf.
    Leaf(BlockId),
    /// In a table block; read it with `read_pointer`.
    InTable {
        /// Table block.
        block: BlockId,
        /// Offset in the block.
        offset_bytes: usize,
    },
}

impl FatHeader {
    /// Decodes block 0, whose length is the ZAP's block size.
    ///
    /// # Errors
    /// A wrong magic number, a block size not a power of two, a table larger than its blocks.
    pub fn decode(block: Bytes, endian: Endian) -> Result<FatHeader> {
        Ok(FatHeader { block: block.clone(), ..FatHeader::decode_fields(&block, endian)? })
    }

    /// Decodes the fields without keeping the block; embedded tables are unreadable.
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

    /// Hasher of its names.
    pub fn hasher(&self) -> ZapHasher {
        ZapHasher { salt: self.salt, flags: self.flags }
    }

    /// Pointers in the table.
    pub fn table_len(&self) -> u64 {
        1 << self.table.shift
    }

    /// Table index of a hash.
    pub fn table_index(&self, hash: u64) -> u64 {
        hash.checked_shr(64 - self.table.shift).unwrap_or(0)
    }

    /// Location of a pointer; the index is clamped to the table.
    pub fn locate(&self, index: u64) -> LeafPointer {
        let (block, offset_bytes) = self.pointer_place(index);
        if self.table.blocks == 0 {
            let leaf = read_pointer(&self.block, offset_bytes, self.endian);
            return LeafPointer::Leaf(leaf.unwrap_or_default());
        }
        LeafPointer::InTable { block, offset_bytes }
    }

    /// Block (the header if embedded) and byte offset of a pointer; the index is clamped to the table.
    pub fn pointer_place(&self, index: u64) -> (BlockId, usize) {
        let index = index.min(self.table_len() - 1);
        if self.table.blocks == 0 {
            return (BlockId(0), (1 << (self.block_shift - 1)) + index as usize * 8);
        }
        let per_block_shift = self.block_shift - 3;
        let block = BlockId(self.table.first_block.0 + (index >> per_block_shift));
        (block, (index & ((1 << per_block_shift) - 1)) as usize * 8)
    }

    /// Encodes a block of `1 << block_shift` bytes, with the table if embedded.
    ///
    /// # Errors
    /// The table does not fit.
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
    /// Block size.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_shift
    }

    /// Header of an empty ZAP: embedded table, block 1 as the only leaf.
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

    /// Stores the fields in native byte order; leaves an embedded table alone.
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

/// Leaf pointer at a byte offset of a table block.
///
/// # Errors
/// The block ends before the pointer.
pub fn read_pointer(block: &[u8], offset_bytes: usize, endian: Endian) -> Result<BlockId> {
    let mut r = Reader::new("ZAP pointer table", block, endian);
    r.skip(offset_bytes)?;
    Ok(BlockId(r.u64()?))
}

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
