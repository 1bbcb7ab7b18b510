//! Dnode: the head of an object, 512 bytes to 16 KiB in steps of 512.
//!
//! Idea: a `Dnode` is a reference-counted window on its block. The fixed header is decoded at once, block
//! pointers and bonus on demand: a scan opens millions of dnodes. `detach` copies a dnode that outlives its
//! block.
//!
//! Layout:
//!
//! ```text
//!    0 type  1 indblkshift  2 nlevels  3 nblkptr  4 bonustype  5 checksum  6 compress  7 flags
//!    8 datablkszsec (2)  10 bonuslen (2)  12 extra_slots  13 pad (3)
//!   16 maxblkid (8)  24 used (8)  32 pad (32)
//!   64 block pointers, 128 each, nblkptr of them; then the bonus;
//!      the last 128 bytes are the spill pointer if flag 4 is set
//! ```
//!
//! Source: OpenZFS `dnode.h` (`dnode_phys_t`).

mod build;
mod object_type;

use std::ops::RangeInclusive;

use bytes::Bytes;

pub use build::{DnodeHead, DnodeTree};
pub use object_type::ObjectType;

use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::bytes::{Endian, Reader};
use crate::error::{FormatError, Result, at_most};
use crate::units::{BlockId, SPA_MINBLOCKSHIFT};

/// Dnode slot, `DNODE_MIN_SIZE`.
pub const DNODE_MIN_BYTES: usize = 512;
/// Dnode block, `DNODE_BLOCK_SIZE`.
pub const DNODE_BLOCK_BYTES: usize = 16384;
/// Slots per dnode block, `DNODES_PER_BLOCK`.
pub const DNODES_PER_BLOCK: u64 = (DNODE_BLOCK_BYTES / DNODE_MIN_BYTES) as u64;
/// Bytes before the first block pointer, `DNODE_CORE_SIZE`.
pub const DNODE_CORE_BYTES: usize = 64;
/// Most block pointers, `DN_MAX_NBLKPTR`.
pub const DN_MAX_NBLKPTR: u8 = 3;
/// Most levels, `DN_MAX_LEVELS`. Real trees have at most about 6.
pub const DN_MAX_LEVELS: u8 = 32;
/// Largest object: offsets are signed.
pub const MAX_OBJECT_BYTES: u64 = 1 << 63;
/// Accepted log2 sizes of indirect blocks. OpenZFS makes 12 to 17.
const INDIRECT_BLOCK_SHIFTS: RangeInclusive<u8> = 9..=24;
/// `DNODE_FLAG_USED_BYTES`: `used` is in bytes, not 512-byte sectors.
pub const DNODE_FLAG_USED_BYTES: u8 = 1 << 0;
/// `DNODE_FLAG_USERUSED_ACCOUNTED`.
pub const DNODE_FLAG_USERUSED_ACCOUNTED: u8 = 1 << 1;
/// `DNODE_FLAG_SPILL_BLKPTR`: a spill block holds more attributes.
pub const DNODE_FLAG_SPILL_BLKPTR: u8 = 1 << 2;
/// `DNODE_FLAG_USEROBJUSED_ACCOUNTED`.
pub const DNODE_FLAG_USEROBJUSED_ACCOUNTED: u8 = 1 << 3;
const FIELDS_BYTES: usize = 32;

const _: () = {
    assert!(
        8 + 2 + 2 + 1 + 3 + 8 + 8 == FIELDS_BYTES,
        "8 single bytes, two sizes, slots, 3 zeros, two words"
    );
    assert!(DNODE_CORE_BYTES + DN_MAX_NBLKPTR as usize * BLKPTR_BYTES <= DNODE_MIN_BYTES);
    assert!(DNODE_MIN_BYTES - DNODE_CORE_BYTES - BLKPTR_BYTES == 320, "`DN_OLD_MAX_BONUSLEN`");
    assert!(DNODES_PER_BLOCK == 32);
};

/// Head of an object, `dnode_phys_t`, with validated sizes.
#[derive(Debug, Clone)]
pub struct Dnode {
    /// Object type.
    pub object_type: ObjectType,
    /// log2 of the indirect block size.
    pub indirect_block_shift: u8,
    /// Levels; 1 means the dnode points to data.
    pub levels: u8,
    /// Block pointers in the dnode, 1 to 3.
    pub blkptr_count: u8,
    /// Bonus type.
    pub bonus_type: ObjectType,
    /// Checksum algorithm; 0 inherits.
    pub checksum_id: u8,
    /// Compression algorithm; 0 inherits.
    pub compression_id: u8,
    /// `DNODE_FLAG_*`.
    pub flags: u8,
    /// Data block size; zero only in a free slot.
    pub data_block_bytes: u32,
    /// 512-byte slots, 1 to 32.
    pub slots: u8,
    /// Highest block number ever used.
    pub max_block_id: BlockId,
    /// Allocated bytes of all copies and levels.
    pub used_bytes: u64,
    bonus_len: u16,
    endian: Endian,
    raw: Bytes,
}

impl Dnode {
    /// Decodes the dnode at the start of `block`; `None` for a free slot.
    ///
    /// # Errors
    /// Fields that contradict each other or the size of the block.
    pub fn decode(block: Bytes, endian: Endian) -> Result<Option<Dnode>> {
        let dnode = Dnode::parse(block, endian)?;
        if let Some(dnode) = &dnode {
            at_most("dnode last block", dnode.max_block_id.0, dnode.last_addressable_block())?;
        }
        Ok(dnode)
    }

    /// Decodes a dnode that may have grown since its tree was written: its pointers may not reach its last
    /// block.
    fn parse(mut block: Bytes, endian: Endian) -> Result<Option<Dnode>> {
        let mut r = Reader::new("dnode", &block, endian);
        let [
            object_type,
            indirect_block_shift,
            levels,
            blkptr_count,
            bonus_type,
            checksum_id,
            compression_id,
            flags,
        ] = r.array()?;
        if object_type == 0 {
            return Ok(None);
        }
        let data_block_sectors = r.u16()?;
        let bonus_len = r.u16()?;
        let extra_slots = r.u8()?;
        r.skip(3)?;
        let max_block_id = BlockId(r.u64()?);
        let used = r.u64()?;
        debug_assert_eq!(r.position(), FIELDS_BYTES);

        let slots = at_most("dnode extra slots", u64::from(extra_slots), 31)? as u8 + 1;
        let raw_len = usize::from(slots) * DNODE_MIN_BYTES;
        if block.len() < raw_len {
            return Err(FormatError::Truncated { what: "dnode", need: raw_len, have: block.len() });
        }
        if !(1..=DN_MAX_NBLKPTR).contains(&blkptr_count) {
            return Err(FormatError::OutOfRange {
                what: "dnode block pointers",
                value: blkptr_count.into(),
                bound: DN_MAX_NBLKPTR.into(),
            });
        }
        if levels == 0 {
            return Err(FormatError::Corrupt { what: "dnode", why: "has no levels" });
        }
        at_most("dnode levels", levels.into(), DN_MAX_LEVELS.into())?;
        if !INDIRECT_BLOCK_SHIFTS.contains(&indirect_block_shift) {
            return Err(FormatError::OutOfRange {
                what: "dnode indirect block shift",
                value: indirect_block_shift.into(),
                bound: u64::from(*INDIRECT_BLOCK_SHIFTS.end()),
            });
        }
        block.truncate(raw_len);
        let dnode = Dnode {
            object_type: ObjectType(object_type),
            indirect_block_shift,
            levels,
            blkptr_count,
            bonus_type: ObjectType(bonus_type),
            checksum_id,
            compression_id,
            flags,
            data_block_bytes: u32::from(data_block_sectors) << SPA_MINBLOCKSHIFT,
            slots,
            max_block_id,
            used_bytes: if flags & DNODE_FLAG_USED_BYTES != 0 { used } else { used.saturating_mul(512) },
            bonus_len,
            endian,
            raw: block,
        };
        at_most("dnode bonus length", bonus_len.into(), dnode.bonus_space().len() as u64)?;
        at_most("dnode last block", max_block_id.0, dnode.last_block_of_any())?;
        Ok(Some(dnode))
    }

    /// Byte order as stored.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// All stored bytes.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Copies the dnode out of its block.
    pub fn detach(&self) -> Dnode {
        Dnode { raw: Bytes::copy_from_slice(&self.raw), ..self.clone() }
    }

    /// Block pointer `index`; a hole beyond the last.
    pub fn blkptr(&self, index: u8) -> Blkptr {
        if index >= self.blkptr_count {
            return Blkptr::HOLE;
        }
        self.blkptr_at(DNODE_CORE_BYTES + usize::from(index) * BLKPTR_BYTES)
    }

    /// All block pointers.
    pub fn blkptrs(&self) -> impl Iterator<Item = Blkptr> + '_ {
        (0..self.blkptr_count).map(|i| self.blkptr(i))
    }

    /// Spill pointer, if any.
    pub fn spill(&self) -> Option<Blkptr> {
        (self.flags & DNODE_FLAG_SPILL_BLKPTR != 0).then(|| self.blkptr_at(self.raw.len() - BLKPTR_BYTES))
    }

    /// Used bonus bytes, in the byte order of `endian()`.
    pub fn bonus(&self) -> &[u8] {
        let space = self.bonus_space();
        &space[..space.len().min(self.bonus_len.into())]
    }

    fn bonus_space(&self) -> &[u8] {
        let start = DNODE_CORE_BYTES + usize::from(self.blkptr_count) * BLKPTR_BYTES;
        let spill = if self.flags & DNODE_FLAG_SPILL_BLKPTR != 0 { BLKPTR_BYTES } else { 0 };
        self.raw.get(start..self.raw.len() - spill).unwrap_or_default()
    }

    fn blkptr_at(&self, at: usize) -> Blkptr {
        let raw = self.raw.get(at..at + BLKPTR_BYTES).unwrap_or(&[0; BLKPTR_BYTES]);
        Blkptr::decode(raw, self.endian).unwrap_or_default()
    }

    /// Last block within reach of the pointers.
    fn last_addressable_block(&self) -> u64 {
        let top = u64::from(self.blkptr_count);
        let shift = self.fanout_shift() * u32::from(self.levels - 1);
        if shift < top.leading_zeros() { (top << shift) - 1 } else { u64::MAX }
    }

    /// Last block of an object of [`MAX_OBJECT_BYTES`].
    fn last_block_of_any(&self) -> u64 {
        let blocks = MAX_OBJECT_BYTES.checked_div(self.data_block_bytes.into());
        blocks.unwrap_or(1) - 1
    }

    /// log2 of the pointers per indirect block.
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.indirect_block_shift).saturating_sub(BLKPTR_BYTES.ilog2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut raw = vec![0; 1024];
        raw[..8].copy_from_slice(&[19, 17, 2, 1, 44, 0, 0, DNODE_FLAG_USED_BYTES | DNODE_FLAG_SPILL_BLKPTR]);
        raw[8..10].copy_from_slice(&256u16.to_le_bytes());
        raw[10..12].copy_from_slice(&168u16.to_le_bytes());
        raw[12] = 1;
        raw[24..32].copy_from_slice(&4096u64.to_le_bytes());
        raw[192] = 0xab;
        raw
    }

    #[test]
    fn a_large_dnode_shows_bonus_and_spill() {
        let dnode = Dnode::decode(sample().into(), Endian::Little).unwrap().unwrap();
        assert_eq!(dnode.object_type, ObjectType::PLAIN_FILE_CONTENTS);
        assert_eq!(dnode.data_block_bytes, 131072);
        assert_eq!(dnode.slots, 2);
        assert_eq!(dnode.bonus().len(), 168);
        assert_eq!(dnode.bonus()[0], 0xab);
        assert!(dnode.spill().unwrap().is_hole());
    }

    #[test]
    fn fields_out_of_range_are_refused() {
        // Last case: block 65536 of a tree of 1024.
        for (at, value) in [(2, 0), (3, 0), (3, 4), (12, 200), (1, 60), (11, 0xff), (18, 1)] {
            let mut raw = sample();
            raw[at] = value;
            assert!(Dnode::decode(raw.into(), Endian::Little).is_err(), "byte {at} = {value}");
        }
        assert!(Dnode::decode(sample()[..600].to_vec().into(), Endian::Little).is_err());
    }

    #[test]
    fn the_last_block_lies_where_pointers_lead() {
        let decode = |levels: u8, last: u64| {
            let mut raw = sample();
            raw[2] = levels;
            raw[16..24].copy_from_slice(&last.to_le_bytes());
            Dnode::decode(raw.into(), Endian::Little).is_ok()
        };
        // One pointer, 1024 per indirect block, blocks of 128 KiB: 2^63 bytes are 2^46 blocks.
        for (levels, end) in [(1, 1), (2, 1 << 10), (5, 1 << 40), (6, 1 << 46), (32, 1 << 46)] {
            assert!(decode(levels, end - 1) && !decode(levels, end), "{levels} levels");
            assert!(!decode(levels, u64::MAX), "{levels} levels");
        }
    }

    #[test]
    fn type_zero_is_a_free_slot() {
        assert!(Dnode::decode(vec![0; 512].into(), Endian::Little).unwrap().is_none());
    }
}
