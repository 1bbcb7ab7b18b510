//! A set of byte ranges that notices when a range is added or removed twice.
//!
//! Invariants: ranges are not empty, do not overlap and do not touch.

use std::collections::BTreeMap;

/// A contradiction: a range was added that was there, or removed that was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Where the range begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
    /// How many of its bytes were already as they were to become.
    pub bytes: u64,
}

/// A set of byte ranges.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// End by start.
    ends: BTreeMap<u64, u64>,
    total_bytes: u64,
}

impl Ranges {
    /// The ranges in order: start and end.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(&start, &end)| (start, end))
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The set is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in the set.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The whole range is in the set.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        len == 0 || self.ends.range(..=offset).next_back().is_some_and(|(_, &e)| e >= end)
    }

    /// Adds a range. Something comes back if part of it was there.
    pub fn insert(&mut self, offset: u64, len: u64) -> Option<Overlap> {
        let (mut start, mut end) = (offset, offset.saturating_add(len));
        if start == end {
            return None;
        }
        let mut present = 0;
        // All ranges that touch the new one become part of it.
        while let Some((&s, &e)) = self.ends.range(..=end).next_back().filter(|(_, e)| **e >= start) {
            present += e.min(offset.saturating_add(len)).saturating_sub(s.max(offset));
            self.ends.remove(&s);
            self.total_bytes -= e - s;
            (start, end) = (start.min(s), end.max(e));
        }
        self.ends.insert(start, end);
        self.total_bytes += end - start;
        (present > 0).then_some(Overlap { offset_bytes: offset, len_bytes: len, bytes: present })
    }

    /// Removes a range. Something comes back if part of it was not there.
    pub fn remove(&mut self, offset: u64, len: u64) -> Option<Overlap> {
        let end = offset.saturating_add(len);
        let mut removed = 0;
        while let Some((&s, &e)) = self.ends.range(..end).next_back().filter(|(_, e)| **e > offset) {
            self.ends.remove(&s);
            if s < offset {
                self.ends.insert(s, offset);
            }
            if e > end {
                self.ends.insert(end, e);
            }
            removed += e.min(end) - s.max(offset);
        }
        self.total_bytes -= removed;
        let absent = (end - offset) - removed;
        (absent > 0).then_some(Overlap { offset_bytes: offset, len_bytes: len, bytes: absent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_split_and_notice() {
        let mut r = Ranges::default();
        assert_eq!(r.insert(10, 10), None);
        assert_eq!(r.insert(30, 10), None);
        assert_eq!(r.insert(20, 10), None);
        assert_eq!(r.iter().collect::<Vec<_>>(), [(10, 40)]);
        assert_eq!(r.remove(15, 5), None);
        assert_eq!(r.iter().collect::<Vec<_>>(), [(10, 15), (20, 40)]);
        assert_eq!(r.insert(12, 10).map(|o| o.bytes), Some(5));
        assert_eq!(r.remove(5, 10).map(|o| o.bytes), Some(5));
        assert_eq!((r.total_bytes(), r.contains(15, 25), r.contains(14, 2)), (25, true, false));
    }

    /// Against a plain array of bits, with random changes from a fixed seed.
    #[test]
    fn it_does_what_an_array_of_bits_does() {
        let mut seed = 0x1234_5678_9abc_def0u64;
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        let (mut ranges, mut bits) = (Ranges::default(), [false; 256]);
        for step in 0..5000 {
            let (offset, add) = (next(240), next(2) == 0);
            let len = next(256 - offset).min(20);
            let same = (offset..offset + len).filter(|&i| bits[i as usize] == add).count() as u64;
            let overlap = if add { ranges.insert(offset, len) } else { ranges.remove(offset, len) };
            assert_eq!(overlap.map_or(0, |o| o.bytes), same, "step {step}");
            bits[offset as usize..(offset + len) as usize].fill(add);
            assert_eq!(ranges.total_bytes(), bits.iter().filter(|b| **b).count() as u64, "step {step}");
        }
        for (start, end) in ranges.iter() {
            assert!(bits[start as usize..end as usize].iter().all(|b| *b));
            assert!(!bits.get(end as usize).copied().unwrap_or(false));
        }
    }
}
