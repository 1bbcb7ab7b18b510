//! Evicts the least recently used block.

use crate::lists::{Entry, Lists};
use crate::policy::{Access, BlockId, Policy};

/// LRU.
#[derive(Debug)]
pub struct Lru {
    lists: Lists<1>,
    capacity_bytes: u64,
}

impl Lru {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Lru {
        Lru { lists: Lists::new(), capacity_bytes }
    }

    fn shrink(&mut self, evicted: &mut Vec<BlockId>) {
        while self.lists.bytes(0) > self.capacity_bytes {
            evicted.extend(self.lists.pop(0).map(|entry| entry.id));
        }
    }
}

impl Policy for Lru {
    fn touch(&mut self, access: &Access) -> bool {
        let found = self.lists.find(access.id);
        found.is_some_and(|(slot, _)| {
            self.lists.move_to_front(slot, 0);
            true
        })
    }

    fn expect(&self, accesses: &[Access]) {
        self.lists.look_at(accesses);
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        self.lists.push(0, Entry::from(access));
        self.shrink(evicted);
    }

    fn remove(&mut self, id: BlockId) {
        self.lists.forget(id);
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.shrink(evicted);
    }

    fn resident_bytes(&self) -> u64 {
        self.lists.bytes(0)
    }
}
