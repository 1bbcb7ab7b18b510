//! Sets of disk ranges, sorted and merged: the referenced space and the allocated space.
//!
//! Idea: a range is one `u128` whose order is disk order, so a set is a sorted list of numbers and every
//! operation is a merge. New ranges are collected unsorted; when there are as many as merged ones (at least
//! [`FRESH`]), they are sorted and merged in, adjacent ones joined.
//!
//! ```text
//!   u128   | vdev (24) | first sector (52) | sectors (52) |      sectors of 512 bytes
//! ```
//!
//! Memory: 16 bytes per gap between used ranges, not per block; at most three times that (plus [`FRESH`])
//! while merging. A pool of 10 million blocks of which no two are adjacent takes 160 MB, a freshly filled one
//! some kilobytes.
//!
//! Invariants: `merged` is sorted; its ranges neither overlap nor touch.

use cenote_format::units::{SPA_MINBLOCKSHIFT, VdevId};

/// The minimum number of ranges collected before a merge: 16 MiB.
const FRESH: usize = 1 << 20;
/// Most overlaps kept; the rest are only summed.
const KEPT_OVERLAPS: usize = 10_000;
const SECTOR_BITS: u32 = 52;
const SECTOR_MASK: u128 = (1 << SECTOR_BITS) - 1;

/// A range of a top-level vdev.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
pub struct Extent {
    /// The top-level vdev's number.
    pub vdev: u64,
    /// Byte offset on it, as in block pointers.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

impl Extent {
    /// Offsets and lengths are rounded down to whole sectors; everything on disk has whole sectors.
    pub(crate) fn new(vdev: VdevId, offset_bytes: u64, len_bytes: u64) -> Extent {
        Extent { vdev: vdev.0, offset_bytes, len_bytes }
    }

    fn pack(self) -> Option<u128> {
        let (start, len) = (self.offset_bytes >> SPA_MINBLOCKSHIFT, self.len_bytes >> SPA_MINBLOCKSHIFT);
        let fits = self.vdev < 1 << 24 && start.checked_add(len)? <= SECTOR_MASK as u64;
        (fits && len > 0).then(|| pack(self.vdev, start, start + len))
    }
}

fn pack(vdev: u64, start: u64, end: u64) -> u128 {
    u128::from(vdev) << (2 * SECTOR_BITS) | u128::from(start) << SECTOR_BITS | u128::from(end - start)
}

/// (vdev, first sector, one past the last)
fn unpack(packed: u128) -> (u64, u64, u64) {
    let start = (packed >> SECTOR_BITS & SECTOR_MASK) as u64;
    ((packed >> (2 * SECTOR_BITS)) as u64, start, start + (packed & SECTOR_MASK) as u64)
}

fn extent(vdev: u64, start: u64, end: u64) -> Extent {
    Extent { vdev, offset_bytes: start << SPA_MINBLOCKSHIFT, len_bytes: (end - start) << SPA_MINBLOCKSHIFT }
}

/// A set of ranges that detects ranges added twice.
#[derive(Debug, Default)]
pub(crate) struct ExtentSet {
    merged: Vec<u128>,
    fresh: Vec<u128>,
    overlaps: Vec<Extent>,
    overlap_bytes: u64,
}

impl ExtentSet {
    /// Adds a range. Returns `false` for a range that no vdev can hold.
    pub(crate) fn insert(&mut self, range: Extent) -> bool {
        let Some(packed) = range.pack() else { return range.len_bytes == 0 };
        self.fresh.push(packed);
        if self.fresh.len() >= self.merged.len().max(FRESH) {
            self.settle();
        }
        true
    }

    /// Merges the collected ranges.
    pub(crate) fn settle(&mut self) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_unstable();
        let old = std::mem::take(&mut self.merged);
        let mut merged: Vec<u128> = Vec::with_capacity(old.len() + fresh.len() / 2);
        let (mut a, mut b) = (old.into_iter().peekable(), fresh.into_iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x <= y => a.next(),
                (_, Some(_)) => b.next(),
                _ => a.next(),
            };
            let Some(next) = next else { break };
            self.append(&mut merged, next);
        }
        merged.shrink_to_fit();
        self.merged = merged;
    }

    fn append(&mut self, merged: &mut Vec<u128>, next: u128) {
        let (vdev, start, end) = unpack(next);
        let Some(last) = merged.last_mut() else { return merged.push(next) };
        let (last_vdev, last_start, last_end) = unpack(*last);
        if vdev != last_vdev || start > last_end {
            return merged.push(next);
        }
        if start < last_end {
            let overlap = extent(vdev, start, end.min(last_end));
            self.overlap_bytes += overlap.len_bytes;
            if self.overlaps.len() < KEPT_OVERLAPS {
                self.overlaps.push(overlap);
            }
        }
        *last = pack(vdev, last_start, end.max(last_end));
    }

    /// Ranges added more than once, and their total bytes. Call after [`ExtentSet::settle`].
    pub(crate) fn overlaps(&self) -> (&[Extent], u64) {
        (&self.overlaps, self.overlap_bytes)
    }

    /// The ranges on one vdev, in order. Call after [`ExtentSet::settle`].
    pub(crate) fn on_vdev(&self, vdev: VdevId) -> impl Iterator<Item = Extent> + '_ {
        let at = |vdev: u64| self.merged.partition_point(|&packed| unpack(packed).0 < vdev);
        self.merged[at(vdev.0)..at(vdev.0 + 1)].iter().map(|&packed| {
            let (vdev, start, end) = unpack(packed);
            extent(vdev, start, end)
        })
    }
}

/// The ranges in `left` not in `right`; both are sorted, without overlaps, on one vdev.
pub(crate) fn subtract(
    left: impl Iterator<Item = Extent>,
    right: impl Iterator<Item = Extent>,
    mut each: impl FnMut(Extent),
) {
    let mut right = right.peekable();
    for whole in left {
        let (mut start, end) = (whole.offset_bytes, whole.offset_bytes + whole.len_bytes);
        while let Some(cut) = right.peek() {
            let (cut_start, cut_end) = (cut.offset_bytes, cut.offset_bytes + cut.len_bytes);
            if cut_start >= end {
                break;
            }
            if cut_start > start {
                each(Extent { offset_bytes: start, len_bytes: cut_start - start, ..whole });
            }
            start = start.max(cut_end);
            if cut_end > end {
                break;
            }
            right.next();
        }
        if start < end {
            each(Extent { offset_bytes: start, len_bytes: end - start, ..whole });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(vdev: u64, start: u64, len: u64) -> Extent {
        Extent { vdev, offset_bytes: start * 512, len_bytes: len * 512 }
    }

    fn set(ranges: &[Extent]) -> ExtentSet {
        let mut set = ExtentSet::default();
        ranges.iter().for_each(|&r| assert!(set.insert(r)));
        set.settle();
        set
    }

    #[test]
    fn neighbours_merge_and_overlaps_are_noticed() {
        let set = set(&[range(0, 8, 8), range(0, 0, 8), range(1, 16, 4), range(0, 12, 8)]);
        assert_eq!(set.on_vdev(VdevId(0)).collect::<Vec<_>>(), [range(0, 0, 20)]);
        assert_eq!(set.on_vdev(VdevId(1)).collect::<Vec<_>>(), [range(1, 16, 4)]);
        assert_eq!(set.overlaps(), (&[range(0, 12, 4)][..], 2048));
    }

    #[test]
    fn what_no_vdev_can_hold_is_refused() {
        let mut set = ExtentSet::default();
        assert!(!set.insert(Extent { vdev: 1 << 24, offset_bytes: 0, len_bytes: 512 }));
        assert!(!set.insert(Extent { vdev: 0, offset_bytes: u64::MAX - 511, len_bytes: u64::MAX }));
    }

    proptest! {
        #[test]
        fn sets_are_what_a_bitmap_says(
            left in prop::collection::vec((0u64..64, 1u64..9), 0..20),
            right in prop::collection::vec((0u64..64, 1u64..9), 0..20),
        ) {
            let bits = |ranges: &[(u64, u64)]| {
                ranges.iter().fold(0u128, |bits, &(start, len)| bits | ((1 << len) - 1) << start)
            };
            let of = |ranges: &[(u64, u64)]| {
                set(&ranges.iter().map(|&(s, l)| range(0, s, l)).collect::<Vec<_>>())
            };
            let back = |ranges: &[Extent]| {
                let pairs = ranges.iter().map(|r| (r.offset_bytes / 512, r.len_bytes / 512));
                bits(&pairs.collect::<Vec<_>>())
            };
            let (a, b) = (of(&left), of(&right));
            let ranges: Vec<_> = a.on_vdev(VdevId(0)).collect();
            prop_assert_eq!(back(&ranges), bits(&left));
            prop_assert!(ranges.windows(2).all(|w| w[0].offset_bytes + w[0].len_bytes < w[1].offset_bytes));
            let total: u64 = left.iter().map(|r| r.1 * 512).sum();
            prop_assert_eq!(ranges.iter().map(|r| r.len_bytes).sum::<u64>() + a.overlaps().1, total);

            let mut only_left = Vec::new();
            subtract(a.on_vdev(VdevId(0)), b.on_vdev(VdevId(0)), |r| only_left.push(r));
            prop_assert_eq!(back(&only_left), bits(&left) & !bits(&right));
        }
    }
}
