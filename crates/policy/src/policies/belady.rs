//! Belady's rule: evict the block whose next use is furthest in the future. No policy misses less if all
//! blocks have one size. It needs [`Access::next_use`], so it runs in replays only.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::policy::{Access, BlockId, Policy};

/// Belady's optimum.
#[derive(Debug)]
pub struct Belady {
    resident: FxHashMap<BlockId, (u64, u32)>,
    by_next_use: BTreeSet<(u64, BlockId)>,
    bytes: u64,
    capacity_bytes: u64,
}

impl Belady {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Belady {
        let (resident, by_next_use) = (FxHashMap::default(), BTreeSet::new());
        Belady { resident, by_next_use, bytes: 0, capacity_bytes }
    }

    fn shrink(&mut self, evicted: &mut Vec<BlockId>) {
        while self.bytes > self.capacity_bytes {
            let Some((_, id)) = self.by_next_use.pop_last() else { return };
            if let Some((_, bytes)) = self.resident.remove(&id) {
                self.bytes -= u64::from(bytes);
            }
            evicted.push(id);
        }
    }
}

impl Policy for Belady {
    fn touch(&mut self, access: &Access) -> bool {
        let Some((next_use, _)) = self.resident.get_mut(&access.id) else { return false };
        self.by_next_use.remove(&(*next_use, access.id));
        *next_use = access.next_use;
        self.by_next_use.insert((access.next_use, access.id));
        true
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        self.resident.insert(access.id, (access.next_use, access.bytes));
        self.by_next_use.insert((access.next_use, access.id));
        self.bytes += u64::from(access.bytes);
        self.shrink(evicted);
    }

    fn remove(&mut self, id: BlockId) {
        if let Some((next_use, bytes)) = self.resident.remove(&id) {
            self.by_next_use.remove(&(next_use, id));
            self.bytes -= u64::from(bytes);
        }
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.shrink(evicted);
    }

    fn resident_bytes(&self) -> u64 {
        self.bytes
    }
}
