//! The vdev tree: locates the bytes of a block.
//!
//! Idea: OpenZFS nests vdevs freely (a spare over a replacing over two disks, as one child of a RAID-Z). But
//! below a RAID-Z or dRAID child, and below a mirror, all leaves hold *the same bytes at the same offset*. So
//! the tree is flattened to two levels:
//!
//! ```text
//!   top-level vdev    Copies(slot)              disk, file, mirror, replacing, spare
//!                     Raidz | Draid (slots)     a slot for each child
//!                     Indirect                  a mapping to other top-level vdevs
//!                     Absent                    hole, missing, unknown
//!   slot              leaves that hold the same bytes
//! ```
//!
//! A block's address maps to [`map::BlockMap`]: rows of columns, each a range on a slot. A plain disk is a
//! row of one column; RAID-Z is a row with parity columns in front; an expanded RAID-Z, a dRAID or a removed
//! vdev may take several rows. Other code uses these maps and no vdev types.
//!
//! Invariants: the tree never changes once built. Leaves, with their counters and state, outlive it, as does
//! the record of missed txgs; both synchronise themselves. The tree needs no locks.

pub(crate) mod build;
pub(crate) mod draid;
pub(crate) mod leaf;
pub(crate) mod map;
pub(crate) mod missed;
pub(crate) mod patience;
pub(crate) mod queue;
pub(crate) mod raidz;
pub(crate) mod reflow;
pub(crate) mod unflushed;
pub(crate) mod write;

use crate::config::{VdevClass, VdevConfig};
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::units::{Guid, PhysicalBirth, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, Txg, VdevId};
use draid::Draid;
use leaf::{Leaf, Slot};
use map::{Column, Row};
use missed::Missed;
use raidz::Raidz;
use reflow::Inside;
use std::sync::Arc;

pub(crate) use cenote_format::indirect::IndirectMapping as IndirectMap;

/// Its parity determines a vdev's capacity.
const TYPICAL_BLOCK_BYTES: u64 = 128 << 10;

/// The vdevs of an assembled pool.
pub struct VdevTree {
    tops: Vec<Top>,
    leaves: Vec<Arc<Leaf>>,
    missed: Arc<Missed>,
    /// A RAID-Z is being expanded.
    is_expanding: bool,
}

pub(crate) struct Top {
    pub(crate) config: VdevConfig,
    pub(crate) layout: Layout,
}

pub(crate) enum Layout {
    /// Every leaf holds everything.
    Copies(Slot),
    /// Rows of variable width with parity.
    Raidz(Raidz, Vec<Slot>),
    /// Redundancy groups of fixed width, permuted over the children.
    Draid(Draid, Vec<Slot>),
    /// Removed; `None` until the MOS has been read.
    Indirect(Option<Arc<IndirectMap>>),
    Absent,
}

#[derive(Default)]
pub(crate) struct Holders {
    pub(crate) leaves: Vec<Arc<Leaf>>,
    pub(crate) absent: Vec<Guid>,
}

impl Top {
    pub(crate) fn slots(&self) -> &[Slot] {
        match &self.layout {
            Layout::Copies(slot) => std::slice::from_ref(slot),
            Layout::Raidz(_, slots) | Layout::Draid(_, slots) => slots,
            Layout::Indirect(_) | Layout::Absent => &[],
        }
    }

    pub(crate) fn leaves(&self, slot: usize, offset_bytes: u64) -> Vec<Arc<Leaf>> {
        self.holders(slot, offset_bytes).leaves
    }

    /// Includes missing leaves.
    pub(crate) fn holders(&self, slot: usize, offset_bytes: u64) -> Holders {
        let mut found = Holders::default();
        self.collect(slot, offset_bytes, &mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, slot: usize, offset_bytes: u64, through: &mut Vec<Guid>, found: &mut Holders) {
        /// A distributed spare may replace a child that replaces another; such chains are short.
        const MAX_DEPTH: usize = 8;
        let Some(slot) = self.slots().get(slot) else { return };
        match through.is_empty() {
            true => found.leaves.extend(slot.leaves.iter().cloned()),
            false => {
                found.leaves.extend(slot.leaves.iter().map(|leaf| Arc::new(leaf.reached_through(through))))
            }
        }
        found.absent.extend(&slot.absent);
        if let Layout::Draid(draid, _) = &self.layout
            && through.len() < MAX_DEPTH
        {
            for &(guid, spare) in &slot.spares {
                if let Some(child) = draid.spare_child(spare, offset_bytes) {
                    through.push(guid);
                    self.collect(child, offset_bytes, through, found);
                    through.pop();
                }
            }
        }
    }
}

impl VdevTree {
    /// Configurations of the top-level vdevs by id, including holes.
    pub fn tops(&self) -> impl ExactSizeIterator<Item = &VdevConfig> {
        self.tops.iter().map(|top| &top.config)
    }

    /// A top-level vdev's configuration.
    pub fn top(&self, id: VdevId) -> Option<&VdevConfig> {
        self.layout_of(id).map(|top| &top.config)
    }

    /// The allocation class of a top-level vdev.
    pub fn class_of(&self, id: VdevId) -> Option<VdevClass> {
        self.top(id).map(|vdev| vdev.class)
    }

    /// `vdev_psize_to_asize_txg`: allocated bytes of a block born in `birth`; `None` without such a vdev.
    pub fn psize_to_asize(&self, id: VdevId, psize_bytes: u64, birth: PhysicalBirth) -> Option<u64> {
        let top = self.layout_of(id)?;
        Some(match &top.layout {
            Layout::Raidz(raidz, _) => raidz.asize(psize_bytes, birth),
            Layout::Draid(draid, _) => draid.asize(psize_bytes),
            _ => psize_bytes.next_multiple_of(1 << top.config.ashift),
        })
    }

    /// Capacity of a gang header: the smallest allocation on any of these vdevs (`vdev_gang_header_psize`).
    pub fn gang_header_bytes(&self, dvas: impl IntoIterator<Item = Dva>) -> usize {
        let room = |dva: Dva| match self.layout_of(dva.vdev) {
            Some(Top { layout: Layout::Draid(draid, _), .. }) => draid.row_data_bytes(),
            Some(top) => 1 << top.config.ashift,
            None => SPA_MINBLOCKSIZE,
        };
        let room_bytes = dvas.into_iter().map(room).min().unwrap_or(SPA_MINBLOCKSIZE);
        room_bytes.clamp(SPA_MINBLOCKSIZE, SPA_MAXBLOCKSIZE) as usize
    }

    /// Smallest allocation (`spa_min_alloc`) and unit of longer ones (`spa_gcd_alloc`) of the normal class.
    pub fn alloc_unit_bytes(&self) -> (u64, u64) {
        let units = self.tops.iter().filter(|top| top.config.class == VdevClass::Normal).filter_map(|top| {
            let sector = 1 << top.config.ashift;
            match &top.layout {
                Layout::Draid(draid, _) => Some(draid.row_data_bytes()),
                Layout::Copies(_) | Layout::Raidz(..) => Some(sector),
                Layout::Indirect(_) | Layout::Absent => None,
            }
        });
        let gcd = |mut a: u64, mut b: u64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let sizes = units.fold(None, |sizes, unit| match sizes {
            None => Some((unit, unit)),
            Some((least, common)) => Some((unit.min(least), gcd(unit, common))),
        });
        sizes.unwrap_or((SPA_MINBLOCKSIZE, SPA_MINBLOCKSIZE))
    }

    /// Data capacity of raw bytes, by a block of 128 KiB (`vdev_deflate_ratio`).
    pub fn deflate(&self, id: VdevId, raw_bytes: u64) -> u64 {
        let asize = self
            .psize_to_asize(id, TYPICAL_BLOCK_BYTES, PhysicalBirth::UNKNOWN)
            .unwrap_or(TYPICAL_BLOCK_BYTES);
        (raw_bytes >> 9).saturating_mul(TYPICAL_BLOCK_BYTES / (asize >> 9).max(1))
    }

    /// Allocated bytes net of parity (`bp_get_dsize`).
    pub fn dsize(&self, bp: &Blkptr) -> u64 {
        bp.dvas().map(|dva| self.deflate(dva.vdev, dva.asize.0)).sum()
    }

    /// Resolves a range through the mappings of removed vdevs. `None` if one is missing or incomplete.
    pub fn resolve(&self, dva: &cenote_format::blkptr::Dva) -> Option<Vec<cenote_format::blkptr::Dva>> {
        let mut pending = vec![(*dva, 0)];
        let mut found = Vec::new();
        while let Some((range, depth)) = pending.pop() {
            match &self.layout_of(range.vdev)?.layout {
                Layout::Indirect(Some(mapping)) if depth < map::MAX_INDIRECTION => {
                    let pieces = mapping.resolve(range.offset_bytes, range.asize.0);
                    if pieces.is_empty() {
                        return None;
                    }
                    pending.extend(pieces.into_iter().map(|piece| (piece, depth + 1)));
                }
                Layout::Indirect(_) => return None,
                _ => found.push(range),
            }
        }
        Some(found)
    }

    /// Enters a block's range on a RAID-Z being expanded. Maps made while it is held stay valid, so it is
    /// taken before any I/O.
    pub(crate) async fn enter(&self, dva: &Dva, psize: usize, birth: PhysicalBirth) -> Vec<Inside> {
        let mut inside = Vec::new();
        if !self.is_expanding {
            return inside;
        }
        let is_removed =
            self.layout_of(dva.vdev).is_some_and(|top| matches!(top.layout, Layout::Indirect(_)));
        let places = match is_removed {
            true => self.resolve(dva).unwrap_or_default(),
            false => vec![*dva],
        };
        for place in places {
            let psize = if is_removed { place.asize.0 as usize } else { psize };
            let Some(Layout::Raidz(raidz, _)) = self.layout_of(place.vdev).map(|top| &top.layout) else {
                continue;
            };
            if let Some(reflow) = &raidz.reflow {
                inside.push(reflow.enter(raidz.entered(place.offset_bytes, psize, birth)).await);
            }
        }
        inside
    }

    /// Leaves with a column of a block born in `birth`, possibly incomplete ones last.
    pub(crate) fn leaves_of(&self, row: &Row, column: &Column, birth: PhysicalBirth) -> Vec<Arc<Leaf>> {
        let top = self.layout_of(row.top);
        let mut leaves = top.map_or(Vec::new(), |top| top.leaves(column.slot, column.offset_bytes));
        leaves.sort_by_key(|leaf| self.lacks(leaf, birth));
        leaves
    }

    /// Whether a leaf may lack a block of this birth, or is out of use.
    pub(crate) fn lacks(&self, leaf: &Leaf, birth: PhysicalBirth) -> bool {
        leaf.is_stale() || leaf.is_out_of_use() || leaf.names().any(|name| self.missed.has(name, birth))
    }

    /// Whether all leaves of a slot lack blocks of this birth.
    pub(crate) fn is_missed(&self, slot: &Slot, birth: PhysicalBirth) -> bool {
        let guids = slot.leaves.iter().map(|leaf| leaf.guid).chain(slot.spares.iter().map(|spare| spare.0));
        guids.into_iter().all(|guid| self.missed.has(guid, birth))
    }

    /// Whether other leaves hold all of a leaf's data.
    pub fn can_spare(&self, leaf: Guid) -> bool {
        let is_sound = |one: &Arc<Leaf>| one.guid != leaf && !one.is_out_of_use() && !self.is_lagging(one);
        let is_ready = |spare: &(Guid, u64)| spare.0 != leaf && !self.missed.is_behind(spare.0);
        let is_held = |slot: &&Slot| slot.leaves.iter().any(is_sound) || slot.spares.iter().any(is_ready);
        let lost = |top: &Top| {
            let lost = top.slots().iter().enumerate().filter(|(_, slot)| !is_held(slot));
            top.config.failures(lost.map(|(index, _)| index))
        };
        let top = self.tops.iter().find(|top| top.config.leaves().any(|one| one.guid == leaf));
        top.is_none_or(|top| lost(top) <= top.config.parity)
    }

    /// The log vdev that a leaf belongs to.
    pub fn log_of(&self, leaf: Guid) -> Option<VdevId> {
        let mut logs = self.tops().filter(|top| top.class == VdevClass::Log);
        logs.find(|top| top.leaves().any(|one| one.guid == leaf)).map(|top| VdevId(top.id))
    }

    /// Whether a leaf can be removed from an open pool: others hold its data, or it belongs to a log vdev,
    /// whose contents are also in memory.
    pub fn is_expendable(&self, leaf: Guid) -> bool {
        self.can_spare(leaf) || self.log_of(leaf).is_some()
    }

    /// Whether a leaf is in use and complete.
    pub fn is_whole(&self, leaf: Guid) -> bool {
        let of = self.leaves.iter().find(|one| one.guid == leaf);
        let is_spare = || self.distributed_spares().any(|spare| spare == leaf);
        of.is_some_and(|leaf| !leaf.is_out_of_use() && !self.is_lagging(leaf))
            || is_spare() && !self.missed.is_behind(leaf)
    }

    pub(crate) fn distributed_spares(&self) -> impl Iterator<Item = Guid> + '_ {
        self.tops.iter().flat_map(Top::slots).flat_map(|slot| slot.spares.iter().map(|spare| spare.0))
    }

    pub(crate) fn is_lagging(&self, leaf: &Leaf) -> bool {
        leaf.is_stale() || leaf.is_away() || leaf.names().any(|name| self.missed.is_behind(name))
    }

    /// Leaves that may lack blocks of an older state although they are complete by now.
    pub(crate) fn behind_at(&self, state: Txg) -> impl Iterator<Item = Guid> + '_ {
        self.leaves.iter().map(|leaf| leaf.guid).filter(move |leaf| self.missed.was_behind_at(*leaf, state))
    }

    pub(crate) fn all_tops(&self) -> &[Top] {
        &self.tops
    }

    pub(crate) fn layout_of(&self, id: VdevId) -> Option<&Top> {
        self.tops.get(usize::try_from(id.0).ok()?)
    }

    pub(crate) fn leaves(&self) -> &[Arc<Leaf>] {
        &self.leaves
    }
}

impl std::fmt::Debug for VdevTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tops()).finish()
    }
}
