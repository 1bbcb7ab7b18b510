//! Signs of states newer than the newest readable uberblock.
//!
//! Idea: if the newest uberblocks are damaged in all labels of all devices, the pool silently opens in an
//! earlier state. But a txg leaves more traces than its uberblock:
//!
//! ```text
//!   labels 1 and 3   are written last (label/write): a txg that they name was complete
//!   a slot           with a bad uberblock checksum may still state its txg
//!   slots after the newest uberblock's that hold garbage: either older or newer uberblocks were there
//! ```
//!
//! A slot counts only if damaged in all labels of a device, because an interrupted write leaves some labels
//! intact. The slot of the very next txg must be damaged so on all devices: a power cut in the middle of its
//! write may tear all labels of one, and then the others tell that it never was complete. A ring begins
//! empty, or (OpenZFS) with an uberblock of txg 0 without a checksum.
//!
//! Source: OpenZFS `vdev_label_init`, `vdev_config_sync`.

use crate::label::Label;
use cenote_format::features::SPA_VERSION_FEATURES;
use cenote_format::label::{uberblock_count, uberblock_slot_bytes};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::Txg;
use std::fmt;

/// Labels written after a txg's uberblock.
const LAST_LABELS: [usize; 2] = [1, 3];

/// Signs of states newer than the newest readable uberblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostStates {
    /// The newest state that can be opened.
    pub opens: Txg,
    /// The newest txg that labels or damaged uberblocks name.
    pub known: Option<Txg>,
    /// Damaged slots right after the newest uberblock's.
    pub slots: u64,
}

impl fmt::Display for LostStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostStates { opens, known, slots } = self;
        match known {
            Some(known) => write!(
                f,
                "its devices name txg {known}, but the newest uberblock that can be read on any of them is \
                 of txg {opens}: what was written in between is missing"
            ),
            None => write!(
                f,
                "after the newest uberblock that can be read, of txg {opens}, {slots} are damaged on all \
                 labels of a device: what was written after that txg may be missing"
            ),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Signs {
    /// From the labels written last.
    label_txg: Option<Txg>,
    /// Slots damaged in all labels, and the txgs that they name.
    slots: Vec<(u64, Option<Txg>)>,
    count: u64,
}

impl Signs {
    pub(super) fn of(labels: &[Label], ashift: u32) -> Signs {
        let last = LAST_LABELS.into_iter().filter_map(|index| labels.get(index)?.config.as_ref());
        let label_txg = last.filter_map(|config| config.get_u64("txg")).max().map(Txg);
        let slot_bytes = uberblock_slot_bytes(ashift);
        let readable = || labels.iter().filter(|label| label.unreadable.is_none());
        let first = readable().next().map_or(&[][..], |label| &label.broken_slots);
        let in_all = first.iter().filter(|slot| slot.at.is_multiple_of(slot_bytes)).filter_map(|slot| {
            let same = readable().map(|label| label.broken_slots.iter().find(|other| other.at == slot.at));
            let same: Vec<_> = same.collect::<Option<_>>()?;
            Some((slot.at / slot_bytes, same.iter().filter_map(|slot| slot.txg).max()))
        });
        Signs { label_txg, slots: in_all.collect(), count: uberblock_count(ashift) }
    }

    fn known(&self) -> Option<Txg> {
        self.slots.iter().filter_map(|(_, txg)| *txg).chain(self.label_txg).max()
    }

    fn is_damaged(&self, turn: u64) -> bool {
        self.slots.iter().any(|(slot, _)| *slot == turn % self.count.max(1))
    }

    /// Damaged slots right after a txg's.
    fn after(&self, newest: Txg) -> u64 {
        let turns = (1..self.count).map(|ahead| newest.0.saturating_add(ahead));
        turns.take_while(|turn| self.is_damaged(*turn)).count() as u64
    }
}

pub(super) fn lost_states<'a>(
    newest: &Uberblock,
    devices: impl Iterator<Item = &'a Signs> + Clone,
) -> Option<LostStates> {
    let next = Txg(newest.txg.0.saturating_add(1));
    let is_torn = !devices.clone().all(|signs| signs.is_damaged(next.0));
    let labels = devices.clone().filter_map(|signs| signs.label_txg).max();
    let known = devices.clone().filter_map(Signs::known).max().filter(|known| *known > newest.txg);
    let known = known.filter(|known| *known > next || !is_torn || labels >= Some(*known));
    // With heartbeats, the ring of txgs is shorter. Before pools had features, a ring did not begin empty.
    let slots = match newest.mmp_is_on() || newest.version < SPA_VERSION_FEATURES {
        true => 0,
        false => devices.map(|signs| signs.after(newest.txg)).max().unwrap_or(0),
    };
    let slots = if slots == 1 && is_torn { 0 } else { slots };
    (known.is_some() || slots > 0).then_some(LostStates { opens: newest.txg, known, slots })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(slots: &[(u64, Option<Txg>)]) -> Signs {
        Signs { label_txg: None, slots: slots.to_vec(), count: 128 }
    }

    #[test]
    fn a_txg_whose_uberblock_was_torn_on_one_device_is_not_missed() {
        let newest = Uberblock { mmp_magic: 0, ..Uberblock::before_first(SPA_VERSION_FEATURES, Txg(18), 0) };
        let lost = |devices: &[Signs]| lost_states(&newest, devices.iter()).map(|lost| lost.known);
        let torn = || signs(&[(19, Some(Txg(19)))]);
        assert_eq!(lost(&[torn(), signs(&[])]), None);
        assert_eq!(lost(&[torn(), torn()]), Some(Some(Txg(19))));
        let named = Signs { label_txg: Some(Txg(19)), ..torn() };
        assert_eq!(lost(&[named, signs(&[])]), Some(Some(Txg(19))));
        let later = || signs(&[(20, Some(Txg(20)))]);
        assert_eq!(lost(&[later(), signs(&[])]), Some(Some(Txg(20))));
        // Without a txg, by its place.
        assert_eq!(lost(&[signs(&[(19, None)]), signs(&[])]), None);
        assert_eq!(lost(&[signs(&[(19, None), (20, None)]), signs(&[])]), Some(None));
    }
}
