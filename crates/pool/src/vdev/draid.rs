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
//! A block fills whole rows of its group; the rest is zeros, covered by parity and never read. At the end of
//! a group it continues in the next: two rows of columns.
//!
//! Source: OpenZFS `vdev_draid.c` (theory comment, `vdev_draid_logical_to_physical`,
//! `vdev_draid_map_alloc_row`).

use super::map::Column;
use crate::config::VdevConfig;
use cenote_format::draid::{DraidMap, Permutations, VDEV_DRAID_ROWHEIGHT};
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::SPA_MAXBLOCKSIZE;

const ROW_BYTES: u64 = VDEV_DRAID_ROWHEIGHT;

/// Invariant (checked at decoding): redundancy groups fill whole rows of disks.
pub(crate) struct Draid {
    parity: usize,
    data: u64,
    groups: u64,
    spares: u64,
    children: u64,
    ashift: u32,
    permutations: Permutations,
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
        let children = config.children.len() as u64;
        let permutations = DraidMap::for_children(children).ok()?.generate();
        Some(Draid {
            parity: config.parity,
            data: shape.data,
            groups: shape.groups,
            spares: shape.spares,
            children,
            ashift: config.ashift,
            permutations,
        })
    }

    fn group_width(&self) -> u64 {
        self.data + self.parity as u64
    }

    fn disks(&self) -> u64 {
        self.children - self.spares
    }

    /// The smallest allocation: data in one row of sectors.
    pub(crate) fn row_data_bytes(&self) -> u64 {
        self.data << self.ashift
    }

    /// The unit of allocation: a row of sectors with parity.
    pub(crate) fn unit_bytes(&self) -> u64 {
        self.group_width() << self.ashift
    }

    fn group_bytes(&self) -> u64 {
        self.group_width() * ROW_BYTES
    }

    fn child(&self, index: u64, part: u64) -> usize {
        // Each base permutation serves as many slices as there are children, rotated by one more each time.
        let base = self.permutations.row(index / self.children);
        let child = u64::from(base[part as usize]) + index % self.children;
        (child % self.children) as usize
    }

    pub(crate) fn asize(&self, psize_bytes: u64) -> u64 {
        DraidGroup { data: self.data, parity: self.parity as u64, ashift: self.ashift }.asize(psize_bytes)
    }

    /// Data bytes of whole rows with this allocated size.
    pub(crate) fn data_bytes(&self, asize_bytes: u64) -> u64 {
        asize_bytes / self.group_width() * self.data
    }

    /// Longest piece with `most_bytes` per data column, in whole rows of one redundancy group.
    pub(crate) fn rebuild_bytes(&self, offset: u64, most_bytes: u64) -> u64 {
        let data_bytes = most_bytes.saturating_mul(self.data).min(SPA_MAXBLOCKSIZE);
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
            let room = (group_end - offset) / self.group_width() * self.data;
            let here = left.min(room);
            rows.push((self.parity, self.row(offset, here, data_at)));
            offset += self.asize(here);
            data_at += here as usize;
            left -= here;
        }
        Some(rows)
    }

    /// Columns of a range within one redundancy group.
    fn row(&self, offset: u64, bytes: u64, mut data_at: usize) -> Vec<Column> {
        let (width, disks) = (self.group_width(), self.disks());
        let group = offset / self.group_bytes();
        let first_part = group * width % disks;
        let permutation = group / self.groups;
        let rows_before = permutation * (width * self.groups / disks) + group % self.groups * width / disks;
        let down = offset % self.group_bytes() / width;
        let start = rows_before * ROW_BYTES + down + VDEV_LABEL_START_SIZE;
        let sectors = bytes >> self.ashift;
        let (full_rows, remainder) = (sectors / self.data, sectors % self.data);
        let big_columns = if remainder == 0 { 0 } else { remainder + self.parity as u64 };
        let column = |i: u64| {
            let len = ((full_rows + u64::from(i < big_columns)) << self.ashift) as usize;
            let wrapped = first_part + i >= disks;
            let column = Column {
                slot: self.child(permutation, (first_part + i) % disks),
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
        let (width, row_bytes) = (self.group_width(), self.unit_bytes());
        let (mut at, end) = (start.next_multiple_of(row_bytes), end / row_bytes * row_bytes);
        let mut ranges = Vec::new();
        while at < end {
            let here = end.min((at / self.group_bytes() + 1) * self.group_bytes()) - at;
            let columns = self.row(at, here / width * self.data, 0);
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
        if spare >= self.spares {
            return None;
        }
        let slice_bytes = self.group_bytes() * self.groups / self.disks();
        let permutation = offset_bytes.checked_sub(VDEV_LABEL_START_SIZE)? / slice_bytes;
        Some(self.child(permutation, self.children - 1 - spare))
    }
}
