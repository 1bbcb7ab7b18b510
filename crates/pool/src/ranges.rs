//! A set of byte ranges that detects double insertion and removal.
//!
//! Invariants: ranges are not empty, do not overlap and do not touch.

use std::collections::BTreeMap;

/// A range was added that was already there, or removed that was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Start of the range.
    pub offset_bytes: u64,
    /// Length of the range.
    pub len_bytes: u64,
    /// Bytes already in the intended state.
    pub bytes: u64,
}

/// A set of byte ranges.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// Maps start to end.
    ends: BTreeMap<u64, u64>,
    total_bytes: u64,
}

impl Ranges {
    /// The ranges in order, as (start, end).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(&start, &end)| (start, end))
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in the set.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether the whole range is in the set.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        len == 0 || self.ends.range(..=offset).next_back().is_some_and(|(_, &e)| e >= end)
    }

    /// Whether no byte of the range is in the set.
    pub fn is_clear(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        len == 0 || self.ends.range(..end).next_back().is_none_or(|(_, &e)| e <= offset)
    }

    /// The ranges that end beyond `offset`, in order.
    pub fn iter_from(&self, offset: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let across = self.ends.range(..offset).next_back().filter(|(_, end)| **end > offset);
        across.into_iter().chain(self.ends.range(offset..)).map(|(&start, &end)| (start, end))
    }

    /// The parts of `start..end` not in the set.
    pub fn complement(&self, start: u64, end: u64) -> Ranges {
        let mut gaps = Vec::new();
        let mut at = start;
        for (s, e) in self.iter_from(start).take_while(|(s, _)| *s < end) {
            if s > at {
                gaps.push((at, s));
            }
            at = e;
        }
        if at < end {
            gaps.push((at, end));
        }
        let total_bytes = gaps.iter().map(|(start, end)| end - start).sum();
        Ranges { ends: gaps.into_iter().collect(), total_bytes }
    }

    /// Adds a range. Returns the overlap if part of it was there.
    pub fn insert(&mut self, offset: u64, len: u64) -> Option<Overlap> {
        let bytes = self.insert_watched(offset, len, &mut ());
        (bytes > 0).then_some(Overlap { offset_bytes: offset, len_bytes: len, bytes })
    }

    /// Removes a range. Returns the overlap if part of it was not there.
    pub fn remove(&mut self, offset: u64, len: u64) -> Option<Overlap> {
        let removed = self.remove_watched(offset, len, &mut ());
        let bytes = offset.saturating_add(len) - offset - removed;
        (bytes > 0).then_some(Overlap { offset_bytes: offset, len_bytes: len, bytes })
    }

    /// Returns how many bytes were there.
    pub(crate) fn insert_watched(&mut self, offset: u64, len: u64, watch: &mut impl Watch) -> u64 {
        let end = offset.saturating_add(len);
        if offset == end {
            return 0;
        }
        let (mut start, mut last, mut present) = (offset, end, 0);
        // Merges all ranges that touch the new one; one that begins before it keeps its start.
        loop {
            let Some((&s, e)) = self.ends.range_mut(..=last).next_back().filter(|(_, e)| **e >= offset)
            else {
                self.ends.insert(start, last);
                break;
            };
            present += end.min(*e).saturating_sub(s.max(offset));
            self.total_bytes -= *e - s;
            watch.gone(s, *e);
            last = last.max(*e);
            if s <= offset {
                (start, *e) = (s, last);
                break;
            }
            self.ends.remove(&s);
        }
        self.total_bytes += last - start;
        watch.came(start, last);
        present
    }

    /// Returns how many bytes were there.
    pub(crate) fn remove_watched(&mut self, offset: u64, len: u64, watch: &mut impl Watch) -> u64 {
        let end = offset.saturating_add(len);
        let mut removed = 0;
        while let Some((&s, e)) = self.ends.range_mut(..end).next_back().filter(|(_, e)| **e > offset) {
            let was_end = *e;
            watch.gone(s, was_end);
            removed += was_end.min(end) - s.max(offset);
            if s < offset {
                *e = offset;
                watch.came(s, offset);
            } else {
                self.ends.remove(&s);
            }
            if was_end > end {
                self.ends.insert(end, was_end);
                watch.came(end, was_end);
            }
        }
        self.total_bytes -= removed;
        removed
    }
}

/// Observes changes, to keep another view of the set.
pub(crate) trait Watch {
    fn gone(&mut self, start: u64, end: u64);
    fn came(&mut self, start: u64, end: u64);
}

impl Watch for () {
    fn gone(&mut self, _start: u64, _end: u64) {}
    fn came(&mut self, _start: u64, _end: u64) {}
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

    /// Compares with an array of bits under random changes.
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
        let gaps = ranges.complement(3, 250);
        for at in 0..256 {
            let inside = (3..250).contains(&at);
            assert_eq!(gaps.contains(at, 1), inside && !bits[at as usize], "{at}");
            assert_eq!(ranges.is_clear(at, 1), !bits[at as usize], "{at}");
            let beyond = ranges.iter().filter(|(_, end)| *end > at);
            assert_eq!(ranges.iter_from(at).collect::<Vec<_>>(), beyond.collect::<Vec<_>>(), "{at}");
        }
        assert_eq!(gaps.total_bytes(), gaps.iter().map(|(start, end)| end - start).sum::<u64>());
        for (start, end) in ranges.iter() {
            assert!(bits[start as usize..end as usize].iter().all(|b| *b));
            assert!(!bits.get(end as usize).copied().unwrap_or(false));
        }
    }
}
