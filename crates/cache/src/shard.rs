//! One shard of the cache: resident blocks by number, and which of them were used lately.
//!
//! Idea: a hit must not wait for the policy, of which there is one for all shards. So a shard only notes the
//! hit; when it has noted [`BATCH`] of them, whoever made the last one takes them to the policy.
//!
//! Locking: none here but for the notes, whose mutex is held for a push; the cache keeps each shard behind a
//! lock. Who looks a block up shares it, so that two who want the same block do not wait for each other: what
//! changes then are atomics, of which none says anything about another.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use cenote_policy::{ARC_MINTIME_NS, Access, BlockId, Class};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::identity::{Identity, Key};

/// Hits that a shard notes before the policy hears of them.
const BATCH: usize = 32;

/// A resident block.
struct Resident {
    key: Key,
    class: Class,
    bytes: Bytes,
    is_l2_eligible: bool,
    is_read_ahead: AtomicBool,
    uses: AtomicU8,
    /// When the policy may hear of a hit again.
    deaf_until_ns: AtomicU64,
}

impl Resident {
    fn marks(&self) -> Marks {
        Marks {
            is_l2_eligible: self.is_l2_eligible,
            is_read_ahead: self.is_read_ahead.load(Ordering::Relaxed),
            uses: self.uses.load(Ordering::Relaxed),
        }
    }
}

/// What else is known of a block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// A cache device may take it.
    pub(crate) is_l2_eligible: bool,
    /// It was read ahead, and nobody has wanted it yet.
    pub(crate) is_read_ahead: bool,
    /// How often it was found here, as far as that matters.
    pub(crate) uses: u8,
}

/// A use of a resident block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It was read ahead, and is wanted for the first time.
    First,
    /// The policy is to hear of it.
    Hit,
    /// It has heard of another one within `ARC_MINTIME`.
    Again,
}

#[derive(Default)]
pub(crate) struct Shard {
    blocks: FxHashMap<BlockId, Resident>,
    /// Look-ups that found a block, by class.
    hits: [AtomicU64; 2],
    /// Bytes of the blocks by class, without what it costs to keep them.
    content_bytes: [u64; 2],
    noted: Mutex<Vec<Access>>,
}

impl Shard {
    /// A block that is wanted, and what kind of a use that is.
    pub(crate) fn get(&self, block: &Identity, now_ns: u64) -> Option<(&Bytes, Use)> {
        let found = self.blocks.get(&block.id).filter(|found| found.key == block.key)?;
        // Two hits at a time may count once, or be heard of twice.
        let uses = found.uses.load(Ordering::Relaxed);
        if uses < u8::MAX {
            found.uses.store(uses + 1, Ordering::Relaxed);
        }
        let is_again = now_ns < found.deaf_until_ns.load(Ordering::Relaxed);
        let is_first =
            found.is_read_ahead.load(Ordering::Relaxed) && found.is_read_ahead.swap(false, Ordering::Relaxed);
        let kind = match is_first {
            true => Use::First,
            false if is_again => Use::Again,
            false => Use::Hit,
        };
        if kind == Use::Hit {
            found.deaf_until_ns.store(now_ns.saturating_add(ARC_MINTIME_NS), Ordering::Relaxed);
        }
        Some((&found.bytes, kind))
    }

    /// Counts a look-up that found a block.
    pub(crate) fn count_hit(&self, class: Class) {
        self.hits[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Look-ups that found a block of a class.
    pub(crate) fn hits(&self, class: Class) -> u64 {
        self.hits[class as usize].load(Ordering::Relaxed)
    }

    /// What is known of a block.
    pub(crate) fn marks(&self, block: &Identity) -> Option<Marks> {
        self.blocks.get(&block.id).filter(|found| found.key == block.key).map(Resident::marks)
    }

    /// Notes a hit. Returns what the policy should hear of, when there is enough of it.
    pub(crate) fn note(&self, access: Access) -> Option<Vec<Access>> {
        let mut noted = self.noted.lock();
        noted.push(access);
        (noted.len() >= BATCH).then(|| std::mem::replace(&mut *noted, Vec::with_capacity(BATCH)))
    }

    /// Tells `hear` of what was noted.
    pub(crate) fn tell(&self, hear: impl FnMut(Access)) {
        self.noted.lock().drain(..).for_each(hear);
    }

    /// Whether there is a block of this number, be it another one.
    pub(crate) fn holds(&self, id: BlockId) -> bool {
        self.blocks.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, block: &Identity, bytes: Bytes, marks: Marks) {
        self.content_bytes[block.class as usize] += bytes.len() as u64;
        let Marks { is_l2_eligible, is_read_ahead, uses } = marks;
        let resident = Resident {
            key: block.key,
            class: block.class,
            bytes,
            is_l2_eligible,
            is_read_ahead: is_read_ahead.into(),
            uses: uses.into(),
            deaf_until_ns: AtomicU64::new(0),
        };
        self.blocks.insert(block.id, resident);
    }

    /// Answers what was there: its length, and its marks.
    pub(crate) fn remove(&mut self, id: BlockId) -> Option<(u64, Marks)> {
        let gone = self.blocks.remove(&id)?;
        let len_bytes = gone.bytes.len() as u64;
        self.content_bytes[gone.class as usize] -= len_bytes;
        Some((len_bytes, gone.marks()))
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of the blocks of a class.
    pub(crate) fn content_bytes(&self, class: Class) -> u64 {
        self.content_bytes[class as usize]
    }

    /// Blocks that are encrypted on disk, in the order of their numbers.
    pub(crate) fn encrypted(&self) -> Vec<BlockId> {
        let encrypted = self.blocks.iter().filter(|(_, block)| block.key.is_encrypted());
        let mut ids: Vec<BlockId> = encrypted.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Where the content of each block is.
    pub(crate) fn addresses(&self) -> Vec<(usize, BlockId)> {
        self.blocks.iter().map(|(id, block)| (block.bytes.as_ptr() as usize, *id)).collect()
    }

    /// The content of a block.
    pub(crate) fn bytes(&self, id: BlockId) -> Option<Bytes> {
        self.blocks.get(&id).map(|block| block.bytes.clone())
    }

    /// Puts `new` in the place of `old`, which is equal, unless that is not there any more.
    pub(crate) fn replace(&mut self, id: BlockId, old: &Bytes, new: Bytes) -> bool {
        let there = self.blocks.get_mut(&id).filter(|block| block.bytes.as_ptr() == old.as_ptr());
        there.map(|block| block.bytes = new).is_some()
    }

    /// All blocks: number, length and class, in the order of their numbers.
    pub(crate) fn list(&self) -> Vec<(BlockId, usize, Class)> {
        let mut all: Vec<_> =
            self.blocks.iter().map(|(id, block)| (*id, block.bytes.len(), block.class)).collect();
        all.sort_unstable_by_key(|(id, ..)| *id);
        all
    }
}
