//! ZAP: the on-disk map from names to values that directories, properties and tables are made of.
//!
//! Idea: a ZAP of short names and single 64-bit values is *micro*: one block that is read from end to end.
//! Any other is *fat*: a hash table that can grow without being rewritten. Block 0 is the header; a table
//! of pointers, indexed by the first bits of the hash, names the leaf; a leaf is a small hash table with
//! its own chains.
//!
//! ```text
//!   name --hash--> first `shift` bits: pointer table --> leaf block
//!                  next bits (block size / 32 buckets): the leaf's hash table --> entry --> next entry ...
//! ```
//!
//! This module only decodes bytes. Callers fetch the blocks and, where `normflags` asks for it, normalize
//! names before they are hashed. To list a fat ZAP in hash order, walk the pointer table and skip `1 <<
//! (shift - prefix_len)` pointers after each leaf, because a leaf with a shorter prefix occurs that often.
//! To read it all at once, read blocks 1 up to `free_block` in disk order: those that begin with `ZBT_LEAF`
//! are the leaves.
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

/// First word of a leaf block, `ZBT_LEAF`.
pub const ZBT_LEAF: u64 = 1 << 63;
/// First word of a fat ZAP's block 0, `ZBT_HEADER`.
pub const ZBT_HEADER: u64 = (1 << 63) + 1;
/// First word of a micro ZAP, `ZBT_MICRO`.
pub const ZBT_MICRO: u64 = (1 << 63) + 3;

/// Block 0 of a ZAP, which tells its kind.
#[derive(Debug, Clone)]
pub enum ZapBlock0 {
    /// The whole map.
    Micro(MicroZap),
    /// The header of a larger one.
    Fat(FatHeader),
}

impl ZapBlock0 {
    /// Decodes the whole of block 0.
    ///
    /// # Errors
    /// A block that is neither kind, or a header that contradicts itself.
    pub fn decode(block: Bytes, endian: Endian) -> Result<ZapBlock0> {
        match Reader::new("ZAP", &block, endian).u64()? {
            ZBT_MICRO => MicroZap::decode(block, endian).map(ZapBlock0::Micro),
            ZBT_HEADER => FatHeader::decode(block, endian).map(ZapBlock0::Fat),
            found => Err(FormatError::BadMagic { what: "ZAP", found }),
        }
    }

    /// Hashes this map's names.
    pub fn hasher(&self) -> ZapHasher {
        match self {
            ZapBlock0::Micro(micro) => micro.hasher(),
            ZapBlock0::Fat(fat) => fat.hasher(),
        }
    }

    /// Normalization of names, flags of `u8_textprep_str`; 0 if names are compared as they are.
    pub fn normflags(&self) -> u64 {
        match self {
            ZapBlock0::Micro(micro) => micro.normflags,
            ZapBlock0::Fat(fat) => fat.normflags,
        }
    }
}
