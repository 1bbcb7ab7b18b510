//! Free ranges, by offset and by size.
//!
//! Invariants: both views hold the same ranges. Ranges begin and end at multiples of the unit, because only
//! [`Span`]s are inserted and removed. So whole units that fit in a range fit at its start.

use super::histogram::SizeHistogram;
use super::unit::{Span, Unit};
use crate::ranges::{Ranges, Watch};
use std::collections::BTreeSet;

/// OpenZFS examines as many (`metaslab_min_search_count`), plus all within 16 MiB, which are thousands where
/// space is fragmented.
const MAX_SEARCH_COUNT: usize = 100;

#[derive(Debug)]
pub(super) struct FreeSpace {
    by_place: Ranges,
    by_size: BySize,
}

#[derive(Debug, Default)]
struct BySize {
    /// (length, start)
    ranges: BTreeSet<(u64, u64)>,
    histogram: SizeHistogram,
}

impl Watch for BySize {
    fn gone(&mut self, start: u64, end: u64) {
        self.ranges.remove(&(end - start, start));
        self.histogram.sub(end - start);
    }

    fn came(&mut self, start: u64, end: u64) {
        self.ranges.insert((end - start, start));
        self.histogram.add(end - start);
    }
}

impl FreeSpace {
    pub(super) fn new(free: &Ranges, unit: Unit) -> FreeSpace {
        let mut by_place = Ranges::default();
        for span in free.iter().filter_map(|range| unit.within(range)) {
            by_place.insert(span.start(), span.len());
        }
        let ranges = by_place.iter().map(|(start, end)| (end - start, start)).collect();
        let histogram = by_place.iter().collect();
        FreeSpace { by_place, by_size: BySize { ranges, histogram } }
    }

    pub(super) fn ranges(&self) -> &Ranges {
        &self.by_place
    }

    pub(super) fn histogram(&self) -> &SizeHistogram {
        &self.by_size.histogram
    }

    pub(super) fn largest_bytes(&self) -> u64 {
        self.by_size.ranges.last().map_or(0, |(len, _)| *len)
    }

    pub(super) fn insert(&mut self, span: Span) {
        let present = self.by_place.insert_watched(span.start(), span.len(), &mut self.by_size);
        debug_assert_eq!(present, 0, "{span:x?} was free");
    }

    pub(super) fn remove(&mut self, span: Span) {
        let removed = self.by_place.remove_watched(span.start(), span.len(), &mut self.by_size);
        debug_assert_eq!(removed, span.len(), "{span:x?} was not free");
    }

    /// The first fit from `from` on, among the next [`MAX_SEARCH_COUNT`] ranges.
    pub(super) fn first_fit(&self, from: u64, len: u64) -> Option<u64> {
        let mut near = self.by_place.iter_from(from).take(MAX_SEARCH_COUNT);
        near.find(|(start, end)| end - start >= len).map(|(start, _)| start)
    }

    /// The smallest fit; the first of several.
    pub(super) fn best_fit(&self, len: u64) -> Option<u64> {
        self.by_size.ranges.range((len, 0)..).next().map(|(_, start)| *start)
    }
}
