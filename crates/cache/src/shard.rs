//! One shard of the cache: resident blocks by number, and which of them were used lately.
//!
//! Idea: a hit must not wait for the policy, of which there is one for all shards. So a shard only notes the
//! hit; when it has noted [`BATCH`] of them, whoever made the last one takes them to the policy.
//!
//! Locking: none here; the cache keeps each shard behind a mutex.

use bytes::Bytes;
use cenote_policy::{ARC_MINTIME_NS, Access, BlockId, Class};
use rustc_hash::FxHashMap;

use crate::identity::{Identity, Key};

/// Hits that a shard notes before the policy hears of them.
const BATCH: usize = 32;

/// A resident block.
struct Resident {
    key: Key,
    class: Class,
    marks: Marks,
    bytes: Bytes,
    /// When it was hit last, as far as the policy hears.
    heard_ns: Option<u64>,
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
    noted: Vec<Access>,
    /// Bytes of the blocks by class, without what it costs to keep them.
    content_bytes: [u64; 2],
}

impl Shard {
    /// A block that is wanted, and what kind of a use that is.
    pub(crate) fn get(&mut self, block: &Identity, now_ns: u64) -> Option<(&Bytes, Use)> {
        let found = self.blocks.get_mut(&block.id).filter(|found| found.key == block.key)?;
        found.marks.uses = found.marks.uses.saturating_add(1);
        let is_again = found.heard_ns.is_some_and(|heard| now_ns < heard.saturating_add(ARC_MINTIME_NS));
        let kind = match std::mem::take(&mut found.marks.is_read_ahead) {
            true => Use::First,
            false if is_again => Use::Again,
            false => Use::Hit,
        };
        if kind == Use::Hit {
            found.heard_ns = Some(now_ns);
        }
        Some((&found.bytes, kind))
    }

    /// What is known of a block.
    pub(crate) fn marks(&self, block: &Identity) -> Option<Marks> {
        self.blocks.get(&block.id).filter(|found| found.key == block.key).map(|found| found.marks)
    }

    /// Notes a hit. Returns what the policy should hear of, when there is enough of it.
    pub(crate) fn note(&mut self, access: Access) -> Option<Vec<Access>> {
        self.noted.push(access);
        (self.noted.len() >= BATCH).then(|| std::mem::replace(&mut self.noted, Vec::with_capacity(BATCH)))
    }

    /// Tells `hear` of what was noted.
    pub(crate) fn tell(&mut self, hear: impl FnMut(Access)) {
        self.noted.drain(..).for_each(hear);
    }

    /// Whether there is a block of this number, be it another one.
    pub(crate) fn holds(&self, id: BlockId) -> bool {
        self.blocks.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, block: &Identity, bytes: Bytes, marks: Marks) {
        self.content_bytes[block.class as usize] += bytes.len() as u64;
        let resident = Resident { key: block.key, class: block.class, marks, bytes, heard_ns: None };
        self.blocks.insert(block.id, resident);
    }

    /// Answers what was there: its length, and its marks.
    pub(crate) fn remove(&mut self, id: BlockId) -> Option<(u64, Marks)> {
        let gone = self.blocks.remove(&id)?;
        let len_bytes = gone.bytes.len() as u64;
        self.content_bytes[gone.class as usize] -= len_bytes;
        Some((len_bytes, gone.marks))
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
