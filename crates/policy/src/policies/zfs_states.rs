//! Common parts of OpenZFS's ARCs of 2014 and 2022: recent and frequent blocks, by data and metadata, each
//! with ghosts, and the effect of a hit.
//!
//! Source: OpenZFS `arc.c` (`arc_access`).

use crate::lists::Lists;
use crate::policy::{ARC_MINTIME_NS, Access};

/// States by class; ghosts follow their state at a distance of [`TO_GHOSTS`].
pub(super) const RECENT: [usize; 2] = [0, 1];
pub(super) const FREQUENT: [usize; 2] = [2, 3];
pub(super) const TO_GHOSTS: usize = 4;

/// Uses a block, if resident. A second use makes it frequent, unless it follows the first at once.
pub(super) fn touch(lists: &mut Lists<8>, access: &Access) -> bool {
    let Some((slot, list)) = lists.find(access.id) else { return false };
    if list >= TO_GHOSTS {
        return false;
    }
    let entry = lists.entry_mut(slot);
    let is_later = access.now_ns > entry.used_ns.saturating_add(ARC_MINTIME_NS);
    if RECENT.contains(&list) {
        if is_later {
            entry.used_ns = access.now_ns;
            let frequent = FREQUENT[entry.class as usize];
            lists.move_to_front(slot, frequent);
        }
    } else {
        entry.used_ns = access.now_ns;
        lists.move_to_front(slot, list);
    }
    true
}
