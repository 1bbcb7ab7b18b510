//! The index: the blocks on cache devices, and their places.
//!
//! Idea: keep it small, since a device may hold a hundred times more blocks than memory does. A block's name
//! is a hash of its first address and birth; its place, length and ring round are packed into one word.
//! Overwritten blocks are recognised at look-up, and swept out when the ring starts a new round. A wrong
//! place does no harm: readers verify the block by its pointer.
//!
//! Memory: 17 bytes for each slot of the table, which is half to seven eighths full: 20 to 34 bytes a block
//! (OpenZFS: 96).
//!
//! Locking: none here; [`crate::CacheDevices`] keeps it behind a mutex.

use cenote_format::blkptr::{Blkptr, BlkptrKind, Dva};
use cenote_format::units::{PhysicalBirth, SPA_MINBLOCKSHIFT};
use rustc_hash::FxHashMap;

/// Most devices of a pool.
pub(crate) const MAX_DEVICES: usize = 32;
const ROUND_BITS: u32 = 3;
const DEVICE_BITS: u32 = 5;
const LEN_BITS: u32 = 16;
/// The largest device: 512 TiB.
pub(crate) const MAX_DEVICE_BYTES: u64 = 1 << (64 - ROUND_BITS - DEVICE_BITS - LEN_BITS + SPA_MINBLOCKSHIFT);
/// A slot of the table, with its control byte.
const SLOT_BYTES: u64 = 17;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockName(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: u8,
    /// Of the ring, modulo 8.
    pub(crate) round: u8,
    pub(crate) at_bytes: u64,
    pub(crate) psize_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Index(FxHashMap<BlockName, u64>);

impl BlockName {
    pub(crate) fn new(dva: Dva, birth: PhysicalBirth) -> BlockName {
        let [a, b] = dva.to_words();
        // Each step is a bijection of the state.
        let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        BlockName([a, b, birth.0].into_iter().fold(0, step))
    }

    /// `None` for blocks not stored in one piece: holes, embedded blocks, gangs.
    pub(crate) fn of(bp: &Blkptr) -> Option<BlockName> {
        if bp.kind() != BlkptrKind::Normal || bp.is_gang() {
            return None;
        }
        Some(BlockName::new(bp.dvas().next()?, bp.physical_birth()))
    }
}

impl Place {
    fn packed(self) -> u64 {
        debug_assert!(self.at_bytes < MAX_DEVICE_BYTES && usize::from(self.device) < MAX_DEVICES);
        let len = (self.psize_bytes >> SPA_MINBLOCKSHIFT).saturating_sub(1) & ((1 << LEN_BITS) - 1);
        let head = u64::from(self.device) << ROUND_BITS | u64::from(self.round & 7);
        (self.at_bytes >> SPA_MINBLOCKSHIFT) << (ROUND_BITS + DEVICE_BITS + LEN_BITS)
            | len << (ROUND_BITS + DEVICE_BITS)
            | head
    }

    fn unpacked(word: u64) -> Place {
        let bits = |low: u32, len: u32| word >> low & ((1 << len) - 1);
        Place {
            round: bits(0, ROUND_BITS) as u8,
            device: bits(ROUND_BITS, DEVICE_BITS) as u8,
            psize_bytes: (bits(ROUND_BITS + DEVICE_BITS, LEN_BITS) + 1) << SPA_MINBLOCKSHIFT,
            at_bytes: word >> (ROUND_BITS + DEVICE_BITS + LEN_BITS) << SPA_MINBLOCKSHIFT,
        }
    }
}

impl Index {
    pub(crate) fn get(&self, name: BlockName) -> Option<Place> {
        self.0.get(&name).map(|word| Place::unpacked(*word))
    }

    pub(crate) fn insert(&mut self, name: BlockName, place: Place) {
        self.0.insert(name, place.packed());
    }

    /// Removes a block, if still at this place.
    pub(crate) fn remove(&mut self, name: BlockName, place: Place) -> bool {
        let is_there = self.0.get(&name) == Some(&place.packed());
        is_there && self.0.remove(&name).is_some()
    }

    /// Removes the blocks that are gone.
    pub(crate) fn retain(&mut self, is_there: impl Fn(Place) -> bool) {
        self.0.retain(|_, word| is_there(Place::unpacked(*word)));
        // It grows again with the ring.
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> u64 {
        // `capacity` is seven eighths of the slots.
        self.0.capacity() as u64 * 8 / 7 * SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_place_comes_back(
            device in 0..MAX_DEVICES as u8,
            round in 0..8_u8,
            at in 0..MAX_DEVICE_BYTES >> SPA_MINBLOCKSHIFT,
            len in 1..1_u64 << LEN_BITS,
        ) {
            let (at_bytes, psize_bytes) = (at << SPA_MINBLOCKSHIFT, len << SPA_MINBLOCKSHIFT);
            let place = Place { device, round, at_bytes, psize_bytes };
            prop_assert_eq!(Place::unpacked(place.packed()), place);
        }
    }

    #[test]
    fn a_block_takes_20_to_40_bytes() {
        let mut index = Index::default();
        for n in 0..100_000 {
            let place = Place { device: 0, round: 0, at_bytes: n << 12, psize_bytes: 4096 };
            index.insert(BlockName(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)), place);
        }
        assert!((20..40).contains(&(index.bytes() / index.len())), "{}", index.bytes());
    }
}
