//! Maps: a block as rows of columns, independent of the vdev type.
//!
//! ```text
//!   row      | P | Q | D0 | D1 | D2 |      parity columns first, then data
//!   column   slot, offset on the slot's leaves, length, offset of its bytes in the block
//! ```
//!
//! Before an expansion, a RAID-Z had its sectors on other children: see [`Former`].
//!
//! A *unit* is doubted as a whole: all columns of a block on one RAID-Z child; on a removed vdev each piece
//! of a block.

use super::{Layout, VdevTree};
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{Guid, PhysicalBirth, VdevId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Removed vdevs may point to vdevs removed later.
pub(crate) const MAX_INDIRECTION: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) slot: usize,
    pub(crate) unit: usize,
    /// Offset on the slot's leaves, labels included.
    pub(crate) offset_bytes: u64,
    pub(crate) len: usize,
    /// Offset in the block; 0 for a parity column.
    pub(crate) data_at: usize,
    /// Unused bytes after it, in the same block.
    pub(crate) padding: usize,
    /// Its copy by an expansion, which is written too.
    pub(crate) also_at: Option<(usize, u64)>,
    /// On a RAID-Z expanded later: its sector number, which stays the same.
    pub(crate) sector: Option<u64>,
}

/// Columns that parity ties together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) top: VdevId,
    /// Parity columns in front.
    pub(crate) parity: usize,
    pub(crate) columns: Vec<Column>,
}

impl Row {
    pub(crate) fn data(&self) -> &[Column] {
        &self.columns[self.parity..]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockMap {
    pub(crate) rows: Vec<Row>,
    /// The block rounded up to whole sectors.
    pub(crate) data_bytes: usize,
    pub(crate) units: usize,
    pub(crate) birth: PhysicalBirth,
}

impl BlockMap {
    fn add_row(&mut self, row: Row) {
        self.data_bytes += row.data().iter().map(|column| column.len).sum::<usize>();
        self.rows.push(row);
    }
}

/// A child before an expansion, which spread its damage over all children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Former {
    top: VdevId,
    width: u64,
    child: u64,
}

impl Former {
    pub(crate) fn had(self, row: &Row, column: &Column) -> bool {
        row.top == self.top && column.sector.is_some_and(|sector| sector % self.width == self.child)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MapError {
    #[error("{0}")]
    BadAddress(String),
    #[error("{0}")]
    Absent(String),
}

impl VdevTree {
    /// Location of a block: bytes of leaves, labels included; all its copies and their parity.
    pub fn places_of(&self, bp: &Blkptr) -> Vec<(Guid, Range<u64>)> {
        let birth = bp.physical_birth();
        let maps = bp.dvas().filter_map(|dva| self.map(&dva, bp.psize().0 as usize, birth).ok());
        let rows: Vec<Row> = maps.flat_map(|map| map.rows).collect();
        let columns = rows.iter().flat_map(|row| row.columns.iter().map(move |column| (row, column)));
        let on_leaves = columns.flat_map(|(row, column)| {
            let range = column.offset_bytes..column.offset_bytes + column.len as u64;
            self.leaves_of(row, column, birth).into_iter().map(move |leaf| (leaf.guid, range.clone()))
        });
        on_leaves.filter(|(_, range)| !range.is_empty()).collect()
    }

    /// Former children, last ones first.
    pub(crate) fn formers(&self, map: &BlockMap) -> Vec<Former> {
        let mut formers = Vec::new();
        let is_wrapped = |row: &&Row| row.columns.iter().any(|column| column.sector.is_some());
        let tops: BTreeSet<VdevId> = map.rows.iter().filter(is_wrapped).map(|row| row.top).collect();
        for top in tops {
            let Some(Layout::Raidz(raidz, _)) = self.layout_of(top).map(|top| &top.layout) else { continue };
            for width in raidz.widths_since(map.birth).map(|width| width as u64) {
                formers.extend((0..width).map(|child| Former { top, width, child }));
            }
        }
        formers
    }

    pub(crate) fn map(&self, dva: &Dva, psize: usize, birth: PhysicalBirth) -> Result<BlockMap, MapError> {
        let mut map = BlockMap { rows: Vec::new(), data_bytes: 0, units: 0, birth };
        self.map_into(&mut map, dva, psize, birth, 0)?;
        debug_assert!(map.data_bytes >= psize, "{dva:?}: {} of {psize} bytes mapped", map.data_bytes);
        Ok(map)
    }

    fn map_into(
        &self,
        map: &mut BlockMap,
        dva: &Dva,
        psize: usize,
        birth: PhysicalBirth,
        depth: u32,
    ) -> Result<(), MapError> {
        let at = dva.offset_bytes;
        let bad = |why: &str| MapError::BadAddress(format!("address {}:{at:x}: {why}", dva.vdev));
        let top = self
            .layout_of(dva.vdev)
            .ok_or_else(|| bad("the pool has no such vdev, or none of its devices was found"))?;
        let end = at.checked_add(psize as u64).ok_or_else(|| bad("beyond any vdev"))?;
        // Labels of old pools may lack the size; then the device's own end bounds the read.
        if top.config.asize_bytes != 0 && end > top.config.asize_bytes {
            return Err(bad("beyond the end of its vdev"));
        }
        let (data_at, first_unit) = (map.data_bytes, map.units);
        match &top.layout {
            Layout::Copies(_) => {
                let offset_bytes =
                    at.checked_add(VDEV_LABEL_START_SIZE).ok_or_else(|| bad("beyond any vdev"))?;
                let (slot, unit, len) = (0, first_unit, psize);
                let (padding, also_at, sector) = (0, None, None);
                let column = Column { slot, unit, offset_bytes, len, data_at, padding, also_at, sector };
                map.add_row(Row { top: dva.vdev, parity: 0, columns: vec![column] });
                map.units += 1;
            }
            Layout::Raidz(raidz, slots) => {
                let rows = raidz.rows(at, psize, birth).ok_or_else(|| bad("not at a sector of its vdev"))?;
                self.add_striped(map, dva.vdev, slots.len(), rows);
            }
            Layout::Draid(draid, slots) => {
                let rows = draid
                    .rows(at, psize)
                    .ok_or_else(|| bad("not at a sector of a dRAID group of its vdev"))?;
                self.add_striped(map, dva.vdev, slots.len(), rows);
            }
            Layout::Indirect(Some(mapping)) => {
                let pieces = mapping.resolve(at, psize as u64);
                if pieces.is_empty() || depth >= MAX_INDIRECTION {
                    return Err(bad("its vdev was removed and the mapping does not have it"));
                }
                for piece in pieces {
                    self.map_into(map, &piece, piece.asize.0 as usize, birth, depth + 1)?;
                }
            }
            Layout::Indirect(None) => {
                return Err(MapError::Absent(format!(
                    "the mapping of removed vdev {} is not loaded",
                    dva.vdev
                )));
            }
            Layout::Absent => {
                let kind = &top.config.kind;
                return Err(MapError::Absent(format!("vdev {} is missing or a hole ({kind})", dva.vdev)));
            }
        }
        Ok(())
    }

    fn add_striped(&self, map: &mut BlockMap, top: VdevId, width: usize, rows: Vec<(usize, Vec<Column>)>) {
        let (data_at, first_unit) = (map.data_bytes, map.units);
        for (parity, mut columns) in rows {
            for column in &mut columns {
                column.unit = first_unit + column.slot;
                column.data_at += data_at;
            }
            map.add_row(Row { top, parity, columns });
        }
        map.units += width;
    }
}
