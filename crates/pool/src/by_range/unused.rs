//! Initializes or trims the free space of a leaf.
//!
//! ```text
//!   metaslab   | block |   free   | block | free |       borrowed: not allocatable meanwhile
//!                       \        \         \    \
//!   leaf                 initialize: a pattern is written      trim: the device may forget it
//! ```
//!
//! Idea: a free range of a top-level vdev maps to ranges on each leaf without any part of a block: the same
//! range where leaves hold copies, whole sectors of a column on a RAID-Z, whole rows of redundancy groups on
//! a dRAID. A RAID-Z under expansion has no such ranges: the geometry changes.
//!
//! Source: OpenZFS `vdev_initialize.c`, `vdev_trim.c`, `vdev_raidz.c` (`vdev_raidz_xlate`), `vdev_draid.c`
//! (`vdev_draid_xlate`).

use super::ByRange;
use crate::alloc::BorrowedSpace;
use crate::vdev::leaf::Leaf;
use crate::vdev::queue::IoClass;
use crate::vdev::unflushed::Stake;
use crate::vdev::{Layout, Top};
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_device::DeviceError;
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::{Guid, VdevId};
use std::sync::Arc;

/// A pass over free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Fills it with a word (`zpool initialize`).
    Initialize,
    /// Discards it (`zpool trim`).
    Trim,
}

/// The treatment of a free range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// Fill it with a word.
    Fill(u64),
    /// Discard it.
    Discard,
}

/// Why a pass can't go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// The device does not support discard.
    Unsupported,
    /// The device fails, or is out of use.
    Fails,
}

/// `zfs_initialize_value`: the word that [`Pass::Initialize`] writes by default.
pub const INITIALIZE_PATTERN: u64 = 0xdead_beef_dead_beee;

impl ByRange<'_> {
    /// The top-level vdev of a leaf in use, unless a distributed spare or below an expanding RAID-Z.
    pub fn top_with_free_space(&self, leaf: Guid) -> Option<VdevId> {
        let vdevs = self.0.tree().vdevs();
        let is_in_use = vdevs.leaves().iter().any(|one| one.guid == leaf && !one.is_out_of_use());
        let top = vdevs.all_tops().iter().find(|top| slot_of(top, leaf).is_some())?;
        (is_in_use && on_leaf(top, leaf, (0, 0)).is_some()).then_some(VdevId(top.config.id))
    }

    /// A top-level range on a leaf, ascending, from the end of the front labels on.
    pub fn ranges_on(&self, top: VdevId, leaf: Guid, range: (u64, u64)) -> Vec<(u64, u64)> {
        self.0.tree().vdevs().layout_of(top).and_then(|top| on_leaf(top, leaf, range)).unwrap_or_default()
    }

    /// Processes a free range of a leaf, from the end of its front labels on, within `space`; returns the
    /// bytes done. If this is dropped, the device keeps the space until done.
    ///
    /// # Errors
    /// The device fails, or does not support discard.
    #[boxed]
    pub async fn pass_over(
        &self,
        leaf: Guid,
        (start, end): (u64, u64),
        treatment: Treatment,
        space: &BorrowedSpace,
    ) -> Result<u64, Stuck> {
        let vdevs = self.0.tree().vdevs();
        let leaf = vdevs.leaves().iter().find(|one| one.guid == leaf && !one.is_out_of_use());
        let leaf = leaf.ok_or(Stuck::Fails)?;
        let settings = self.0.devices().queue_settings();
        let step_bytes = match treatment {
            Treatment::Fill(_) => settings.initialize_chunk_bytes(),
            Treatment::Discard => settings.trim_bytes_max(),
        };
        let mut at = start;
        while at < end {
            let len = step_bytes.min(end - at);
            let (leaf, space) = (leaf.clone(), space.clone());
            let step = async move {
                let _space = space;
                step(&leaf, at + VDEV_LABEL_START_SIZE, len, treatment).await
            };
            self.0.runtime().to_end(step).await.map_err(|error| match error {
                DeviceError::Unsupported { .. } => Stuck::Unsupported,
                _ => Stuck::Fails,
            })?;
            at += len;
        }
        Ok(end.saturating_sub(start))
    }
}

async fn step(
    leaf: &Arc<Leaf>,
    offset_bytes: u64,
    len: u64,
    treatment: Treatment,
) -> Result<(), DeviceError> {
    match treatment {
        Treatment::Fill(word) => {
            let pattern = word.to_ne_bytes().repeat((len / 8) as usize);
            leaf.write(IoClass::Initializing, Stake::NOTHING, offset_bytes, Bytes::from(pattern)).await
        }
        Treatment::Discard => leaf.discard(offset_bytes, len).await,
    }
}

fn slot_of(top: &Top, leaf: Guid) -> Option<usize> {
    top.slots().iter().position(|slot| slot.leaves.iter().any(|one| one.guid == leaf))
}

fn on_leaf(top: &Top, leaf: Guid, range: (u64, u64)) -> Option<Vec<(u64, u64)>> {
    let slot = slot_of(top, leaf)?;
    match &top.layout {
        Layout::Copies(_) => Some(vec![range]),
        Layout::Raidz(..) if top.config.raidz_expanding => None,
        Layout::Raidz(_, slots) => {
            Some(vec![on_column(range, slot as u64, slots.len() as u64, top.config.ashift)])
        }
        Layout::Draid(draid, _) => Some(draid.on_child(slot, range)),
        Layout::Indirect(_) | Layout::Absent => None,
    }
}

/// The sectors in one column: they cycle over the columns.
fn on_column((start, end): (u64, u64), column: u64, width: u64, ashift: u32) -> (u64, u64) {
    let row = |bytes: u64| match (bytes >> ashift).checked_sub(column + 1) {
        Some(beyond) => beyond / width.max(1) + 1,
        None => 0,
    };
    (row(start) << ashift, row(end) << ashift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sector_of_a_range_is_in_one_column() {
        for (start, end) in [(0, 1), (0, 3), (2, 7), (5, 5), (4, 23), (1, 2)] {
            for width in 2..6 {
                let of = |column| on_column((start << 12, end << 12), column, width, 12);
                let mut sectors: Vec<u64> = (0..width)
                    .flat_map(|column| {
                        (of(column).0 >> 12..of(column).1 >> 12).map(move |row| row * width + column)
                    })
                    .collect();
                sectors.sort_unstable();
                assert_eq!(sectors, (start..end).collect::<Vec<u64>>(), "{start} to {end} over {width}");
            }
        }
    }
}
