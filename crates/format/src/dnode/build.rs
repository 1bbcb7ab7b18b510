//! Builds dnodes from two parts: the owner's settings and the block tree.
//!
//! The parts change at different times: the settings whenever an operation touches the object, the tree once
//! per txg, after its blocks have addresses.

use bytes::Bytes;

use super::{
    DN_MAX_LEVELS, DN_MAX_NBLKPTR, DNODE_CORE_BYTES, DNODE_FLAG_SPILL_BLKPTR, DNODE_FLAG_USED_BYTES,
    DNODE_MIN_BYTES, Dnode, FIELDS_BYTES, ObjectType,
};
use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::bytes::{Endian, Writer};
use crate::error::{FormatError, Result, at_most};
use crate::units::{BlockId, SPA_MINBLOCKSHIFT};

/// Settings by the object's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnodeHead {
    /// Object type.
    pub object_type: ObjectType,
    /// Bonus type.
    pub bonus_type: ObjectType,
    /// Bonus in native byte order.
    pub bonus: Bytes,
    /// Ciphertext after the bonus: it fills the remaining room. Otherwise empty.
    pub rest: Bytes,
    /// Checksum algorithm; 0 inherits.
    pub checksum_id: u8,
    /// Compression algorithm; 0 inherits.
    pub compression_id: u8,
    /// `DNODE_FLAG_*`; `build` adds the tree's.
    pub flags: u8,
    /// log2 of the indirect block size.
    pub indirect_block_shift: u8,
    /// Block pointers, 1 to 3.
    pub blkptr_count: u8,
    /// 512-byte slots, 1 to 32.
    pub slots: u8,
    /// Data block size.
    pub data_block_bytes: u32,
    /// Highest block number ever used.
    pub max_block_id: BlockId,
}

/// Block tree of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnodeTree {
    /// Levels, from 1.
    pub levels: u8,
    /// Top pointers; missing ones are holes.
    pub blkptrs: Vec<Blkptr>,
    /// Spill block.
    pub spill: Option<Blkptr>,
    /// Allocated bytes of all copies and levels.
    pub used_bytes: u64,
}

impl Default for DnodeTree {
    fn default() -> Self {
        DnodeTree { levels: 1, blkptrs: Vec::new(), spill: None, used_bytes: 0 }
    }
}

impl DnodeHead {
    /// Largest bonus with that many slots and pointers, without a spill pointer.
    pub fn bonus_room(slots: u8, blkptr_count: u8) -> usize {
        usize::from(slots) * DNODE_MIN_BYTES - DNODE_CORE_BYTES - usize::from(blkptr_count) * BLKPTR_BYTES
    }

    /// log2 of the pointers per indirect block.
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.indirect_block_shift).saturating_sub(BLKPTR_BYTES.ilog2())
    }

    /// Whether there is a spill block.
    pub fn has_spill(&self) -> bool {
        self.flags & DNODE_FLAG_SPILL_BLKPTR != 0
    }

    /// Sets whether there is a spill block.
    pub fn set_spill(&mut self, has_spill: bool) {
        self.flags = self.flags_with(has_spill);
    }

    fn flags_with(&self, has_spill: bool) -> u8 {
        let spill_flag = if has_spill { DNODE_FLAG_SPILL_BLKPTR } else { 0 };
        self.flags & !DNODE_FLAG_SPILL_BLKPTR | spill_flag
    }

    /// Combines head and tree.
    ///
    /// # Errors
    /// A part exceeds its room.
    pub fn build(&self, tree: &DnodeTree) -> Result<Dnode> {
        at_most("dnode block pointers", self.blkptr_count.into(), DN_MAX_NBLKPTR.into())?;
        at_most("dnode block pointers", tree.blkptrs.len() as u64, self.blkptr_count.into())?;
        at_most("dnode levels", tree.levels.into(), DN_MAX_LEVELS.into())?;
        at_most("dnode slots", self.slots.into(), 32)?;
        let spill_bytes = if tree.spill.is_some() { BLKPTR_BYTES } else { 0 };
        let room_bytes = Self::bonus_room(self.slots.max(1), self.blkptr_count.max(1));
        let used_bytes = self.bonus.len() + self.rest.len() + spill_bytes;
        at_most("dnode bonus and spill length", used_bytes as u64, room_bytes as u64)?;
        let sectors = u16::try_from(self.data_block_bytes >> SPA_MINBLOCKSHIFT);
        let sectors = sectors.map_err(|_| FormatError::Corrupt {
            what: "dnode",
            why: "has blocks larger than the format allows",
        })?;
        let flags = self.flags_with(tree.spill.is_some()) | DNODE_FLAG_USED_BYTES;
        let len = usize::from(self.slots) * DNODE_MIN_BYTES;

        let mut w = Writer::new(Endian::NATIVE);
        w.bytes(&[
            self.object_type.0,
            self.indirect_block_shift,
            tree.levels,
            self.blkptr_count,
            self.bonus_type.0,
            self.checksum_id,
            self.compression_id,
            flags,
        ]);
        w.u16(sectors).u16(self.bonus.len() as u16).u8(self.slots - 1).bytes(&[0; 3]);
        w.words(&[self.max_block_id.0, tree.used_bytes]);
        assert_eq!(w.position(), FIELDS_BYTES);
        w.pad_to(DNODE_CORE_BYTES);
        for index in 0..usize::from(self.blkptr_count) {
            tree.blkptrs.get(index).unwrap_or(&Blkptr::HOLE).write(&mut w);
        }
        w.bytes(&self.bonus).bytes(&self.rest).pad_to(len - spill_bytes);
        if let Some(spill) = &tree.spill {
            spill.write(&mut w);
        }
        assert_eq!(w.position(), len);
        let dnode = Dnode::parse(w.finish().into(), Endian::NATIVE)?;
        dnode.ok_or(FormatError::Corrupt { what: "dnode", why: "has the type of a free slot" })
    }
}

impl Dnode {
    /// Owner's settings.
    pub fn head(&self) -> DnodeHead {
        DnodeHead {
            object_type: self.object_type,
            bonus_type: self.bonus_type,
            bonus: Bytes::copy_from_slice(self.bonus()),
            rest: Bytes::new(),
            checksum_id: self.checksum_id,
            compression_id: self.compression_id,
            flags: self.flags,
            indirect_block_shift: self.indirect_block_shift,
            blkptr_count: self.blkptr_count,
            slots: self.slots,
            data_block_bytes: self.data_block_bytes,
            max_block_id: self.max_block_id,
        }
    }

    /// Owner's settings if the bonus is ciphertext, which is longer than the bonus.
    pub fn encrypted_head(&self) -> DnodeHead {
        let rest = self.bonus_space().get(self.bonus().len()..).unwrap_or_default();
        DnodeHead { rest: Bytes::copy_from_slice(rest), ..self.head() }
    }

    /// Block tree.
    pub fn tree(&self) -> DnodeTree {
        DnodeTree {
            levels: self.levels,
            blkptrs: self.blkptrs().collect(),
            spill: self.spill(),
            used_bytes: self.used_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dnode_taken_apart_and_built_again_is_the_same() {
        let head = DnodeHead {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            bonus_type: ObjectType::SA,
            bonus: Bytes::from_static(&[7; 168]),
            rest: Bytes::new(),
            checksum_id: 0,
            compression_id: 2,
            flags: 0,
            indirect_block_shift: 17,
            blkptr_count: 1,
            slots: 2,
            data_block_bytes: 131072,
            max_block_id: BlockId(70000),
        };
        let bp = Blkptr::from_words(std::array::from_fn(|i| i as u64 + 1));
        let tree = DnodeTree { levels: 3, blkptrs: vec![bp], spill: Some(bp), used_bytes: 1 << 40 };
        let dnode = head.build(&tree).unwrap();
        assert_eq!(dnode.tree(), tree);
        let flags = DNODE_FLAG_SPILL_BLKPTR | DNODE_FLAG_USED_BYTES;
        assert_eq!(dnode.head(), DnodeHead { flags, ..head.clone() });

        let too_long = DnodeHead { bonus: vec![0; 1024 - 64 - 128 - 127].into(), ..head };
        assert!(too_long.build(&tree).is_err());
    }
}
