//! Slow disks sit out: clients' reads do without them.
//!
//! Idea: a RAID-Z or dRAID reads one disk per data column, so the slowest decides how long a read takes.
//! While a leaf sits out, parity is read in its place (`read`), unless needed: as many leaves may sit out as
//! the vdev has parity, and unreadable columns come first. Scrubs and resilvers read it, and it is written.
//!
//! Source: OpenZFS 2.4 `vdev_raidz.c` (`vdev_sit_out_reads`), `vdev.c` (`VDEV_PROP_SIT_OUT`).

use cenote_format::units::Guid;
use cenote_runtime::Instant;

use crate::pool::Tree;
use crate::vdev::leaf::{Leaf, Slot};
use crate::vdev::{Layout, Top, VdevTree};

/// Why a leaf can't sit out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotSitOut {
    /// It is part of no RAID-Z or dRAID, or has no device.
    #[error("only disks of a RAID-Z or dRAID can sit out")]
    NoParity,
    /// All parity is spoken for (`ZFS_ERR_TOO_MANY_SITOUTS`).
    #[error("as many disks of the vdev sit out as it has parity")]
    TooMany,
}

impl Tree {
    /// Lets a leaf sit out until that time; `None`: it reads again.
    ///
    /// # Errors
    /// See [`CannotSitOut`].
    pub fn sit_out(&self, leaf: Guid, until: Option<Instant>) -> Result<(), CannotSitOut> {
        let vdevs = self.vdevs();
        let (top, own) = slot_of(&vdevs, leaf).ok_or(CannotSitOut::NoParity)?;
        let others = top.slots().iter().filter(|slot| !std::ptr::eq(*slot, own));
        let sitting = others.filter(|slot| slot.leaves.iter().any(|leaf| leaf.sits_out())).count();
        if until.is_some() && sitting >= top.config.parity {
            return Err(CannotSitOut::TooMany);
        }
        with_guid(own, leaf).for_each(|leaf| leaf.sit_out_until(until.map_or(0, Instant::as_ns)));
        Ok(())
    }

    /// Whether a leaf sits out; `None` if it can't.
    pub fn sits_out(&self, leaf: Guid) -> Option<bool> {
        let vdevs = self.vdevs();
        let (_, slot) = slot_of(&vdevs, leaf)?;
        Some(with_guid(slot, leaf).any(|leaf| leaf.sits_out()))
    }
}

fn slot_of(vdevs: &VdevTree, leaf: Guid) -> Option<(&Top, &Slot)> {
    let redundant =
        vdevs.all_tops().iter().filter(|top| matches!(top.layout, Layout::Raidz(..) | Layout::Draid(..)));
    let mut slots = redundant.flat_map(|top| top.slots().iter().map(move |slot| (top, slot)));
    slots.find(|(_, slot)| with_guid(slot, leaf).next().is_some())
}

fn with_guid(slot: &Slot, leaf: Guid) -> impl Iterator<Item = &Leaf> {
    slot.leaves.iter().map(|one| &**one).filter(move |one| one.guid == leaf)
}
