//! dRAID geometry: redundancy groups of fixed width, spread over all children by fixed permutations.
//!
//! Idea: when RAID-Z rebuilds onto a spare, only its own disks share the load. dRAID cuts the children into
//! *slices* of 16 MiB rows. In each slice a permutation assigns parts to children, so the spares' share is
//! spread over all, too. The permutations are part of the format: a seed for each number of children.
//!
//! ```text
//!   groups of width 4 (3 data + 1 parity) on 7 children, 1 distributed spare: 6 disks a row
//!
//!       row 0    | g0 P D D D | g1 P D       S |      a group may wrap to the next row,
//!       row 1    |       D D  | g2 P D D D   S |      16 MiB further down on its children
//! ```
//!
//! With failure domains, several *failure groups* share a slice, side by side, each with redundancy groups,
//! spares and rows of its own. A permutation assigns to each a child of every domain, so that the loss
//! of a domain takes one disk of each row.
//!
//! A block fills whole rows of its group; the rest is zeros, covered by parity and never read. At the end of
//! a group it continues in the next: two rows of columns.
//!
//! Source: OpenZFS `vdev_draid.c` (theory comment, `vdev_draid_logical_to_physical`,
//! `vdev_draid_map_alloc_row`).

use super::map::Column;
use crate::config::{DraidConfig, VdevConfig};
use cenote_format::draid::{DraidMap, Permutations, VDEV_DRAID_ROWHEIGHT};
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::SPA_MAXBLOCKSIZE;

const ROW_BYTES: u64 = VDEV_DRAID_ROWHEIGHT;

/// Invariant (checked at decoding): redundancy groups fill whole rows of disks, equally many in each failure
/// group.
pub(crate) struct Draid {
    parity: usize,
    shape: DraidConfig,
    /// Children of a failure group.
    children: u64,
    failure_groups: Vec<FailureGroup>,
    /// Rows of a slice.
    slice_rows: u64,
    ashift: u32,
    permutations: Permutations,
}

/// A failure group's part of a slice.
struct FailureGroup {
    /// Its first redundancy group, in the slice.
    first_group: u64,
    /// Children of a row that are no spare.
    disks: u64,
}

/// A redundancy group's place.
struct Place {
    slice: u64,
    failure_group: u64,
    disks: u64,
    /// Where its columns begin.
    row: u64,
    first_part: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DraidGroup {
    pub(crate) data: u64,
    pub(crate) parity: u64,
    pub(crate) ashift: u32,
}

impl DraidGroup {
    pub(crate) fn row_bytes(&self) -> u64 {
        (self.data + self.parity) << self.ashift
    }

    pub(crate) fn asize(&self, psize_bytes: u64) -> u64 {
        psize_bytes.max(1).div_ceil(self.data << self.ashift) * self.row_bytes()
    }
}

impl Draid {
    pub(crate) fn new(config: &VdevConfig) -> Option<Draid> {
        let shape = config.draid?;
        let (width, all) = (shape.data + config.parity as u64, config.children.len() as u64);
        let children = all.checked_div(shape.failure_groups)?;
        let permutations = DraidMap::for_children(children).ok()?.generate_for(shape.failure_groups).ok()?;
        let slice_rows = (width * shape.groups).checked_div(all.checked_sub(shape.spares)?)?;
        let mut first_group = 0;
        let failure_group = |disks| {
            let group = FailureGroup { first_group, disks };
            first_group += slice_rows * disks / width;
            group
        };
        let failure_groups = shape.disks(all).map(failure_group).collect();
        Some(Draid {
            parity: config.parity,
            shape,
            children,
            failure_groups,
            slice_rows,
            ashift: config.ashift,
            permutations,
        })
    }

    fn group_width(&self) -> u64 {
        self.shape.data + self.parity as u64
    }

    /// The smallest allocation: data in one row of sectors.
    pub(crate) fn row_data_bytes(&self) -> u64 {
        self.shape.data << self.ashift
    }

    /// The unit of allocation: a row of sectors with parity.
    pub(crate) fn unit_bytes(&self) -> u64 {
        self.group_width() << self.ashift
    }

    fn group_bytes(&self) -> u64 {
        self.group_width() * ROW_BYTES
    }

    pub(crate) fn asize(&self, psize_bytes: u64) -> u64 {
        let (data, parity) = (self.shape.data, self.parity as u64);
        DraidGroup { data, parity, ashift: self.ashift }.asize(psize_bytes)
    }

    /// Data bytes of whole rows with this allocated size.
    pub(crate) fn data_bytes(&self, asize_bytes: u64) -> u64 {
        asize_bytes / self.group_width() * self.shape.data
    }

    /// Longest piece with `most_bytes` per data column, in whole rows of one redundancy group.
    pub(crate) fn rebuild_bytes(&self, offset: u64, most_bytes: u64) -> u64 {
        let data_bytes = most_bytes.saturating_mul(self.shape.data).min(SPA_MAXBLOCKSIZE);
        let rows = (data_bytes / self.row_data_bytes()).max(1);
        let group_end = (offset / self.group_bytes() + 1) * self.group_bytes();
        (rows * self.unit_bytes()).min(group_end - offset)
    }

    /// Rows as (parity, columns). `None` if the offset is not at a row of a redundancy group.
    pub(crate) fn rows(&self, offset: u64, psize: usize) -> Option<Vec<(usize, Vec<Column>)>> {
        if psize == 0 || !offset.is_multiple_of(self.unit_bytes()) {
            return None;
        }
        let mut rows = Vec::new();
        let mut left = (psize as u64).next_multiple_of(1 << self.ashift);
        let (mut offset, mut data_at) = (offset, 0);
        while left > 0 {
            let group_end = (offset / self.group_bytes() + 1) * self.group_bytes();
            let room = self.data_bytes(group_end - offset);
            let here = left.min(room);
            rows.push((self.parity, self.row(offset, here, data_at)));
            offset += self.asize(here);
            data_at += here as usize;
            left -= here;
        }
        Some(rows)
    }

    /// The place of a redundancy group, by its number in the vdev.
    fn place(&self, group: u64) -> Place {
        let (slice, group) = (group / self.shape.groups, group % self.shape.groups);
        let behind = self.failure_groups.partition_point(|one| one.first_group <= group);
        let failure_group = behind.saturating_sub(1);
        let FailureGroup { first_group, disks } = self.failure_groups[failure_group];
        let part = (group - first_group) * self.group_width();
        let row = slice * self.slice_rows + part / disks;
        Place { slice, failure_group: failure_group as u64, disks, row, first_part: part % disks }
    }

    /// Columns of a range within one redundancy group.
    fn row(&self, offset: u64, bytes: u64, mut data_at: usize) -> Vec<Column> {
        let width = self.group_width();
        let Place { slice, failure_group, disks, row, first_part } = self.place(offset / self.group_bytes());
        let down = offset % self.group_bytes() / width;
        let start = row * ROW_BYTES + down + VDEV_LABEL_START_SIZE;
        let sectors = bytes >> self.ashift;
        let (full_rows, remainder) = (sectors / self.shape.data, sectors % self.shape.data);
        let big_columns = if remainder == 0 { 0 } else { remainder + self.parity as u64 };
        let column = |i: u64| {
            let len = ((full_rows + u64::from(i < big_columns)) << self.ashift) as usize;
            let wrapped = first_part + i >= disks;
            let column = Column {
                slot: self.permutations.child(slice, failure_group, (first_part + i) % disks),
                unit: 0,
                offset_bytes: start + if wrapped { ROW_BYTES } else { 0 },
                len,
                data_at,
                padding: 0,
                also_at: None,
                sector: None,
            };
            data_at += if i < self.parity as u64 { 0 } else { len };
            column
        };
        (0..width).map(column).collect()
    }

    /// Ranges on a child, ascending, from the end of its front labels on.
    pub(crate) fn on_child(&self, slot: usize, (start, end): (u64, u64)) -> Vec<(u64, u64)> {
        let row_bytes = self.unit_bytes();
        let (mut at, end) = (start.next_multiple_of(row_bytes), end / row_bytes * row_bytes);
        let mut ranges = Vec::new();
        while at < end {
            let here = end.min((at / self.group_bytes() + 1) * self.group_bytes()) - at;
            let columns = self.row(at, self.data_bytes(here), 0);
            if let Some(column) = columns.iter().find(|column| column.slot == slot) {
                let from = column.offset_bytes - VDEV_LABEL_START_SIZE;
                ranges.push((from, from + column.len as u64));
            }
            at += here;
        }
        ranges
    }

    /// The child that serves a distributed spare at `offset_bytes` of a leaf.
    pub(crate) fn spare_child(&self, spare: u64, offset_bytes: u64) -> Option<usize> {
        if spare >= self.shape.spares {
            return None;
        }
        let slice = offset_bytes.checked_sub(VDEV_LABEL_START_SIZE)? / (self.slice_rows * ROW_BYTES);
        let (failure_group, from_end) =
            (spare % self.shape.failure_groups, spare / self.shape.failure_groups);
        Some(self.permutations.child(slice, failure_group, self.children - 1 - from_end))
    }
}

#[cfg(test)]
mod tests;
