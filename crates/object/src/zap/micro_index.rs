//! The index of a micro ZAP's block: names to slots.

use cenote_format::bytes::Endian;
use cenote_format::zap::ZapHasher;

use crate::zap::key::hash_name;

/// `MZAP_ENT_LEN`.
const SLOT_BYTES: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct MicroIndex {
    /// Upper half of the hash, differentiator and slot (16 bits each), in order.
    pub(super) order: Vec<u64>,
    /// Start of the search for a free slot: a new name must not come before a reader's position.
    next: usize,
    pub(super) hasher: ZapHasher,
    pub(super) normflags: u64,
}

/// Packs an entry of `order`.
pub(super) fn place(hash: u64, cd: u32, slot: usize) -> u64 {
    hash >> 32 << 32 | u64::from(cd.min(0xffff)) << 16 | slot as u64
}

pub(super) fn slot_of(place: u64) -> usize {
    (place & 0xffff) as usize
}

pub(super) fn cd_of(place: u64) -> u32 {
    (place >> 16 & 0xffff) as u32
}

impl MicroIndex {
    pub(super) fn of(block: &[u8]) -> MicroIndex {
        let (hasher, normflags) = hashing(block);
        let entries = (0..slots(block)).filter_map(|number| {
            let entry = slot(block, number);
            Some(place(hash_name(hasher, normflags, name_of(entry)?), cd_in(entry), number))
        });
        let mut order: Vec<u64> = entries.collect();
        order.sort_unstable();
        MicroIndex { order, next: 0, hasher, normflags }
    }

    pub(super) fn of_hash(&self, hash: u64) -> &[u64] {
        let start = self.order.partition_point(|place| place >> 32 < hash >> 32);
        let same = self.order[start..].iter().take_while(|place| **place >> 32 == hash >> 32).count();
        &self.order[start..start + same]
    }

    pub(super) fn find(&self, block: &[u8], hash: u64, name: &[u8]) -> Option<u64> {
        let is_it = |place: &&u64| name_of(slot(block, slot_of(**place))) == Some(name);
        self.of_hash(hash).iter().find(is_it).copied()
    }

    pub(super) fn unused_cd(&self, hash: u64) -> u32 {
        let in_use = self.of_hash(hash).iter().map(|place| cd_of(*place));
        in_use.fold(0, |cd, used| if used == cd { cd + 1 } else { cd })
    }

    /// A free slot; there must be one.
    pub(super) fn take_slot(&mut self, block: &[u8]) -> usize {
        let count = slots(block);
        let is_free = |number: &usize| name_of(slot(block, *number)).is_none();
        let found = (self.next..count).find(is_free).or_else(|| (0..count).find(is_free)).unwrap_or(0);
        self.next = if found + 1 < count { found + 1 } else { 0 };
        found
    }

    pub(super) fn insert(&mut self, place: u64) {
        let at = self.order.partition_point(|other| *other < place);
        self.order.insert(at, place);
    }

    pub(super) fn remove(&mut self, place: u64) {
        let at = self.order.partition_point(|other| *other < place);
        self.order.remove(at);
    }
}

pub(super) fn hashing(block: &[u8]) -> (ZapHasher, u64) {
    (ZapHasher { salt: word(block, 1), flags: 0 }, word(block, 2))
}

pub(super) fn slots(block: &[u8]) -> usize {
    (block.len() / SLOT_BYTES).saturating_sub(1)
}

pub(super) fn slot(block: &[u8], number: usize) -> &[u8] {
    &block[(number + 1) * SLOT_BYTES..][..SLOT_BYTES]
}

pub(super) fn slot_mut(block: &mut [u8], number: usize) -> &mut [u8] {
    &mut block[(number + 1) * SLOT_BYTES..][..SLOT_BYTES]
}

pub(super) fn write_slot(slot: &mut [u8], value: u64, cd: u32, name: &[u8]) {
    slot.fill(0);
    slot[..8].copy_from_slice(&value.to_ne_bytes());
    slot[8..12].copy_from_slice(&cd.to_ne_bytes());
    slot[14..14 + name.len()].copy_from_slice(name);
}

/// The name in a slot; `None`: free.
pub(super) fn name_of(slot: &[u8]) -> Option<&[u8]> {
    let name = &slot[14..];
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    (len > 0).then(|| &name[..len])
}

pub(super) fn cd_in(slot: &[u8]) -> u32 {
    slot[8..].first_chunk::<4>().map_or(0, |bytes| Endian::NATIVE.u32(*bytes))
}

/// The word at an index; 0 beyond the end.
pub(super) fn word(block: &[u8], index: usize) -> u64 {
    block.as_chunks::<8>().0.get(index).map_or(0, |bytes| Endian::NATIVE.u64(*bytes))
}
