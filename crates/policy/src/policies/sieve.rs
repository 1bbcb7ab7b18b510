//! SIEVE: one FIFO queue; a hand moves from its end to its front, spares blocks used since it last passed,
//! and evicts the first other one. New blocks enter at the front, so unused ones leave quickly.
//!
//! Source: Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024.

use crate::lists::{Entry, Lists, Slot};
use crate::policy::{Access, BlockId, Policy};

/// SIEVE.
#[derive(Debug)]
pub struct Sieve {
    lists: Lists<1>,
    /// The next block to examine; `None`: the end of the queue.
    hand: Option<Slot>,
    capacity_bytes: u64,
}

impl Sieve {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Sieve {
        Sieve { lists: Lists::new(), hand: None, capacity_bytes }
    }

    fn shrink(&mut self, target_bytes: u64, evicted: &mut Vec<BlockId>) {
        while self.lists.bytes(0) > target_bytes {
            let Some(slot) = self.hand.or_else(|| self.lists.back(0)) else { return };
            self.hand = self.lists.towards_front(slot);
            if self.lists.entry(slot).mark == 0 {
                evicted.push(self.lists.remove(slot).id);
            } else {
                self.lists.entry_mut(slot).mark = 0;
            }
        }
    }
}

impl Policy for Sieve {
    fn touch(&mut self, access: &Access) -> bool {
        let found = self.lists.find(access.id);
        found.is_some_and(|(slot, _)| {
            self.lists.entry_mut(slot).mark = 1;
            true
        })
    }

    fn expect(&self, accesses: &[Access]) {
        self.lists.look_at(accesses);
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        if u64::from(access.bytes) > self.capacity_bytes {
            evicted.push(access.id);
            return;
        }
        // Before the insertion: the hand must not evict the new block.
        self.shrink(self.capacity_bytes - u64::from(access.bytes), evicted);
        self.lists.push(0, Entry::from(access));
    }

    fn remove(&mut self, id: BlockId) {
        if let Some((slot, _)) = self.lists.find(id) {
            if self.hand == Some(slot) {
                self.hand = self.lists.towards_front(slot);
            }
            self.lists.remove(slot);
        }
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.shrink(capacity_bytes, evicted);
    }

    fn resident_bytes(&self) -> u64 {
        self.lists.bytes(0)
    }
}
