//! dRAID permutation maps: the disk for each column of each slice.
//!
//! Idea: dRAID spreads data, parity and spare space over all disks. A slice is laid out in columns; a row of
//! the permutation map assigns a child to each. The maps are not on disk: each number of children has a fixed
//! seed, from which a generator shuffles each row from the previous one. A checksum guards against a wrong
//! map.
//!
//! With failure domains (enclosures), the children form several failure groups, each with one child of every
//! domain. Rows of the map are then dealt to the groups in turn, and among the rows of one turn the children
//! of each domain are dealt out at random: no row gets two children of a domain, and every disk works with
//! every disk of the other domains. Children are numbered by group, then domain.
//!
//! Invariant: every row is a permutation of `0..children`; with failure groups, all rows of a turn together
//! are a permutation of all children, and a row has one child of each domain.
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
    failure_groups: usize,
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
        Permutations { children: row.len(), failure_groups: 1, rows }
    }

    /// Generates the rows for several failure groups of [`DraidMap::children`] each.
    ///
    /// # Errors
    /// No group, or more children than [`VDEV_DRAID_MAX_CHILDREN`].
    pub fn generate_for(&self, failure_groups: u64) -> Result<Permutations> {
        let width = failure_groups.saturating_mul(self.children.into());
        if failure_groups == 0 || width > VDEV_DRAID_MAX_CHILDREN {
            let (what, bound) = ("dRAID children of all failure groups", VDEV_DRAID_MAX_CHILDREN);
            return Err(FormatError::OutOfRange { what, value: width, bound });
        }
        let mut all = self.generate();
        if failure_groups > 1 {
            all.deal(failure_groups as usize, self.seed);
        }
        Ok(all)
    }
}

impl Permutations {
    /// Number of rows.
    pub fn count(&self) -> u64 {
        (self.rows.len() / self.children) as u64
    }

    fn row(&self, index: u64) -> &[u8] {
        let at = (index % self.count()) as usize * self.children;
        &self.rows[at..at + self.children]
    }

    /// The child in a column of a failure group's part of a slice. Rows repeat.
    ///
    /// # Panics
    /// The row has no such column.
    pub fn child(&self, slice: u64, failure_group: u64, column: u64) -> usize {
        let children = self.children as u64;
        // A row serves as many slices as it has columns, rotated by one more each time: without failure
        // groups by adding to the child, with them by moving the columns, so that the group keeps its disks.
        match self.failure_groups as u64 {
            1 => {
                let child = u64::from(self.row(slice / children)[column as usize]) + slice % children;
                (child % children) as usize
            }
            groups => {
                let index = slice.wrapping_mul(groups).wrapping_add(failure_group);
                let turn = index / (children * groups);
                let row = self.row(turn.wrapping_mul(groups).wrapping_add(failure_group));
                row[((column + index % children) % children) as usize].into()
            }
        }
    }

    /// Turns rows of one failure group into turns of a row for each group. The last rows, too few for a turn,
    /// are dropped.
    fn deal(&mut self, failure_groups: usize, seed: u64) {
        let children = self.children;
        let mut random = Xoroshiro128 { state: [VDEV_DRAID_SEED, seed] };
        self.failure_groups = failure_groups;
        self.rows.truncate(self.rows.len() / (children * failure_groups) * (children * failure_groups));
        for turn in self.rows.chunks_exact_mut(children * failure_groups) {
            // A row of the map has domains; the order of dealing is that of the first row.
            let domains = turn[..children].to_vec();
            let places: Vec<Vec<usize>> = domains
                .iter()
                .map(|domain| (0..turn.len()).filter(|&at| turn[at] == *domain).collect())
                .collect();
            for (domain, places) in domains.iter().zip(places) {
                let mut hand: Vec<u8> = (0..failure_groups).map(|g| domain + (g * children) as u8).collect();
                for last in (1..hand.len()).rev() {
                    hand.swap(last, (random.next() % (last as u64 + 1)) as usize);
                }
                for (at, child) in places.into_iter().zip(hand) {
                    turn[at] = child;
                }
            }
        }
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
        let map = DraidMap::for_children(4).unwrap();
        for failure_groups in [0, 64, u64::MAX] {
            assert!(map.generate_for(failure_groups).is_err(), "{failure_groups}");
        }
        assert_eq!(map.generate_for(1), Ok(map.generate()));
    }

    #[test]
    fn failure_groups_share_all_disks_and_have_one_of_each_domain() {
        let shapes = [(2, 2), (4, 2), (3, 5), (7, 3), (24, 10), (2, 127), (127, 2), (85, 3)];
        for (children, failure_groups) in shapes {
            let map = DraidMap::for_children(children).unwrap();
            let permutations = map.generate_for(failure_groups).unwrap();
            let turns = permutations.count() / failure_groups;
            assert!(turns > 0 && permutations.count().is_multiple_of(failure_groups));
            // Slices of two rotations of each turn, and the first ones again.
            for turn in 0..=turns {
                for slice in [turn * children, turn * children + 1] {
                    let row = |group| (0..children).map(move |column| (group, column));
                    let child = |(group, column)| permutations.child(slice, group, column);
                    let mut all: Vec<usize> = (0..failure_groups).flat_map(row).map(child).collect();
                    for row in all.chunks(children as usize) {
                        let mut domains: Vec<usize> =
                            row.iter().map(|child| child % children as usize).collect();
                        domains.sort_unstable();
                        assert!(domains.into_iter().eq(0..children as usize), "{children}: slice {slice}");
                    }
                    all.sort_unstable();
                    assert!(all.into_iter().eq(0..(children * failure_groups) as usize), "{children}");
                }
            }
            let first = |turn| permutations.child(turn * children, 0, 0);
            assert_eq!(first(0), first(turns), "{children} children: rows repeat");
        }
    }
}
