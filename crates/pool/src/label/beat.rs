//! Heartbeats of an open pool: the newest uberblock, again and again, in the reserved slot of its leaves.
//!
//! A heartbeat is newer than the uberblock that it repeats, so it must repeat the newest one of its txg: an
//! expansion of a RAID-Z writes several (`reflow`), each newer than all heartbeats before.
//!
//! Source: OpenZFS `mmp_write_uberblock`, `mmp_next_leaf`.

use super::Labels;
use super::write::{last_slot, sealed, too_small};
use crate::error::Result;
use crate::vdev::leaf::Leaf;
use crate::vdev::queue::IoClass;
use crate::vdev::unflushed::Stake;
use cenote_boxed::boxed;
use cenote_format::label::VDEV_LABELS;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::Guid;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The newest uberblock written.
#[derive(Default)]
pub(crate) struct Beats {
    newest: Mutex<Option<Uberblock>>,
    /// Leaves that should have it, and whether they do.
    labelled: Mutex<BTreeMap<Guid, bool>>,
}

/// Why no leaf can take a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLeaf {
    /// `MMP_FAIL_NOT_WRITABLE`: none is writable.
    NotWritable,
    /// `MMP_FAIL_WRITE_PENDING`: the writable ones have not taken the last one yet.
    WritePending,
}

impl Beats {
    pub(crate) fn note(&self, uberblock: &Uberblock) {
        *self.newest.lock() = Some(*uberblock);
    }

    pub(crate) fn note_labelled(&self, leaves: impl Iterator<Item = (Guid, bool)>) {
        self.labelled.lock().extend(leaves);
    }

    pub(crate) fn labelled(&self) -> BTreeMap<Guid, bool> {
        self.labelled.lock().clone()
    }

    fn newest(&self, last: &Uberblock) -> Uberblock {
        self.newest.lock().filter(|newest| newest.txg == last.txg).unwrap_or(*last)
    }
}

impl Labels<'_> {
    /// Leaves that may take heartbeats, in use or not.
    pub fn beat_leaves(&self) -> usize {
        self.pool().tree().vdevs().leaves().len().max(1)
    }

    /// The leaf after `last` that can take a heartbeat and has none `pending`.
    ///
    /// # Errors
    /// There is none.
    pub fn next_to_beat(&self, last: Option<Guid>, pending: &BTreeSet<Guid>) -> Result<Guid, NoLeaf> {
        let vdevs = self.pool().tree().vdevs();
        let leaves = vdevs.leaves();
        let after = leaves.iter().position(|leaf| Some(leaf.guid) == last).map_or(0, |at| at + 1);
        let mut in_turn = leaves.iter().cycle().skip(after).take(leaves.len());
        let writable = |leaf: &&Arc<Leaf>| !leaf.is_out_of_use();
        match in_turn.clone().filter(writable).find(|leaf| !pending.contains(&leaf.guid)) {
            Some(leaf) => Ok(leaf.guid),
            None if in_turn.any(|leaf| writable(&leaf)) => Err(NoLeaf::WritePending),
            None => Err(NoLeaf::NotWritable),
        }
    }

    /// Writes a heartbeat to a random label of a leaf: the newest uberblock as `stamp` changes it. Not
    /// flushed: other machines read it from the device's cache, too.
    ///
    /// # Errors
    /// The leaf has left, or fails.
    #[boxed]
    pub async fn beat(
        &self,
        leaf: Guid,
        stamp: Box<dyn Fn(Uberblock) -> Uberblock + Send + Sync>,
    ) -> Result<()> {
        let pool = self.pool();
        let uberblock = stamp(pool.beats().newest(pool.uberblock()));
        let vdevs = pool.tree().vdevs();
        let top = vdevs.tops().find(|top| top.leaves().any(|one| one.guid == leaf));
        let ashift = top.map_or(0, |top| top.ashift);
        let found = vdevs.leaves().iter().find(|one| one.guid == leaf);
        let Some(leaf) = found else { return Ok(()) };
        let (at, slot) = last_slot(&uberblock, ashift);
        let label = (pool.runtime().random_u64() % u64::from(VDEV_LABELS)) as u32;
        let part = sealed(leaf.device.size_bytes(), label, at, &slot);
        let (offset, bytes) = part.ok_or_else(|| too_small(leaf.device.describe()))?;
        Ok(leaf.write(IoClass::SyncWrite, Stake::alone(uberblock.txg), offset, bytes).await?)
    }
}
