//! One shard of the block cache: a map, and a ring for the hand of the clock.
//!
//! Invariants: a key is in the ring exactly if it is in the map; the cost of all blocks is at most the
//! budget.
//!
//! Locking: none here; the cache keeps each shard behind a mutex.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::Key;

/// Cost of a block besides its bytes: map entry, ring entry, reference count. A rough measurement, on the
/// high side.
const OVERHEAD_BYTES: usize = 240;

struct Slot {
    /// `None` once taken out; the hand removes the slot when it passes.
    block: Option<Bytes>,
    /// Used since the hand last passed.
    marked: bool,
}

pub(crate) struct Shard {
    slots: HashMap<Key, Slot>,
    ring: VecDeque<Key>,
    bytes: usize,
    budget_bytes: usize,
    evictions: u64,
}

impl Shard {
    pub(crate) fn new(budget_bytes: usize) -> Shard {
        Shard { slots: HashMap::new(), ring: VecDeque::new(), bytes: 0, budget_bytes, evictions: 0 }
    }

    pub(crate) fn get(&mut self, key: &Key) -> Option<Bytes> {
        let slot = self.slots.get_mut(key)?;
        slot.marked = true;
        slot.block.clone()
    }

    /// Removes a block and returns it: the caller is the last to want it.
    pub(crate) fn take(&mut self, key: &Key) -> Option<Bytes> {
        let block = self.slots.get_mut(key)?.block.take()?;
        self.bytes -= block.len();
        Some(block)
    }

    /// Inserts a block and evicts others until all fit. A block larger than the budget is not inserted.
    pub(crate) fn insert(&mut self, key: Key, block: Bytes) {
        let cost = block.len() + OVERHEAD_BYTES;
        if cost > self.budget_bytes || self.slots.get(&key).is_some_and(|slot| slot.block.is_some()) {
            return;
        }
        while self.bytes + cost > self.budget_bytes {
            self.evict_one();
        }
        self.bytes += block.len();
        let slot = self.slots.entry(key).or_insert_with(|| {
            self.bytes += OVERHEAD_BYTES;
            self.ring.push_back(key);
            Slot { block: None, marked: false }
        });
        slot.block = Some(block);
    }

    /// Each step removes a block or clears a mark, so this ends.
    fn evict_one(&mut self) {
        while let Some(key) = self.ring.pop_front() {
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            if std::mem::take(&mut slot.marked) {
                self.ring.push_back(key);
                continue;
            }
            self.bytes -= slot.block.as_ref().map_or(0, Bytes::len) + OVERHEAD_BYTES;
            self.slots.remove(&key);
            self.evictions += 1;
            return;
        }
        self.bytes = 0;
    }

    pub(crate) fn len(&self) -> usize {
        let slots = self.ring.iter().filter_map(|key| self.slots.get(key));
        slots.filter(|slot| slot.block.is_some()).count()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> Key {
        [n, 0, 0, 0, 0, 0, 0, 0]
    }

    #[test]
    fn it_never_holds_more_than_its_budget() {
        let mut shard = Shard::new(10 * (1000 + OVERHEAD_BYTES));
        for n in 0..100 {
            shard.insert(key(n), vec![n as u8; 1000].into());
            assert!(shard.bytes() <= 10 * (1000 + OVERHEAD_BYTES));
        }
        assert_eq!((shard.len(), shard.evictions()), (10, 90));
        shard.insert(key(1000), vec![0; 20_000].into());
        assert_eq!(shard.get(&key(1000)), None, "larger than the whole budget");
    }

    #[test]
    fn what_is_taken_is_gone_and_may_come_back() {
        let mut shard = Shard::new(4 * (100 + OVERHEAD_BYTES));
        for round in 0..10 {
            shard.insert(key(1), vec![round; 100].into());
            shard.insert(key(2), vec![round; 100].into());
            assert_eq!(shard.take(&key(1)), Some(vec![round; 100].into()));
            assert_eq!((shard.take(&key(1)), shard.get(&key(1)), shard.len()), (None, None, 1));
        }
        for n in 3..40 {
            shard.insert(key(n), vec![0; 100].into());
            assert!(shard.bytes() <= 4 * (100 + OVERHEAD_BYTES));
        }
        assert_eq!(shard.len(), 4);
    }

    #[test]
    fn what_is_used_stays() {
        let mut shard = Shard::new(4 * (100 + OVERHEAD_BYTES));
        for n in 0..40 {
            shard.insert(key(n), vec![n as u8; 100].into());
            assert!(shard.get(&key(0)).is_some(), "after {n}");
        }
        assert_eq!(shard.get(&key(5)), None);
    }
}
