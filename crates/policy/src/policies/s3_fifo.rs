//! S3-FIFO: a small queue (a tenth of the cache) for new blocks, a main queue for those used again meanwhile,
//! and ghosts of the others.
//!
//! Source: Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.

use crate::lists::{Entry, Lists};
use crate::policy::{Access, BlockId, Policy};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOSTS: usize = 2;
/// Uses in the small queue for promotion to the main queue.
const USES_TO_STAY: u32 = 2;
const MOST_USES: u32 = 3;

/// S3-FIFO.
#[derive(Debug)]
pub struct S3Fifo {
    lists: Lists<3>,
    capacity_bytes: u64,
    /// Until the first eviction, the main queue takes the overflow of the small one.
    is_filling: bool,
}

impl S3Fifo {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> S3Fifo {
        S3Fifo { lists: Lists::new(), capacity_bytes, is_filling: true }
    }

    fn small_bytes(&self) -> u64 {
        self.capacity_bytes / 10
    }

    fn main_bytes(&self) -> u64 {
        self.capacity_bytes - self.small_bytes()
    }

    fn make_room(&mut self, bytes: u64, evicted: &mut Vec<BlockId>) {
        while self.resident_bytes() > 0 && self.resident_bytes() + bytes > self.capacity_bytes {
            self.is_filling = false;
            if self.lists.bytes(MAIN) > self.main_bytes() || self.lists.len(SMALL) == 0 {
                self.evict_main(evicted);
            } else {
                self.evict_small(evicted);
            }
        }
    }

    fn evict_small(&mut self, evicted: &mut Vec<BlockId>) {
        while let Some(slot) = self.lists.back(SMALL) {
            if self.lists.entry(slot).mark < USES_TO_STAY {
                evicted.push(self.lists.entry(slot).id);
                self.lists.move_to_front(slot, GHOSTS);
                while self.lists.bytes(GHOSTS) > self.main_bytes() {
                    self.lists.pop(GHOSTS);
                }
                return;
            }
            self.lists.entry_mut(slot).mark = 0;
            self.lists.move_to_front(slot, MAIN);
        }
    }

    fn evict_main(&mut self, evicted: &mut Vec<BlockId>) {
        while let Some(slot) = self.lists.back(MAIN) {
            if self.lists.entry(slot).mark == 0 {
                evicted.push(self.lists.remove(slot).id);
                return;
            }
            self.lists.entry_mut(slot).mark -= 1;
            self.lists.move_to_front(slot, MAIN);
        }
    }
}

impl Policy for S3Fifo {
    fn touch(&mut self, access: &Access) -> bool {
        match self.lists.find(access.id) {
            Some((slot, SMALL | MAIN)) => {
                let mark = &mut self.lists.entry_mut(slot).mark;
                *mark = (*mark + 1).min(MOST_USES);
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
        let ghost = self.lists.forget(access.id);
        self.make_room(bytes, evicted);
        let is_full = self.lists.bytes(SMALL) + bytes > self.small_bytes();
        let list = if ghost.is_some() || self.is_filling && is_full { MAIN } else { SMALL };
        self.lists.push(list, Entry::from(access));
    }

    fn remove(&mut self, id: BlockId) {
        self.lists.forget(id);
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.make_room(0, evicted);
    }

    fn resident_bytes(&self) -> u64 {
        self.lists.bytes(SMALL) + self.lists.bytes(MAIN)
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("small", self.lists.bytes(SMALL)),
            ("main", self.lists.bytes(MAIN)),
            ("ghosts", self.lists.bytes(GHOSTS)),
        ]
    }
}
