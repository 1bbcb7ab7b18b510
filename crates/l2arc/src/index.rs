//! Which blocks are on cache devices, and where.
//!
//! Idea: as small as can be, since a device may hold a hundred times more blocks than memory does. A block's
//! name is a hash of its first address and birth; where it lies, how long it is, and in which round of the
//! ring it was written, are packed into one word. What the ring has written over since is found out when it
//! is looked up, and swept out when the ring begins anew. A wrong answer does no harm: whoever reads the
//! block verifies it by its pointer.
//!
//! Memory: 17 bytes for each place in the table, which is half to seven eighths full: 20 to 34 bytes a block
//! (OpenZFS: 96).
//!
//! Locking: none here; [`crate::CacheDevices`] keeps it behind a mutex.

use cenote_format::blkptr::{Blkptr, BlkptrKind, Dva};
use cenote_format::units::{PhysicalBirth, SPA_MINBLOCKSHIFT};
use rustc_hash::FxHashMap;

/// Devices that a pool can use.
pub(crate) const MAX_DEVICES: usize = 32;
/// Rounds are counted in so many bits.
const ROUND_BITS: u32 = 3;
const DEVICE_BITS: u32 = 5;
const LEN_BITS: u32 = 16;
/// The largest device, in bytes: 512 TiB.
pub(crate) const MAX_DEVICE_BYTES: u64 = 1 << (64 - ROUND_BITS - DEVICE_BITS - LEN_BITS + SPA_MINBLOCKSHIFT);
/// A place in the table, control byte included.
const SLOT_BYTES: u64 = 17;

/// The name of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockName(u64);

/// Where a block lies.
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

    /// `None` for what is not stored in one piece: holes, what lies in its pointer, gangs.
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

    /// Takes a block out, if it lies there still.
    pub(crate) fn remove(&mut self, name: BlockName, place: Place) -> bool {
        let is_there = self.0.get(&name) == Some(&place.packed());
        is_there && self.0.remove(&name).is_some()
    }

    /// Takes out what does not lie anywhere any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(Place) -> bool) {
        self.0.retain(|_, word| is_there(Place::unpacked(*word)));
        // It fills again as the ring does.
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        // `capacity` is seven eighths of the places there are.
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
