//! dRAID permutation maps: the disk for each column of each slice.
//!
//! Idea: dRAID spreads data, parity and spare space over all disks. A slice is laid out in columns; a row of
//! the permutation map assigns a child to each. The maps are not on disk: each number of children has a fixed
//! seed, from which a generator shuffles each row from the previous one. A checksum guards against a wrong
//! map.
//!
//! Invariant: every row is a permutation of `0..children`.
//!
//! Source: OpenZFS `vdev_draid.c`, `vdev_draid_rand.c` (generator: xoroshiro128++ by Blackman and Vigna,
//! 2019).

mod maps;

use crate::error::{FormatError, Result};

/// `VDEV_DRAID_SEED`: first half of the generator state.
const VDEV_DRAID_SEED: u64 = 0xd_7a1d_5eed;
/// Row bytes per child (16 MiB), `VDEV_DRAID_ROWHEIGHT`.
pub const VDEV_DRAID_ROWHEIGHT: u64 = 1 << 24;
/// Free space at the end of each child, `VDEV_DRAID_REFLOW_RESERVE`.
pub const VDEV_DRAID_REFLOW_RESERVE: u64 = 2 * VDEV_DRAID_ROWHEIGHT;
/// `VDEV_DRAID_MIN_CHILDREN`.
pub const VDEV_DRAID_MIN_CHILDREN: u64 = 2;
/// `VDEV_DRAID_MAX_CHILDREN`.
pub const VDEV_DRAID_MAX_CHILDREN: u64 = 255;

/// Inputs of a map, `draid_map_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidMap {
    /// Children, equal to columns per row.
    pub children: u8,
    /// Rows.
    pub permutations: u16,
    /// Second half of the generator state.
    pub seed: u64,
    /// First word of the rows' fletcher-4 checksum.
    pub checksum: u64,
}

/// The rows of a map. At most 130 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutations {
    children: usize,
    rows: Vec<u8>,
}

impl DraidMap {
    /// Map inputs for a number of children.
    ///
    /// # Errors
    /// Fewer than 2 or more than 255.
    pub fn for_children(children: u64) -> Result<DraidMap> {
        let index = children.checked_sub(VDEV_DRAID_MIN_CHILDREN).and_then(|i| usize::try_from(i).ok());
        index.and_then(|i| maps::DRAID_MAPS.get(i)).copied().ok_or(FormatError::OutOfRange {
            what: "dRAID children",
            value: children,
            bound: VDEV_DRAID_MAX_CHILDREN,
        })
    }

    /// Generates the rows. Takes 10,000 to 130,000 steps, so keep the result.
    pub fn generate(&self) -> Permutations {
        let mut random = Xoroshiro128 { state: [VDEV_DRAID_SEED, self.seed] };
        let mut row: Vec<u8> = (0..self.children).collect();
        let mut rows = Vec::with_capacity(row.len() * usize::from(self.permutations));
        for _ in 0..self.permutations {
            // Fisher-Yates from the last column down; the next row starts from the result.
            for last in (1..row.len()).rev() {
                let pick = random.next() % (last as u64 + 1);
                row.swap(last, pick as usize);
            }
            rows.extend_from_slice(&row);
        }
        Permutations { children: row.len(), rows }
    }
}

impl Permutations {
    /// Number of rows.
    pub fn count(&self) -> u64 {
        (self.rows.len() / self.children) as u64
    }

    /// Children by column in slice `slice` (rows repeat).
    pub fn row(&self, slice: u64) -> &[u8] {
        let at = (slice % self.count()) as usize * self.children;
        &self.rows[at..at + self.children]
    }

    /// First fletcher-4 word: the sum of all little-endian 32-bit words.
    pub fn checksum(&self) -> u64 {
        self.rows.as_chunks::<4>().0.iter().map(|w| u64::from(u32::from_le_bytes(*w))).sum()
    }
}

/// xoroshiro128++.
struct Xoroshiro128 {
    state: [u64; 2],
}

impl Xoroshiro128 {
    fn next(&mut self) -> u64 {
        let [a, mut b] = self.state;
        let result = a.wrapping_add(b).rotate_left(17).wrapping_add(a);
        b ^= a;
        self.state = [a.rotate_left(49) ^ b ^ (b << 21), b.rotate_left(28)];
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_has_its_checksum_and_only_permutations() {
        for children in VDEV_DRAID_MIN_CHILDREN..=VDEV_DRAID_MAX_CHILDREN {
            let map = DraidMap::for_children(children).unwrap();
            assert_eq!(u64::from(map.children), children);
            let permutations = map.generate();
            assert_eq!(permutations.checksum(), map.checksum, "{children} children");
            assert_eq!(permutations.count(), u64::from(map.permutations));
            let identity: Vec<u8> = (0..map.children).collect();
            for slice in 0..permutations.count() {
                let mut row = permutations.row(slice).to_vec();
                row.sort_unstable();
                assert_eq!(row, identity, "{children} children, row {slice}");
            }
            assert_eq!(permutations.row(0), permutations.row(permutations.count()));
        }
    }

    #[test]
    fn other_counts_of_children_are_refused() {
        for children in [0, 1, 256, u64::MAX] {
            assert!(DraidMap::for_children(children).is_err());
        }
    }
}
