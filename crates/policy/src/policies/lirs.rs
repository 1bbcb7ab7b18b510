//! LIRS: ranks blocks by the distance between their last two uses. Blocks with short distances (LIR) fill
//! nearly the whole cache; the others (HIR) pass through a queue, a hundredth of it. A block used again while
//! the stack remembers it has a shorter distance than the last LIR block, and replaces it.
//!
//! The stack remembers evicted blocks, too; here at most twice the content of the cache.
//!
//! Source: Jiang and Zhang, "LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy",
//! SIGMETRICS 2002.

use crate::lists::{Entry, Lists};
use crate::policy::{Access, BlockId, Policy};

/// Marks of blocks on the stack.
const LIR: u32 = 0;
const HIR: u32 = 1;
const GHOST: u32 = 2;

/// LIRS.
#[derive(Debug)]
pub struct Lirs {
    /// By last use. Its back is always LIR.
    stack: Lists<1>,
    /// Resident HIR blocks.
    queue: Lists<1>,
    /// Evicted blocks on the stack, by eviction.
    ghosts: Lists<1>,
    lir_bytes: u64,
    capacity_bytes: u64,
}

impl Lirs {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Lirs {
        let (stack, queue, ghosts) = (Lists::new(), Lists::new(), Lists::new());
        Lirs { stack, queue, ghosts, lir_bytes: 0, capacity_bytes }
    }

    fn queue_capacity_bytes(&self) -> u64 {
        (self.capacity_bytes / 100).max(1)
    }

    fn lir_capacity_bytes(&self) -> u64 {
        self.capacity_bytes - self.queue_capacity_bytes()
    }

    /// Removes blocks below the last LIR block, which no longer matter.
    fn prune(&mut self) {
        while let Some(slot) = self.stack.back(0) {
            let Entry { id, mark, .. } = *self.stack.entry(slot);
            if mark == LIR {
                return;
            }
            self.stack.remove(slot);
            self.ghosts.forget(id);
        }
    }

    /// Moves the last LIR blocks to the queue until the rest fits.
    fn demote(&mut self) {
        while self.lir_bytes > self.lir_capacity_bytes() {
            self.prune();
            let Some(last) = self.stack.pop(0) else { return };
            self.lir_bytes -= u64::from(last.bytes);
            self.queue.push(0, last);
            self.prune();
        }
    }

    fn promote(&mut self, entry: Entry) {
        self.lir_bytes += u64::from(entry.bytes);
        self.stack.push(0, Entry { mark: LIR, ..entry });
        self.demote();
    }

    fn make_room(&mut self, bytes: u64, evicted: &mut Vec<BlockId>) {
        while self.resident_bytes() > 0 && self.resident_bytes() + bytes > self.capacity_bytes {
            let Some(gone) = self.queue.pop(0) else {
                // With blocks of many sizes, the queue may be empty while there is no room.
                let Some(last) = self.stack.pop(0) else { return };
                self.lir_bytes -= u64::from(last.bytes);
                evicted.push(last.id);
                self.prune();
                continue;
            };
            evicted.push(gone.id);
            if let Some((slot, _)) = self.stack.find(gone.id) {
                self.stack.entry_mut(slot).mark = GHOST;
                self.ghosts.push(0, gone);
            }
        }
        while self.ghosts.bytes(0) > 2 * self.capacity_bytes {
            if let Some(gone) = self.ghosts.pop(0) {
                self.stack.forget(gone.id);
            }
        }
    }
}

impl Policy for Lirs {
    fn touch(&mut self, access: &Access) -> bool {
        let on_stack = self.stack.find(access.id).map(|(slot, _)| (slot, self.stack.entry(slot).mark));
        match on_stack {
            Some((slot, LIR)) => {
                self.stack.move_to_front(slot, 0);
                self.prune();
                true
            }
            Some((_, GHOST)) => false,
            Some((slot, _)) => {
                self.stack.remove(slot);
                self.queue.forget(access.id);
                self.promote(Entry::from(access));
                true
            }
            None => self.queue.find(access.id).is_some_and(|(slot, _)| {
                self.queue.move_to_front(slot, 0);
                self.stack.push(0, Entry { mark: HIR, ..Entry::from(access) });
                true
            }),
        }
    }

    fn expect(&self, accesses: &[Access]) {
        self.stack.look_at(accesses);
    }

    fn insert(&mut self, access: &Access, evicted: &mut Vec<BlockId>) {
        let bytes = u64::from(access.bytes);
        if bytes > self.capacity_bytes {
            evicted.push(access.id);
            return;
        }
        self.make_room(bytes, evicted);
        let was_remembered = self.stack.forget(access.id).is_some();
        self.ghosts.forget(access.id);
        if was_remembered || self.lir_bytes + bytes <= self.lir_capacity_bytes() {
            self.promote(Entry::from(access));
        } else {
            self.stack.push(0, Entry { mark: HIR, ..Entry::from(access) });
            self.queue.push(0, Entry::from(access));
        }
        self.make_room(0, evicted);
    }

    fn remove(&mut self, id: BlockId) {
        if let Some(entry) = self.stack.forget(id) {
            self.lir_bytes -= if entry.mark == LIR { u64::from(entry.bytes) } else { 0 };
            self.prune();
        }
        self.queue.forget(id);
        self.ghosts.forget(id);
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<BlockId>) {
        self.capacity_bytes = capacity_bytes;
        self.demote();
        self.make_room(0, evicted);
    }

    fn resident_bytes(&self) -> u64 {
        self.lir_bytes + self.queue.bytes(0)
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        vec![("lir", self.lir_bytes), ("hir", self.queue.bytes(0)), ("ghosts", self.ghosts.bytes(0))]
    }
}
