//! The map of a disk: which part of which segment has the newest bytes of each range.
//!
//! Idea: a tree of extents by their place on the disk. Consecutive writes lie consecutively in their segment
//! and become one extent. A new extent cuts those below it, and their segments count the loss.
//!
//! Units: sectors of 512 bytes. A segment is named by a slot, a number of this opening of the disk.
//!
//! Invariants: extents do not overlap, are not empty, and lie within their segments.

use std::collections::BTreeMap;
use std::ops::Range;

/// A sector.
pub const SECTOR_BYTES: u64 = 512;

/// A segment in use, by a number of this opening.
pub type Slot = u32;

/// A run of sectors in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length.
    pub sectors: u32,
    /// Segment.
    pub slot: Slot,
    /// First sector within the segment's data.
    pub at: u32,
}

/// Part of a range: bytes of a segment, or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First sector on the disk.
    pub start: u64,
    /// Length in sectors.
    pub sectors: u64,
    /// Segment and first sector in it; `None`: zeros.
    pub source: Option<(Slot, u32)>,
}

/// Extents by their first sector on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map {
    extents: BTreeMap<u64, Extent>,
    live_sectors: u64,
}

impl Map {
    /// A map of extents in order, without overlaps: `None` if not.
    pub fn of(extents: Vec<(u64, Extent)>) -> Option<Map> {
        let (mut end, mut live_sectors) = (0, 0);
        for (start, extent) in &extents {
            if *start < end || extent.sectors == 0 {
                return None;
            }
            end = start.checked_add(extent.sectors.into())?;
            live_sectors += u64::from(extent.sectors);
        }
        Some(Map { extents: extents.into_iter().collect(), live_sectors })
    }

    /// Number of extents.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Sectors that are no holes.
    pub fn live_sectors(&self) -> u64 {
        self.live_sectors
    }

    /// All extents, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Extent)> {
        self.extents.iter().map(|(start, extent)| (*start, *extent))
    }

    /// Makes a range a hole. `lost` learns the sectors that each segment loses.
    pub fn cut(&mut self, range: Range<u64>, mut lost: impl FnMut(Slot, u32)) {
        if range.is_empty() {
            return;
        }
        // One extent may begin before the range, and even end after it.
        if let Some((&start, &extent)) = self.extents.range(..range.start).next_back() {
            let end = start + u64::from(extent.sectors);
            if end > range.start {
                let kept = (range.start - start) as u32;
                self.extents.insert(start, Extent { sectors: kept, ..extent });
                self.lose(extent.slot, (end.min(range.end) - range.start) as u32, &mut lost);
                self.keep_tail(start, extent, range.end);
            }
        }
        while let Some((&start, &extent)) = self.extents.range(range.clone()).next() {
            self.extents.remove(&start);
            let end = start + u64::from(extent.sectors);
            self.lose(extent.slot, (end.min(range.end) - start) as u32, &mut lost);
            self.keep_tail(start, extent, range.end);
        }
    }

    fn lose(&mut self, slot: Slot, sectors: u32, lost: &mut impl FnMut(Slot, u32)) {
        self.live_sectors -= u64::from(sectors);
        lost(slot, sectors);
    }

    /// Puts back the part of an extent after `cut`.
    fn keep_tail(&mut self, start: u64, extent: Extent, cut: u64) {
        let end = start + u64::from(extent.sectors);
        if end > cut {
            let skipped = (cut - start) as u32;
            let tail =
                Extent { sectors: extent.sectors - skipped, slot: extent.slot, at: extent.at + skipped };
            self.extents.insert(cut, tail);
        }
    }

    /// Puts an extent over everything below it.
    pub fn put(&mut self, start: u64, extent: Extent, lost: impl FnMut(Slot, u32)) {
        if extent.sectors == 0 {
            return;
        }
        self.cut(start..start + u64::from(extent.sectors), lost);
        self.live_sectors += u64::from(extent.sectors);
        if let Some((&before, last)) = self.extents.range_mut(..start).next_back() {
            let follows = before + u64::from(last.sectors) == start
                && last.slot == extent.slot
                && last.at.checked_add(last.sectors) == Some(extent.at);
            if let (true, Some(sectors)) = (follows, last.sectors.checked_add(extent.sectors)) {
                last.sectors = sectors;
                return;
            }
        }
        self.extents.insert(start, extent);
    }

    /// The pieces of a range, in order, without gaps.
    pub fn look_up(&self, range: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut next = range.start;
        let first = self.extents.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        for (&start, extent) in self.extents.range(first.min(range.start)..range.end) {
            let end = (start + u64::from(extent.sectors)).min(range.end);
            if end <= next {
                continue;
            }
            let from = start.max(next);
            if from > next {
                pieces.push(Piece { start: next, sectors: from - next, source: None });
            }
            let at = extent.at + (from - start) as u32;
            pieces.push(Piece { start: from, sectors: end - from, source: Some((extent.slot, at)) });
            next = end;
        }
        if next < range.end {
            pieces.push(Piece { start: next, sectors: range.end - next, source: None });
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use cenote_runtime::Rng;

    use super::*;

    #[test]
    fn the_map_agrees_with_an_array_of_sectors() {
        const SECTORS: u64 = 64;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut map, mut array) = (Map::default(), [None; SECTORS as usize]);
            let mut live = [0_i64; 40];
            for slot in 0..40_u32 {
                let start = rng.below(SECTORS);
                let sectors = 1 + rng.below(SECTORS - start);
                let range = start..start + sectors;
                if rng.chance(0.3) {
                    map.cut(range.clone(), |slot, lost| live[slot as usize] -= i64::from(lost));
                    array[range.start as usize..range.end as usize].fill(None);
                } else {
                    let slot = if rng.chance(0.5) { slot } else { slot / 2 };
                    let at = rng.below(100) as u32;
                    live[slot as usize] += sectors as i64;
                    let extent = Extent { sectors: sectors as u32, slot, at };
                    map.put(start, extent, |slot, lost| live[slot as usize] -= i64::from(lost));
                    for sector in range {
                        array[sector as usize] = Some((slot, at + (sector - start) as u32));
                    }
                }
                let mut seen = [None; SECTORS as usize];
                let pieces = map.look_up(0..SECTORS);
                assert_eq!(pieces.iter().map(|piece| piece.sectors).sum::<u64>(), SECTORS);
                for piece in pieces {
                    for sector in 0..piece.sectors {
                        let source = piece.source.map(|(slot, at)| (slot, at + sector as u32));
                        seen[(piece.start + sector) as usize] = source;
                    }
                }
                assert_eq!(seen, array, "seed {seed}");
                let counted = array.iter().flatten().count() as u64;
                assert_eq!(map.live_sectors(), counted);
                assert_eq!(live.iter().sum::<i64>(), counted as i64);
                let (from, to) = (rng.below(SECTORS), SECTORS);
                assert_eq!(map.look_up(from..to).first().map(|piece| piece.start), Some(from));
                assert_eq!(Map::of(map.iter().collect()), Some(map.clone()));
            }
        }
    }
}
