//! One shard of the cache: resident blocks by number, and their recent hits.
//!
//! Idea: a hit must not wait for the policy, which all shards share. So a shard only notes the hit; the
//! reader that notes the [`BATCH`]th passes them all to the policy.
//!
//! Locking: the notes have a mutex, held for a push; the cache keeps each shard behind a lock. Look-ups share
//! it and change only independent atomics, so concurrent hits do not wait.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use cenote_policy::{ARC_MINTIME_NS, Access, BlockId, Class};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::identity::{Identity, Key};

/// Hits noted before the policy gets them.
const BATCH: usize = 32;

struct Resident {
    key: Key,
    class: Class,
    bytes: Bytes,
    is_l2_eligible: bool,
    is_read_ahead: AtomicBool,
    uses: AtomicU8,
    /// The policy ignores hits until then.
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

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    pub(crate) is_l2_eligible: bool,
    /// Read ahead, and not used yet.
    pub(crate) is_read_ahead: bool,
    /// Saturating.
    pub(crate) uses: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The first use of a block read ahead.
    First,
    /// A hit that the policy must get.
    Hit,
    /// Within `ARC_MINTIME` of the last hit that the policy got.
    Again,
}

#[derive(Default)]
pub(crate) struct Shard {
    blocks: FxHashMap<BlockId, Resident>,
    /// By class.
    hits: [AtomicU64; 2],
    /// Bytes of the blocks by class, without bookkeeping.
    content_bytes: [u64; 2],
    noted: Mutex<Vec<Access>>,
}

impl Shard {
    /// A block, and the kind of this use.
    pub(crate) fn get(&self, block: &Identity, now_ns: u64) -> Option<(&Bytes, Use)> {
        let found = self.blocks.get(&block.id).filter(|found| found.key == block.key)?;
        // Racing hits may count once, or both reach the policy.
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

    pub(crate) fn count_hit(&self, class: Class) {
        self.hits[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hits(&self, class: Class) -> u64 {
        self.hits[class as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn marks(&self, block: &Identity) -> Option<Marks> {
        self.blocks.get(&block.id).filter(|found| found.key == block.key).map(Resident::marks)
    }

    /// Notes a hit. Returns a full batch for the policy.
    pub(crate) fn note(&self, access: Access) -> Option<Vec<Access>> {
        let mut noted = self.noted.lock();
        noted.push(access);
        (noted.len() >= BATCH).then(|| std::mem::replace(&mut *noted, Vec::with_capacity(BATCH)))
    }

    pub(crate) fn tell(&self, hear: impl FnMut(Access)) {
        self.noted.lock().drain(..).for_each(hear);
    }

    /// Whether a block has this number, even another block.
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

    /// Returns the block's length and marks.
    pub(crate) fn remove(&mut self, id: BlockId) -> Option<(u64, Marks)> {
        let gone = self.blocks.remove(&id)?;
        let len_bytes = gone.bytes.len() as u64;
        self.content_bytes[gone.class as usize] -= len_bytes;
        Some((len_bytes, gone.marks()))
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn content_bytes(&self, class: Class) -> u64 {
        self.content_bytes[class as usize]
    }

    /// Blocks encrypted on disk, by number.
    pub(crate) fn encrypted(&self) -> Vec<BlockId> {
        let encrypted = self.blocks.iter().filter(|(_, block)| block.key.is_encrypted());
        let mut ids: Vec<BlockId> = encrypted.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Address of each block's content.
    pub(crate) fn addresses(&self) -> Vec<(usize, BlockId)> {
        self.blocks.iter().map(|(id, block)| (block.bytes.as_ptr() as usize, *id)).collect()
    }

    pub(crate) fn bytes(&self, id: BlockId) -> Option<Bytes> {
        self.blocks.get(&id).map(|block| block.bytes.clone())
    }

    /// Replaces `old` by its copy `new`, unless `old` is gone.
    pub(crate) fn replace(&mut self, id: BlockId, old: &Bytes, new: Bytes) -> bool {
        let there = self.blocks.get_mut(&id).filter(|block| block.bytes.as_ptr() == old.as_ptr());
        there.map(|block| block.bytes = new).is_some()
    }

    /// Number, length and class of all blocks, by number.
    pub(crate) fn list(&self) -> Vec<(BlockId, usize, Class)> {
        let mut all: Vec<_> =
            self.blocks.iter().map(|(id, block)| (*id, block.bytes.len(), block.class)).collect();
        all.sort_unstable_by_key(|(id, ..)| *id);
        all
    }
}
