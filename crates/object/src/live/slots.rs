//! Free object numbers.
//!
//! Idea: objects made together should lie together, so numbers come from one block of dnodes after the other.
//! A block's free slots are looked up once, in its turn; the fill count shows full blocks. A block already
//! passed gets another turn once a quarter of it was freed and that is on disk: earlier, a new object could
//! be mistaken for the number's previous owner. Turns come when a block is used up, so a set that never had a
//! second block reuses no number while open; OpenZFS's incremental send relies on that. The MOS reuses none
//! while the pool is open: its numbers identify datasets.
//!
//! Memory: [`MOST_FREED`] blocks with freed slots; others are found when the set is opened again.
//!
//! Source: OpenZFS `dmu_object.c` (`dmu_object_alloc_impl`), which searches from the start at most once a txg
//! and takes regions at most a quarter full; `dmu_traverse.c` (`td_realloc_possible`).

use std::collections::BTreeMap;

use cenote_format::dnode::DNODES_PER_BLOCK as SLOTS;
use cenote_format::units::{BlockId, ObjectId, Txg};

use crate::error::Result;
use crate::object::holes::{Region, RegionKind};
use crate::objset::{META_DNODE_OBJECT, Objset};

/// The block that numbers come from.
#[derive(Debug, Default)]
pub(super) struct Slots {
    block: u64,
    /// A bit for each free slot.
    free: u32,
    /// Behind the farthest block searched.
    next: u64,
    /// Earlier blocks, slots freed since their turn.
    freed: BTreeMap<u64, Freed>,
}

#[derive(Debug)]
struct Freed {
    slots: u32,
    txg: Txg,
}

/// A quarter of a block earns another turn.
const MANY_FREED: u32 = SLOTS as u32 / 4;
const MOST_FREED: usize = 4096;

impl Slots {
    /// Takes a run of free slots, if any.
    pub(super) fn take(&mut self, slots: u8) -> Option<ObjectId> {
        let run = u32::MAX >> (32 - u32::from(slots.clamp(1, 32)));
        // A large dnode stays within its block.
        let at = (0..=32 - u32::from(slots)).find(|&at| self.free >> at & run == run)?;
        self.free &= !(run << at);
        Some(ObjectId(self.block * SLOTS + u64::from(at)))
    }

    pub(super) fn is_taken(&mut self, object: ObjectId, slots: u8) {
        if object.0 / SLOTS == self.block {
            self.free &= !taken(object, slots);
        }
    }

    pub(super) fn is_freed(&mut self, object: ObjectId, slots: u8, txg: Txg) {
        let block = object.0 / SLOTS;
        let is_counted = self.freed.len() < MOST_FREED || self.freed.contains_key(&block);
        if block < self.next && is_counted {
            let freed = self.freed.entry(block).or_insert(Freed { slots: 0, txg });
            freed.slots = freed.slots.saturating_add(slots.into());
            freed.txg = freed.txg.max(txg);
        }
    }

    /// The block to search when `take` fails, with txg `txg` open and the one before perhaps not on disk yet.
    pub(super) fn wanted(&self, txg: Txg) -> u64 {
        let is_due =
            |(_, freed): &(&u64, &Freed)| freed.slots >= MANY_FREED && freed.txg.0.saturating_add(1) < txg.0;
        self.freed.iter().find(is_due).map_or(self.next, |(block, _)| *block)
    }

    /// The first block from `wanted` on with free slots.
    pub(super) fn begin(&mut self, wanted: u64, block: u64, free: u32) {
        self.freed.remove(&wanted);
        if wanted < self.next && block != wanted {
            // The freed slots were taken by others.
            return;
        }
        self.freed.remove(&block);
        // Object 0 is the meta dnode.
        self.free = if block == 0 { free & !1 } else { free };
        self.block = block;
        self.next = self.next.max(block + 1);
    }
}

/// `DN_MAX_OBJECT`: numbers are lower.
const MAX_OBJECTS: u64 = 1 << 48;

/// The first block from `from` on with free slots.
pub(super) async fn free_slots(view: &Objset, from: u64) -> Result<(u64, u32)> {
    let mut block = from;
    while block < MAX_OBJECTS / SLOTS {
        let mut free = match free_on_disk(view, block).await? {
            Slotted::Free(free) => free,
            Slotted::UnreadableUpTo(end) => {
                block = end;
                continue;
            }
        };
        for object in view.layers().touched(ObjectId(block * SLOTS)..ObjectId((block + 1) * SLOTS)) {
            free &= !taken(object, view.layers().object(object).and_then(|c| c.head).map_or(1, |h| h.slots));
        }
        if free != 0 {
            return Ok((block, free));
        }
        block += 1;
    }
    Err(view.damaged(META_DNODE_OBJECT, "has no room for another object"))
}

enum Slotted {
    Free(u32),
    /// Unreadable, like all blocks before this one.
    UnreadableUpTo(u64),
}

async fn free_on_disk(view: &Objset, block: u64) -> Result<Slotted> {
    let Some(meta) = view.meta().filter(|_| block * SLOTS < view.last_object().0) else {
        return Ok(Slotted::Free(u32::MAX));
    };
    match meta.next_region(block).await {
        Some(Region { start, end, kind: RegionKind::Unreadable(error) }) if start == block => {
            return if error.is_damage() { Ok(Slotted::UnreadableUpTo(end)) } else { Err(error) };
        }
        _ if meta.blkptr(0, BlockId(block)).await?.fill() >= SLOTS => return Ok(Slotted::Free(0)),
        _ => {}
    }
    let mut free = u32::MAX;
    let mut dnodes = view.dnodes_on_disk(ObjectId(block * SLOTS), ObjectId((block + 1) * SLOTS));
    while let Some(batch) = dnodes.next_batch().await {
        let batch = batch?;
        for (object, dnode) in &batch.dnodes {
            free &= !taken(*object, dnode.slots);
        }
        if !batch.damaged.is_empty() {
            // Unreadable dnodes may be in use.
            return Ok(Slotted::Free(0));
        }
    }
    Ok(Slotted::Free(free))
}

fn taken(object: ObjectId, slots: u8) -> u32 {
    let run = u32::MAX >> (32 - u32::from(slots.clamp(1, 32)));
    run << (object.0 % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_slots_are_found_and_object_0_is_not_handed_out() {
        let mut slots = Slots::default();
        assert_eq!(slots.wanted(Txg(9)), 0);
        slots.begin(0, 0, u32::MAX);
        assert_eq!(slots.take(1), Some(ObjectId(1)));
        assert_eq!(slots.take(2), Some(ObjectId(2)));
        slots.begin(1, 3, 0b1101_1011);
        assert_eq!(slots.take(2), Some(ObjectId(96)));
        assert_eq!(slots.take(2), Some(ObjectId(99)));
        assert_eq!(slots.take(2), Some(ObjectId(102)));
        assert_eq!(slots.take(1), None);
        assert_eq!(slots.wanted(Txg(9)), 4);
    }

    #[test]
    fn a_block_gets_another_turn_once_a_quarter_of_it_was_freed_and_that_is_on_disk() {
        let mut slots = Slots::default();
        for block in 0..3 {
            slots.begin(block, block, u32::MAX);
        }
        (0..7).for_each(|at| slots.is_freed(ObjectId(SLOTS + at), 1, Txg(5)));
        // The search will still come to this block.
        (0..9).for_each(|at| slots.is_freed(ObjectId(9 * SLOTS + at), 1, Txg(5)));
        assert_eq!(slots.wanted(Txg(9)), 3);
        slots.is_freed(ObjectId(SLOTS + 7), 1, Txg(6));
        assert_eq!((slots.wanted(Txg(7)), slots.wanted(Txg(8))), (3, 1));
        slots.begin(1, 1, 0xff);
        assert_eq!(slots.take(1), Some(ObjectId(SLOTS)));
        assert_eq!(slots.wanted(Txg(9)), 3);
        // A concurrent creation was first: the search resumes where it was.
        slots.is_freed(ObjectId(2 * SLOTS), 8, Txg(6));
        assert_eq!(slots.wanted(Txg(9)), 2);
        slots.begin(2, 7, 1);
        assert_eq!(slots.wanted(Txg(9)), 3);
    }
}
