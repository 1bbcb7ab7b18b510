//! ARC as published: a list of blocks used once and a list of blocks used more often, each followed by a list
//! of ghosts. A hit in a ghost list shows which list should have been larger, and moves the target.
//!
//! Sizes are bytes here; the paper counts pages of one size.
//!
//! Source: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003.

use crate::lists::{Entry, Lists};
use crate::policy::{Access, BlockId, Policy};

const RECENT: usize = 0;
const RECENT_GHOSTS: usize = 1;
const FREQUENT: usize = 2;
const FREQUENT_GHOSTS: usize = 3;

/// The published ARC.
#[derive(Debug)]
pub struct ClassicArc {
    lists: Lists<4>,
    /// The paper's p: target size of `RECENT`.
    target_bytes: u64,
    capacity_bytes: u64,
}

impl ClassicArc {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> ClassicArc {
        ClassicArc { lists: Lists::new(), target_bytes: 0, capacity_bytes }
    }

    /// The paper's REPLACE: demotes one block to its ghosts.
    fn replace(&mut self, is_for_frequent_ghost: bool, evicted: &mut Vec<BlockId>) {
        let recent = self.lists.bytes(RECENT);
        let is_over = recent > self.target_bytes || (is_for_frequent_ghost && recent == self.target_bytes);
        let from = if recent > 0 && is_over || self.lists.len(FREQUENT) == 0 { RECENT } else { FREQUENT };
        if let Some(slot) = self.lists.back(from) {
            evicted.push(self.lists.entry(slot).id);
            self.lists.move_to_front(slot, from + 1);
        }
    }

    fn make_room(&mut self, bytes: u64, is_for_frequent_ghost: bool, evicted: &mut Vec<BlockId>) {
        while self.resident_bytes() > 0 && self.resident_bytes() + bytes > self.capacity_bytes {
            self.replace(is_for_frequent_ghost, evicted);
        }
    }

    /// Makes room for a new block: the recent half of the directory never exceeds the cache size, the whole
    /// directory never twice that.
    fn make_room_for_new(&mut self, bytes: u64, evicted: &mut Vec<BlockId>) {
        let half = |lists: &Lists<4>| lists.bytes(RECENT) + lists.bytes(RECENT_GHOSTS);
        while half(&self.lists) + bytes > self.capacity_bytes && self.lists.pop(RECENT_GHOSTS).is_some() {}
        while half(&self.lists) + bytes > self.capacity_bytes {
            let Some(gone) = self.lists.pop(RECENT) else { break };
            evicted.push(gone.id);
        }
        let all = |lists: &Lists<4>| (0..4).map(|list| lists.bytes(list)).sum::<u64>();
        while all(&self.lists) + bytes > 2 * self.capacity_bytes && self.lists.pop(FREQUENT_GHOSTS).is_some()
        {
        }
        self.make_room(bytes, false, evicted);
    }
}

impl Policy for ClassicArc {
    fn touch(&mut self, access: &Access) -> bool {
        match self.lists.find(access.id) {
            Some((slot, RECENT | FREQUENT)) => {
                self.lists.move_to_front(slot, FREQUENT);
                true
            }
            _ => false,
        }
    }

    fn expect(&self, accesses: &[Access]) {
        self.lists.look_at(accesses);
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        let bytes = u64::from(access.bytes);
        if bytes > self.capacity_bytes {
            evicted.push(access.id);
            return;
        }
        let (recent, frequent) = (self.lists.bytes(RECENT_GHOSTS), self.lists.bytes(FREQUENT_GHOSTS));
        match self.lists.find(access.id) {
            Some((slot, list)) => {
                if list == RECENT_GHOSTS {
                    let step = bytes * (frequent / recent.max(1)).max(1);
                    self.target_bytes = (self.target_bytes + step).min(self.capacity_bytes);
                } else {
                    let step = bytes * (recent / frequent.max(1)).max(1);
                    self.target_bytes = self.target_bytes.saturating_sub(step);
                }
                self.lists.remove(slot);
                self.make_room(bytes, list == FREQUENT_GHOSTS, evicted);
                self.lists.push(FREQUENT, Entry::from(access));
            }
            None => {
                self.make_room_for_new(bytes, evicted);
                self.lists.push(RECENT, Entry::from(access));
            }
        }
    }

    fn remove(&mut self, id: BlockId) {
        self.lists.forget(id);
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.target_bytes = self.target_bytes.min(capacity_bytes);
        self.make_room(0, false, evicted);
        self.make_room_for_new(0, evicted);
    }

    fn resident_bytes(&self) -> u64 {
        self.lists.bytes(RECENT) + self.lists.bytes(FREQUENT)
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("recent", self.lists.bytes(RECENT)),
            ("frequent", self.lists.bytes(FREQUENT)),
            ("recent_ghosts", self.lists.bytes(RECENT_GHOSTS)),
            ("frequent_ghosts", self.lists.bytes(FREQUENT_GHOSTS)),
            ("recent_target", self.target_bytes),
        ]
    }
}
