//! Doubly linked lists of blocks over one arena, with a map from a block to its place.
//!
//! Idea: a policy is a handful of lists between which blocks move. Nodes lie in one vector and link by index,
//! so a move costs a few writes and no allocation. A block is in at most one list. Blocks enter at the front.

use rustc_hash::FxHashMap;

use crate::policy::{Access, BlockId, Class};

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub id: BlockId,
    pub bytes: u32,
    pub class: Class,
    /// The policy's own mark or count.
    pub mark: u32,
    /// Time of the last use.
    pub used_ns: u64,
}

impl From<&Access> for Entry {
    fn from(access: &Access) -> Entry {
        let Access { id, bytes, class, now_ns, .. } = *access;
        Entry { id, bytes, class, mark: 0, used_ns: now_ns }
    }
}

/// A block's place, valid until its removal.
pub(crate) type Slot = u32;

#[derive(Debug)]
struct Node {
    entry: Entry,
    list: u8,
    prev: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    front: u32,
    back: u32,
    len: u64,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Lists<const N: usize> {
    nodes: Vec<Node>,
    free: Vec<u32>,
    places: FxHashMap<BlockId, u32>,
    ends: [Ends; N],
}

impl<const N: usize> Lists<N> {
    pub fn new() -> Lists<N> {
        let ends = [Ends { front: NONE, back: NONE, len: 0, bytes: 0 }; N];
        Lists { nodes: Vec::new(), free: Vec::new(), places: FxHashMap::default(), ends }
    }

    /// A block's place and list.
    pub fn find(&self, id: BlockId) -> Option<(Slot, usize)> {
        let slot = *self.places.get(&id)?;
        Some((slot, self.nodes[slot as usize].list.into()))
    }

    /// Reads these blocks' nodes and neighbours. The reads are independent, so the processor waits for memory
    /// once rather than once a block.
    pub fn look_at(&self, accesses: &[Access]) {
        let look = |access: &Access| {
            let slot = *self.places.get(&access.id)?;
            let Node { prev, next, .. } = self.nodes[slot as usize];
            let list = |slot: u32| self.nodes.get(slot as usize).map_or(0, |node| u32::from(node.list));
            Some(list(prev) + list(next))
        };
        std::hint::black_box(accesses.iter().filter_map(look).sum::<u32>());
    }

    pub fn entry(&self, slot: Slot) -> &Entry {
        &self.nodes[slot as usize].entry
    }

    pub fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.nodes[slot as usize].entry
    }

    pub fn bytes(&self, list: usize) -> u64 {
        self.ends[list].bytes
    }

    pub fn len(&self, list: usize) -> u64 {
        self.ends[list].len
    }

    pub fn back(&self, list: usize) -> Option<Slot> {
        some(self.ends[list].back)
    }

    /// The next block towards the front.
    pub fn towards_front(&self, slot: Slot) -> Option<Slot> {
        some(self.nodes[slot as usize].prev)
    }

    /// Adds a block that is in no list.
    pub fn push(&mut self, list: usize, entry: Entry) -> Slot {
        let node = Node { entry, list: 0, prev: NONE, next: NONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let before = self.places.insert(entry.id, slot);
        debug_assert!(before.is_none(), "block {:#x} is in two lists", entry.id);
        self.link(slot, list);
        slot
    }

    /// Moves a block to the front of a list.
    pub fn move_to_front(&mut self, slot: Slot, list: usize) {
        self.unlink(slot);
        self.link(slot, list);
    }

    pub fn remove(&mut self, slot: Slot) -> Entry {
        self.unlink(slot);
        self.free.push(slot);
        let entry = self.nodes[slot as usize].entry;
        self.places.remove(&entry.id);
        entry
    }

    /// Removes a block, if in a list.
    pub fn forget(&mut self, id: BlockId) -> Option<Entry> {
        let (slot, _) = self.find(id)?;
        Some(self.remove(slot))
    }

    /// Removes the last block of a list.
    pub fn pop(&mut self, list: usize) -> Option<Entry> {
        let slot = self.back(list)?;
        Some(self.remove(slot))
    }

    fn link(&mut self, slot: Slot, list: usize) {
        let front = self.ends[list].front;
        let node = &mut self.nodes[slot as usize];
        (node.list, node.prev, node.next) = (list as u8, NONE, front);
        let bytes = u64::from(node.entry.bytes);
        match some(front) {
            Some(front) => self.nodes[front as usize].prev = slot,
            None => self.ends[list].back = slot,
        }
        let ends = &mut self.ends[list];
        ends.front = slot;
        ends.len += 1;
        ends.bytes += bytes;
    }

    fn unlink(&mut self, slot: Slot) {
        let Node { entry, list, prev, next } = self.nodes[slot as usize];
        let list = usize::from(list);
        match some(prev) {
            Some(prev) => self.nodes[prev as usize].next = next,
            None => self.ends[list].front = next,
        }
        match some(next) {
            Some(next) => self.nodes[next as usize].prev = prev,
            None => self.ends[list].back = prev,
        }
        self.ends[list].len -= 1;
        self.ends[list].bytes -= u64::from(entry.bytes);
    }
}

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}
