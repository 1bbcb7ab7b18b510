//! The ARC of ZFS on Linux 0.6.2 and 0.6.3, with a switch for each patch between them: pull request 2110 of
//! 2014, "Improve ARC hit rate with metadata heavy workloads".
//!
//! Four lists (recent, frequent, and their ghosts), each of data and of metadata; one target `p` for recent
//! blocks; and a limit for metadata.
//!
//! - Adding a block to a full cache first evicts as many bytes from the state above its target
//!   (`arc_get_data_buf`): of the same class, or with [`Switches::metadata_first`] data before metadata.
//! - A reclaim pass then brings the cache back to its size (`arc_adjust`) and metadata below its limit
//!   (`arc_adjust_meta`).
//! - The original never evicts buffers in use; here none are in use.
//!
//! Source: ZFS on Linux `arc.c`, tags `zfs-0.6.2` and `zfs-0.6.3`.

use crate::lists::{Entry, Lists};
use crate::policy::{Access, BlockId, Class, Policy};

use super::zfs_states::{self as states, FREQUENT, RECENT, TO_GHOSTS};

/// The dampener's limit for the ghost multiplier.
const DAMPENED: u64 = 10;

/// Behaviour with or without each patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// Before "Disable aggressive arc_p growth by default": new blocks raise `p` while the cache grows.
    pub aggressive_growth: bool,
    /// Before "Allow arc_p to drop to zero or grow to arc_c": `p` stays a sixteenth off both ends.
    pub bounded_p: bool,
    /// Before "Disable arc_p adapt dampener by default": a ghost hit counts at most ten times.
    pub dampener: bool,
    /// Before "Remove arc_meta_used from arc_adjust calculation": all metadata counts as recent.
    pub metadata_counts_as_recent: bool,
    /// "Prioritize metadata in arc_get_data_buf": data goes before metadata.
    pub metadata_first: bool,
    /// "Prune metadata from ghost lists in arc_adjust_meta": ghosts of metadata obey its limit.
    pub limited_metadata_ghosts: bool,
    /// Quarters of the cache that metadata may fill: 1 before "Set zfs_arc_meta_limit to 3/4", then 3.
    pub metadata_quarters: u64,
}

impl Switches {
    /// No patches.
    pub const ZOL_0_6_2: Switches = Switches {
        aggressive_growth: true,
        bounded_p: true,
        dampener: true,
        metadata_counts_as_recent: true,
        metadata_first: false,
        limited_metadata_ghosts: false,
        metadata_quarters: 1,
    };
    /// All patches.
    pub const ZOL_0_6_3: Switches = Switches {
        aggressive_growth: false,
        bounded_p: false,
        dampener: false,
        metadata_counts_as_recent: false,
        metadata_first: true,
        limited_metadata_ghosts: true,
        metadata_quarters: 3,
    };
}

/// The patches of report 001 ("performance work targeted for the ZFS on Linux implementation"), each alone on
/// 0.6.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // `Patch::about` says what they are
pub enum Patch {
    Growth,
    Bounds,
    Dampener,
    MetaUsed,
    MetaFirst,
    Split,
    AllSix,
}

impl Patch {
    /// All, in the order of the report; then the six together.
    pub const ALL: [Patch; 7] = [
        Patch::Growth,
        Patch::Bounds,
        Patch::Dampener,
        Patch::MetaUsed,
        Patch::MetaFirst,
        Patch::Split,
        Patch::AllSix,
    ];

    /// The policy's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Patch::Growth => "zol-0.6.2+growth",
            Patch::Bounds => "zol-0.6.2+bounds",
            Patch::Dampener => "zol-0.6.2+dampener",
            Patch::MetaUsed => "zol-0.6.2+meta-used",
            Patch::MetaFirst => "zol-0.6.2+meta-first",
            Patch::Split => "zol-0.6.2+split",
            Patch::AllSix => "zol-0.6.2+six",
        }
    }

    /// A short description.
    pub fn about(self) -> &'static str {
        match self {
            Patch::Growth => "22be556: no aggressive growth of arc_p",
            Patch::Bounds => "5694b53: arc_p may drop to zero or grow to arc_c",
            Patch::Dampener => "517a0bc: no dampener of arc_p",
            Patch::MetaUsed => "2d1f779: arc_adjust without arc_meta_used",
            Patch::MetaFirst => "32a96d6: data is evicted before metadata",
            Patch::Split => "b3b7236: data and metadata are counted apart",
            Patch::AllSix => "these six together",
        }
    }

    /// ZFS on Linux 0.6.2 with this patch.
    pub fn switches(self) -> Switches {
        let old = Switches::ZOL_0_6_2;
        match self {
            Patch::Growth => Switches { aggressive_growth: false, ..old },
            Patch::Bounds => Switches { bounded_p: false, ..old },
            Patch::Dampener => Switches { dampener: false, ..old },
            Patch::MetaUsed => Switches { metadata_counts_as_recent: false, ..old },
            Patch::MetaFirst => Switches { metadata_first: true, ..old },
            // It changes only statistics.
            Patch::Split => old,
            Patch::AllSix => {
                let Switches { limited_metadata_ghosts, metadata_quarters, .. } = old;
                Switches { limited_metadata_ghosts, metadata_quarters, ..Switches::ZOL_0_6_3 }
            }
        }
    }
}

/// The ARC of 2014.
#[derive(Debug)]
pub struct Arc2014 {
    lists: Lists<8>,
    switches: Switches,
    capacity_bytes: u64,
    /// `arc_p`.
    target_bytes: u64,
}

impl Arc2014 {
    /// An empty cache.
    pub fn new(capacity_bytes: u64, switches: Switches) -> Arc2014 {
        Arc2014 { lists: Lists::new(), switches, capacity_bytes, target_bytes: capacity_bytes / 2 }
    }

    fn of(&self, states: [usize; 2]) -> u64 {
        states.iter().map(|&state| self.lists.bytes(state)).sum()
    }

    fn ghosts_of(&self, states: [usize; 2]) -> u64 {
        self.of(states.map(|state| state + TO_GHOSTS))
    }

    fn metadata_bytes(&self) -> u64 {
        self.lists.bytes(RECENT[1]) + self.lists.bytes(FREQUENT[1])
    }

    fn metadata_limit(&self) -> u64 {
        self.capacity_bytes / 4 * self.switches.metadata_quarters
    }

    fn adapt(&mut self, bytes: u64, was_recent: bool) {
        let (recent, frequent) = (self.ghosts_of(RECENT), self.ghosts_of(FREQUENT));
        let (own, other) = if was_recent { (recent, frequent) } else { (frequent, recent) };
        let mut times = if own >= other { 1 } else { other / own.max(1) };
        if self.switches.dampener {
            times = times.min(DAMPENED);
        }
        let margin = if self.switches.bounded_p { self.capacity_bytes / 16 } else { 0 };
        let step = bytes.saturating_mul(times);
        self.target_bytes = if was_recent {
            self.target_bytes.saturating_add(step).min(self.capacity_bytes - margin)
        } else {
            self.target_bytes.saturating_sub(step).max(margin)
        };
    }

    /// Makes room for a block (`arc_get_data_buf`). `frequent`: its future state.
    fn make_room(&mut self, class: Class, bytes: u64, frequent: bool, evicted: &mut Vec<BlockId>) {
        let is_over_limit = class == Class::Metadata && self.metadata_bytes() >= self.metadata_limit();
        if !is_over_limit && self.resident_bytes() + bytes <= self.capacity_bytes {
            return;
        }
        let has_room = |states: [usize; 2]| self.lists.bytes(states[class as usize]) >= bytes;
        let from = if frequent {
            let frequent_target = self.capacity_bytes - self.target_bytes;
            let is_recent_above = frequent_target > self.of(FREQUENT);
            if has_room(RECENT) && is_recent_above { RECENT } else { FREQUENT }
        } else if has_room(FREQUENT) && self.target_bytes > self.of(RECENT) {
            FREQUENT
        } else {
            RECENT
        };
        let evict = if self.switches.metadata_first && !is_over_limit { Class::Data } else { class };
        let done = self.evict(from[evict as usize], bytes, evicted);
        if self.switches.metadata_first && evict == Class::Data {
            self.evict(from[Class::Metadata as usize], bytes.saturating_sub(done), evicted);
        }
    }

    fn evict(&mut self, list: usize, bytes: u64, evicted: &mut Vec<BlockId>) -> u64 {
        let mut done = 0;
        while done < bytes {
            let Some(slot) = self.lists.back(list) else { break };
            let entry = *self.lists.entry(slot);
            done += u64::from(entry.bytes);
            evicted.push(entry.id);
            self.lists.move_to_front(slot, list + TO_GHOSTS);
        }
        done
    }

    fn evict_both(&mut self, states: [usize; 2], bytes: u64, evicted: &mut Vec<BlockId>) {
        let done = self.evict(states[0], bytes, evicted);
        self.evict(states[1], bytes.saturating_sub(done), evicted);
    }

    /// The reclaim pass: `arc_adjust_meta`, then `arc_adjust`.
    fn adjust(&mut self, evicted: &mut Vec<BlockId>) {
        let surplus = self.metadata_bytes().saturating_sub(self.metadata_limit());
        let done = self.evict(RECENT[1], surplus, evicted);
        self.evict(FREQUENT[1], surplus.saturating_sub(done), evicted);
        if self.switches.limited_metadata_ghosts {
            let limit = self.metadata_limit();
            let recent = self.lists.bytes(RECENT[1]) + self.lists.bytes(RECENT[1] + TO_GHOSTS);
            self.forget(RECENT[1] + TO_GHOSTS, recent.saturating_sub(limit));
            let ghosts = self.lists.bytes(RECENT[1] + TO_GHOSTS) + self.lists.bytes(FREQUENT[1] + TO_GHOSTS);
            self.forget(FREQUENT[1] + TO_GHOSTS, ghosts.saturating_sub(limit));
        }

        let over = |arc: &Arc2014| arc.resident_bytes().saturating_sub(arc.capacity_bytes);
        let all_metadata = if self.switches.metadata_counts_as_recent { self.metadata_bytes() } else { 0 };
        let recent = (self.of(RECENT) + all_metadata).saturating_sub(self.target_bytes);
        self.evict_both(RECENT, over(self).min(recent), evicted);
        self.evict_both(FREQUENT, over(self), evicted);
        self.evict_both(RECENT, over(self), evicted);

        let recent = self.of(RECENT) + self.ghosts_of(RECENT);
        self.forget_both(RECENT, recent.saturating_sub(self.capacity_bytes));
        let ghosts = self.ghosts_of(RECENT) + self.ghosts_of(FREQUENT);
        self.forget_both(FREQUENT, ghosts.saturating_sub(self.capacity_bytes));
    }

    fn forget(&mut self, list: usize, bytes: u64) -> u64 {
        let mut done = 0;
        while done < bytes {
            let Some(entry) = self.lists.pop(list) else { break };
            done += u64::from(entry.bytes);
        }
        done
    }

    fn forget_both(&mut self, states: [usize; 2], bytes: u64) {
        let done = self.forget(states[0] + TO_GHOSTS, bytes);
        self.forget(states[1] + TO_GHOSTS, bytes.saturating_sub(done));
    }
}

impl Policy for Arc2014 {
    fn touch(&mut self, access: &Access) -> bool {
        states::touch(&mut self.lists, access)
    }

    fn expect(&self, accesses: &[Access]) {
        self.lists.look_at(accesses);
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        let (class, bytes) = (access.class, u64::from(access.bytes));
        let ghost = self.lists.find(access.id);
        if let Some((slot, list)) = ghost {
            self.adapt(bytes, RECENT.contains(&(list - TO_GHOSTS)));
            self.lists.remove(slot);
        }
        let is_growing = self.resident_bytes() < self.capacity_bytes;
        // A block returning from the ghosts of recent blocks also takes room from recent ones.
        let was_frequent = ghost.is_some_and(|(_, list)| FREQUENT.contains(&(list - TO_GHOSTS)));
        self.make_room(class, bytes, was_frequent, evicted);
        let states = if ghost.is_some() { FREQUENT } else { RECENT };
        self.lists.push(states[class as usize], Entry::from(access));
        if self.switches.aggressive_growth
            && is_growing
            && ghost.is_none()
            && self.of(RECENT) > self.target_bytes
        {
            self.target_bytes = (self.target_bytes + bytes).min(self.capacity_bytes);
        }
        let is_over_limit = self.metadata_bytes() > self.metadata_limit();
        if is_over_limit || self.resident_bytes() > self.capacity_bytes || !evicted.is_empty() {
            self.adjust(evicted);
        }
    }

    fn remove(&mut self, id: BlockId) {
        self.lists.forget(id);
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.target_bytes = self.target_bytes.min(capacity_bytes);
        self.adjust(evicted);
    }

    fn resident_bytes(&self) -> u64 {
        self.of(RECENT) + self.of(FREQUENT)
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("mru_data", self.lists.bytes(RECENT[0])),
            ("mru_metadata", self.lists.bytes(RECENT[1])),
            ("mfu_data", self.lists.bytes(FREQUENT[0])),
            ("mfu_metadata", self.lists.bytes(FREQUENT[1])),
            ("mru_ghost", self.ghosts_of(RECENT)),
            ("mfu_ghost", self.ghosts_of(FREQUENT)),
            ("p", self.target_bytes),
            ("meta_limit", self.metadata_limit()),
        ]
    }
}
