//! RAID-Z geometry: maps a block to sectors of children.
//!
//! Idea: a block's sectors, each row's parity before its data, run across the children, one sector per child.
//! The row's width follows from the block, not from the vdev: a small block is a short row.
//!
//! ```text
//!   RAID-Z1 of 5, a block of 9 data sectors at sector 1 (big columns: P D0; all of 3 or 2 sectors)
//!
//!       child 0    1    2    3    4
//!             .    P    D0   D3   D5       column D0 holds sectors 0 1 2 of the block, D1 3 4 ...:
//!             D7   P    D1   D4   D6       the block is cut column by column, each contiguous
//!             D8   P    D2   X    .        X: skip sector, so that no hole is too small to use
//! ```
//!
//! A column is one contiguous range of its child.
//!
//! Two quirks belong to the format. With single parity, columns 0 and 1 swap if bit 20 of the offset is set.
//! On an expanded vdev, each block keeps its width at birth, wrapped row by row at the new width
//! ([`Raidz::wrapped_rows`]), so that every sector is its own column of a row.
//!
//! During an expansion, rows beyond the point reached are still at the old width. For a moment at its start
//! the first rows are in the scratch area, the boot area of each child ([`super::reflow`]).
//!
//! Source: OpenZFS `vdev_raidz.c` (`vdev_raidz_map_alloc`, `vdev_raidz_map_alloc_expanded`,
//! `vdev_raidz_asize`).

use super::map::Column;
use super::reflow::{Reflow, Reflowed};
use cenote_format::label::{VDEV_BOOT_SIZE, VDEV_LABEL_START_SIZE};
use cenote_format::units::{PhysicalBirth, Txg};
use std::ops::Range;
use std::sync::Arc;

/// Single parity: this bit of the offset swaps the first two columns.
const SWAP_BIT: u64 = 1 << 20;

/// Invariant: 1 <= parity <= 3, and parity is less than every former width.
#[derive(Debug, Clone)]
pub(crate) struct Raidz {
    pub(crate) parity: usize,
    pub(crate) width: usize,
    pub(crate) ashift: u32,
    /// Txgs in which it grew by one child.
    pub(crate) expand_txgs: Vec<Txg>,
    /// Until its end, new blocks have the previous width.
    pub(crate) reflow: Option<Arc<Reflow>>,
}

/// How a block's sectors fill columns.
struct Shape {
    /// Data and parity sectors together.
    total: u64,
    full_rows: u64,
    /// Data sectors in a partial last row.
    remainder: u64,
    /// Columns of the last row, one sector longer; 0 if full.
    big_columns: u64,
}

impl Raidz {
    /// The width at birth.
    fn logical_width(&self, birth: PhysicalBirth) -> usize {
        let grown = self.expand_txgs.len() + usize::from(self.reflow.is_some());
        let original = self.width - grown;
        original + self.expand_txgs.iter().filter(|&&txg| txg <= birth.txg()).count()
    }

    /// Former widths since `birth`, last first.
    pub(crate) fn widths_since(&self, birth: PhysicalBirth) -> impl Iterator<Item = usize> {
        (self.logical_width(birth)..self.width).rev()
    }

    fn shape(&self, psize: usize, width: usize) -> Shape {
        let sectors = (psize as u64).div_ceil(1 << self.ashift);
        let (parity, data_columns) = (self.parity as u64, (width - self.parity) as u64);
        let (full_rows, remainder) = (sectors / data_columns, sectors % data_columns);
        let big_columns = if remainder == 0 { 0 } else { remainder + parity };
        let total = sectors + parity * sectors.div_ceil(data_columns);
        Shape { total, full_rows, remainder, big_columns }
    }

    pub(crate) fn asize(&self, psize_bytes: u64, birth: PhysicalBirth) -> u64 {
        let Ok(psize) = usize::try_from(psize_bytes) else { return u64::MAX };
        let total = self.shape(psize.max(1), self.logical_width(birth)).total;
        total.next_multiple_of(self.parity as u64 + 1) << self.ashift
    }

    /// Rows as (parity, columns). `None` if the offset is not at a sector.
    pub(crate) fn rows(
        &self,
        offset: u64,
        psize: usize,
        birth: PhysicalBirth,
    ) -> Option<Vec<(usize, Vec<Column>)>> {
        if psize == 0 || !offset.is_multiple_of(1 << self.ashift) {
            return None;
        }
        let width = self.logical_width(birth);
        let mut rows = match width == self.width {
            true => vec![self.whole_row(offset, psize)],
            false => self.wrapped_rows(offset, psize, width),
        };
        if self.parity == 1 && offset & SWAP_BIT != 0 {
            for columns in &mut rows {
                if let [first, second, ..] = &mut columns[..] {
                    std::mem::swap(&mut first.slot, &mut second.slot);
                    std::mem::swap(&mut first.offset_bytes, &mut second.offset_bytes);
                    std::mem::swap(&mut first.padding, &mut second.padding);
                    std::mem::swap(&mut first.also_at, &mut second.also_at);
                    std::mem::swap(&mut first.sector, &mut second.sector);
                }
            }
        }
        Some(rows.into_iter().map(|columns| (self.parity, columns)).collect())
    }

    /// One row, each column contiguous.
    fn whole_row(&self, offset: u64, psize: usize) -> Vec<Column> {
        let width = self.width as u64;
        let shape = self.shape(psize, self.width);
        let columns = if shape.full_rows == 0 { shape.big_columns } else { width };
        let first = offset >> self.ashift;
        // The skip sectors, counted as the others are.
        let skipped = shape.total..shape.total.next_multiple_of(self.parity as u64 + 1);
        let mut data_at = 0;
        let column = |c: u64| {
            let sector = first % width + c;
            let sectors = shape.full_rows + u64::from(c < shape.big_columns);
            let len = (sectors << self.ashift) as usize;
            let column = Column {
                slot: (sector % width) as usize,
                unit: 0,
                offset_bytes: self.on_leaf(first / width + sector / width),
                len,
                data_at,
                padding: usize::from(skipped.contains(&(c + sectors * width))) << self.ashift,
                also_at: None,
                sector: None,
            };
            data_at += if c < self.parity as u64 { 0 } else { len };
            column
        };
        (0..columns).map(column).collect()
    }

    /// A block born narrower: its sectors continue over the present children.
    fn wrapped_rows(&self, offset: u64, psize: usize, width: usize) -> Vec<Vec<Column>> {
        let shape = self.shape(psize, width);
        let row_count = shape.total.div_ceil(width as u64);
        let columns = shape.total.min(width as u64);
        let first = offset >> self.ashift;
        let reflowed = self.reflow.as_ref().map(|reflow| reflow.at());
        let row = |row: u64| {
            let start = first + row * width as u64;
            let (children, scratch) = self.placement(start + columns, reflowed);
            let is_last = row + 1 == row_count;
            let column = |c: u64| {
                let sector = start + c;
                let beyond_end = is_last && shape.big_columns != 0 && c >= shape.big_columns;
                let data_sector = match c.checked_sub(self.parity as u64) {
                    None => 0,
                    Some(_) if beyond_end => 0,
                    // Columns of the last row are one sector longer than the columns after them.
                    Some(d) if c < shape.big_columns || shape.remainder == 0 => d * row_count + row,
                    Some(d) => {
                        let short = d - shape.remainder;
                        shape.remainder * row_count + short * (row_count - 1) + row
                    }
                };
                let offset_bytes = self.on_leaf(sector / children);
                Column {
                    slot: (sector % children) as usize,
                    unit: 0,
                    offset_bytes: if scratch { offset_bytes - VDEV_BOOT_SIZE } else { offset_bytes },
                    len: if beyond_end { 0 } else { 1 << self.ashift },
                    data_at: (data_sector << self.ashift) as usize,
                    padding: 0,
                    also_at: self.copied_to(sector, children, reflowed).filter(|_| !beyond_end),
                    sector: Some(sector),
                }
            };
            (0..columns).map(column).collect()
        };
        (0..row_count).map(row).collect()
    }

    /// Width of the row that ends at sector `end`, and whether it is in the scratch area.
    fn placement(&self, end: u64, reflowed: Option<Reflowed>) -> (u64, bool) {
        match reflowed {
            Some(at) if end > at.synced_bytes >> self.ashift => (self.width as u64 - 1, false),
            Some(at) => (self.width as u64, at.scratch_is_valid),
            None => (self.width as u64, false),
        }
    }

    /// The unrecorded copy of a sector still read at its old place.
    fn copied_to(&self, sector: u64, children: u64, reflowed: Option<Reflowed>) -> Option<(usize, u64)> {
        let width = self.width as u64;
        let is_copied = children != width && sector < reflowed?.next_bytes >> self.ashift;
        is_copied.then(|| ((sector % width) as usize, self.on_leaf(sector / width)))
    }

    /// The block's possible rows, as if all were full.
    pub(crate) fn entered(&self, offset: u64, psize: usize, birth: PhysicalBirth) -> Range<u64> {
        let width = self.logical_width(birth);
        let rows = self.shape(psize, width).total.div_ceil(width as u64);
        offset..offset.saturating_add((rows * width as u64) << self.ashift)
    }

    pub(crate) fn on_leaf(&self, sector: u64) -> u64 {
        (sector << self.ashift) + VDEV_LABEL_START_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// By place in the block; parity by column and row.
    fn places(raidz: &Raidz, at: u64, sectors: usize) -> BTreeMap<(bool, usize), (usize, u64)> {
        let mut places = BTreeMap::new();
        let rows = raidz.rows(at << 9, sectors << 9, PhysicalBirth(9)).unwrap();
        for (row, (parity, columns)) in rows.iter().enumerate() {
            for (index, column) in columns.iter().enumerate() {
                for n in 0..column.len >> 9 {
                    let key = match index < *parity {
                        true => (true, (row + n) * parity + index),
                        false => (false, (column.data_at >> 9) + n),
                    };
                    places.insert(key, (column.slot, column.offset_bytes + (n << 9) as u64));
                }
            }
        }
        places
    }

    #[test]
    fn while_a_vdev_is_expanded_a_block_is_read_before_or_after_and_written_where_it_was_copied_to() {
        for (parity, width) in [(1, 3), (1, 6), (2, 5), (3, 8)] {
            let shape = |width, expand_txgs, reflow| Raidz { parity, width, ashift: 9, expand_txgs, reflow };
            let before = shape(width - 1, Vec::new(), None);
            let after = shape(width, vec![Txg(10)], None);
            for (sectors, at) in (1..40).flat_map(|sectors| [(sectors, 977), (sectors, (1 << 11) + 5)]) {
                let (old, new) = (places(&before, at, sectors), places(&after, at, sectors));
                for synced in [0, at, at + 7, at + 20, at + 200] {
                    let next = synced + 9;
                    let [synced_bytes, next_bytes] = [synced, next].map(|at| at << 9);
                    let reflowed = Reflowed { synced_bytes, next_bytes, scratch_is_valid: false };
                    let raidz = shape(width, Vec::new(), Some(Arc::new(Reflow::from(reflowed))));
                    let asize = |raidz: &Raidz| raidz.asize(sectors as u64 * 512, PhysicalBirth(9));
                    assert_eq!(asize(&raidz), asize(&before));
                    for (key, place) in places(&raidz, at, sectors) {
                        assert!([old[&key], new[&key]].contains(&place), "{width}: {key:?} of {sectors}");
                    }
                    let entered = raidz.entered(at << 9, sectors << 9, PhysicalBirth(9));
                    let rows = raidz.rows(at << 9, sectors << 9, PhysicalBirth(9)).unwrap();
                    for (row, (_, columns)) in rows.iter().enumerate() {
                        let first = at + (row * (width - 1)) as u64;
                        let end = first + columns.len() as u64;
                        assert!(entered.contains(&(first << 9)) && end << 9 <= entered.end);
                        for (index, column) in columns.iter().enumerate().filter(|(_, column)| column.len > 0)
                        {
                            let key = match index < parity {
                                true => (true, row * parity + index),
                                false => (false, column.data_at >> 9),
                            };
                            // The first two may have changed places.
                            let is_copied = first + 2 + index as u64 <= next && end > synced;
                            assert!(column.also_at.is_none_or(|at| at == new[&key]));
                            assert!(!is_copied || column.also_at.is_some(), "{width}: {key:?} of {sectors}");
                            assert!(end > synced || column.also_at.is_none(), "it is read there already");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn padding_is_what_a_block_takes_and_does_not_fill() {
        for (parity, width) in [(1, 2), (1, 3), (1, 5), (2, 4), (2, 6), (3, 5), (3, 9)] {
            let raidz = Raidz { parity, width, ashift: 9, expand_txgs: Vec::new(), reflow: None };
            for (sectors, at) in (1..40).flat_map(|sectors| [(sectors, 7), (sectors, 1 << 11)]) {
                let rows = raidz.rows(at << 9, sectors << 9, PhysicalBirth(9)).unwrap();
                let asize = raidz.asize((sectors << 9) as u64, PhysicalBirth(9)) >> 9;
                // Sectors of the vdev, in allocation order.
                let sector = |column: &Column, n: usize| {
                    let below = ((column.offset_bytes - VDEV_LABEL_START_SIZE) >> 9) + n as u64;
                    below * width as u64 + column.slot as u64
                };
                let columns = &rows[0].1;
                let filled: BTreeSet<u64> = columns
                    .iter()
                    .flat_map(|column| (0..column.len >> 9).map(move |n| sector(column, n)))
                    .collect();
                for column in columns.iter().filter(|column| column.padding > 0) {
                    assert_eq!(column.padding, 512);
                    let skipped = sector(column, column.len >> 9);
                    assert!(!filled.contains(&skipped), "{parity} of {width}: {sectors} at {at}");
                    assert!((at..at + asize).contains(&skipped), "{parity} of {width}: {sectors} at {at}");
                }
                // If all columns are there, all skip sectors are behind one of them.
                let padding = columns.iter().filter(|column| column.padding > 0).count();
                let is_whole = columns.len() == width;
                assert!(
                    !is_whole || filled.len() + padding == asize as usize,
                    "{parity} of {width}: {sectors}"
                );
            }
        }
    }
}
