//! ZAP: the on-disk map of names to values behind directories, properties and tables.
//!
//! Idea: a ZAP of short names and single 64-bit values is *micro*: one block, searched linearly. Any other is
//! *fat*: a hash table that grows without being rewritten. Block 0 is the header. A pointer table, indexed by
//! the first hash bits, names the leaf, a small hash table with its own chains.
//!
//! ```text
//!   name --hash--> first `shift` bits: pointer table --> leaf block
//!                  next bits (block size / 32 buckets): the leaf's hash table --> entry --> next entry ...
//! ```
//!
//! Callers fetch the blocks and, if `normflags` requires it, normalize names before hashing. To list a fat
//! ZAP in hash order, walk the pointer table and skip `1 << (shift - prefix_len)` pointers after each leaf,
//! since a leaf with a shorter prefix recurs. To read it all at once, read blocks 1 up to `free_block` in
//! disk order; the leaves begin with `ZBT_LEAF`.
//!
//! Source: OpenZFS `zap_impl.h`, `zap_leaf.h`, `zap.c`, `zap_micro.c`, `zap_leaf.c`.

mod builder;
#[cfg(test)]
mod change_tests;
mod hash;
mod header;
mod leaf;
mod leaf_mut;
mod micro;
mod swap;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use builder::LeafBuilder;
pub use hash::{ZAP_FLAG_HASH64, ZAP_FLAG_PRE_HASHED_KEY, ZAP_FLAG_UINT64_KEY, ZapHasher};
pub use header::{FatHeader, LeafPointer, PointerTable, ZAP_MAGIC, read_pointer};
pub use leaf::{Leaf, LeafEntry, ZAP_LEAF_MAGIC};
pub use leaf_mut::{LeafKey, LeafMut, LeafSlot, LeafValue};
pub use micro::{MZAP_NAME_LEN, MicroEntry, MicroZap};
pub use swap::{swap_block, swap_words};

use crate::bytes::{Endian, Reader};
use crate::error::{FormatError, Result};

/// First word of a leaf, `ZBT_LEAF`.
pub const ZBT_LEAF: u64 = 1 << 63;
/// First word of a fat ZAP's block 0, `ZBT_HEADER`.
pub const ZBT_HEADER: u64 = (1 << 63) + 1;
/// First word of a micro ZAP, `ZBT_MICRO`.
pub const ZBT_MICRO: u64 = (1 << 63) + 3;

/// Sets all values in a block of a ZAP, single 64-bit numbers, to one number. Returns how many there are; the
/// header and the table have none. The block is in native byte order.
///
/// # Errors
/// Other values; damage. Some may be set.
pub fn set_numbers(block: &mut [u8], number: u64) -> Result<usize> {
    match Reader::new("ZAP", block, Endian::NATIVE).u64()? {
        ZBT_LEAF => LeafMut::open(block)?.set_numbers(number),
        ZBT_MICRO => Ok(micro::set_numbers(block, number)),
        _ => Ok(0),
    }
}

/// Block 0 of a ZAP.
#[derive(Debug, Clone)]
pub enum ZapBlock0 {
    /// Whole map.
    Micro(MicroZap),
    /// Header of a larger map.
    Fat(FatHeader),
}

impl ZapBlock0 {
    /// Decodes block 0.
    ///
    /// # Errors
    /// A block of neither kind, or a contradictory header.
    pub fn decode(block: Bytes, endian: Endian) -> Result<ZapBlock0> {
        match Reader::new("ZAP", &block, endian).u64()? {
            ZBT_MICRO => MicroZap::decode(block, endian).map(ZapBlock0::Micro),
            ZBT_HEADER => FatHeader::decode(block, endian).map(ZapBlock0::Fat),
            found => Err(FormatError::BadMagic { what: "ZAP", found }),
        }
    }

    /// Hasher of this map's names.
    pub fn hasher(&self) -> ZapHasher {
        match self {
            ZapBlock0::Micro(micro) => micro.hasher(),
            ZapBlock0::Fat(fat) => fat.hasher(),
        }
    }

    /// Name normalization, `u8_textprep_str` flags; 0 for none.
    pub fn normflags(&self) -> u64 {
        match self {
            ZapBlock0::Micro(micro) => micro.normflags,
            ZapBlock0::Fat(fat) => fat.normflags,
        }
    }
}
