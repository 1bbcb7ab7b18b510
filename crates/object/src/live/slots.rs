//! Free object numbers.
//!
//! Idea: objects made together should lie together, so numbers are handed out from one block of dnodes after
//! the other. A block's free slots are looked up once, when its turn comes; full blocks are passed over by
//! their fill count. A number that is freed is used again when the search comes round.
//!
//! Source: OpenZFS `dmu_object.c` (`dmu_object_alloc_impl`).

use cenote_format::dnode::DNODES_PER_BLOCK as SLOTS;
use cenote_format::units::{BlockId, ObjectId};

use crate::error::Result;
use crate::object::holes::{Region, RegionKind};
use crate::objset::{META_DNODE_OBJECT, Objset};

/// The block that numbers are being handed out from.
#[derive(Debug, Default)]
pub(super) struct Slots {
    block: u64,
    /// A bit for each free slot of it.
    free: u32,
    is_known: bool,
}

impl Slots {
    /// A run of free slots of this block, taken. `None`: there is none, or nothing is known of the block.
    pub(super) fn take(&mut self, slots: u8) -> Option<ObjectId> {
        let run = u32::MAX >> (32 - u32::from(slots.clamp(1, 32)));
        // A large dnode does not cross the end of its block.
        let at = (0..=32 - u32::from(slots)).find(|&at| self.free >> at & run == run)?;
        self.free &= !(run << at);
        Some(ObjectId(self.block * SLOTS + u64::from(at)))
    }

    /// An object got its number in another way.
    pub(super) fn is_taken(&mut self, object: ObjectId, slots: u8) {
        if object.0 / SLOTS == self.block {
            self.free &= !taken(object, slots);
        }
    }

    /// The block to look at when `take` has nothing.
    pub(super) fn wanted(&self) -> u64 {
        self.block + u64::from(self.is_known)
    }

    /// Goes on with a block of which the free slots are known.
    pub(super) fn begin(&mut self, block: u64, free: u32) {
        // Object 0 is the set of dnodes itself.
        let free = if block == 0 { free & !1 } else { free };
        *self = Slots { block, free, is_known: true };
    }
}

/// `DN_MAX_OBJECT`: numbers end below this.
const MAX_OBJECTS: u64 = 1 << 48;

/// The first block from `from` on that has a free slot, and which are free.
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

/// What a block of dnodes has on disk.
enum Slotted {
    /// Slots that no object takes.
    Free(u32),
    /// It can't be found, and neither can any before this one.
    UnreadableUpTo(u64),
}

/// Beyond the end there is no object.
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
            // What can't be read may be in use.
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
        assert_eq!(slots.wanted(), 0);
        slots.begin(0, u32::MAX);
        assert_eq!(slots.take(1), Some(ObjectId(1)));
        assert_eq!(slots.take(2), Some(ObjectId(2)));
        slots.begin(3, 0b1101_1011);
        assert_eq!(slots.take(2), Some(ObjectId(96)));
        assert_eq!(slots.take(2), Some(ObjectId(99)));
        assert_eq!(slots.take(2), Some(ObjectId(102)));
        assert_eq!(slots.take(1), None);
        assert_eq!(slots.wanted(), 4);
    }
}
