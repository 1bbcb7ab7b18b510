//! A layer: the changes of one txg to one object set, in memory.
//!
//! Idea: blocks on disk never change, so a layer of whole blocks and dnode heads hides those that it replaces
//! in the tree below. A lookup goes from the newest layer down; each has the block, has a hole, or passes the
//! lookup on.
//!
//! ```text
//!   open layer       [obj 7: head, block 0, block 3]            operations write here
//!   syncing layer    [obj 7: head] [obj 9: freed]               frozen: being written
//!   tree on disk     obj 7, obj 8, obj 9 ...
//! ```
//!
//! Invariants: blocks are whole, of the size in the head. A syncing layer does not change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::dnode::DnodeHead;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_pool::write::StoredBlock;
use parking_lot::Mutex;

use crate::live::dirty::{Dirty, DirtyTotal};
use crate::object::SPILL_BLOCK;
use crate::zap::micro_index::MicroIndex;

/// Changes of a txg to an object set.
#[derive(Debug)]
pub struct Layer {
    pub(crate) txg: Txg,
    objects: Mutex<BTreeMap<ObjectId, Changed>>,
    /// Level 1 indirect blocks read, with all above them: see `reach`.
    read: Mutex<BTreeSet<(ObjectId, u64)>>,
    /// Counts against the limit on dirty data.
    dirty: Dirty,
    /// Tells after a failure whether a change had begun.
    changes: AtomicU64,
}

/// An object as of a txg.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// `None`: freed.
    pub(crate) head: Option<DnodeHead>,
    /// Freed in this txg, and perhaps made again: hides everything below.
    pub(crate) fresh: bool,
    pub(crate) blocks: BTreeMap<BlockId, Bytes>,
    /// Shared, received or rewritten; none is in `blocks`.
    pub(crate) clones: BTreeMap<BlockId, Foreign>,
    /// Bytes of `clones` in memory or missing on a disk: these cost as much as writes.
    pub(crate) lacking_bytes: u64,
    /// Least levels of its tree.
    pub(crate) least_levels: u8,
    /// Separate freed ranges, by start; `blocks` and `clones` are newer.
    pub(crate) punched: BTreeMap<u64, u64>,
    /// The spill block, written or removed.
    pub(crate) spill: Option<Option<Bytes>>,
    /// Dropped when the block is written in another way.
    pub(crate) index: Option<Arc<MicroIndex>>,
    pub(crate) run: WriteRun,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// Shared, at this place on disk.
    Shared(Blkptr),
    /// Received compressed or encrypted.
    Arrived(StoredBlock),
    /// The content that it has on disk, to be written again, perhaps with its logical birth.
    Rewritten { data: Bytes, keeps_birth: bool },
}

/// Sequential writes within a block.
#[derive(Debug, Clone, Default)]
pub struct WriteRun {
    block: BlockId,
    part: Range<usize>,
}

impl WriteRun {
    pub(crate) fn goes_on_with(&mut self, block: BlockId, part: Range<usize>) -> Range<usize> {
        let follows = (self.block, self.part.end) == (block, part.start);
        let start = if follows { self.part.start } else { part.start };
        *self = WriteRun { block, part: start..part.end };
        self.part.clone()
    }
}

/// A block as a layer shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Its content.
    Data(Bytes),
    /// Its place on disk.
    Stored(Blkptr),
    /// Its stored form.
    Arrived(StoredBlock),
    /// Zeros.
    Hole,
    /// Not in this layer.
    Below,
}

impl Layer {
    pub(crate) fn new(txg: Txg, total: &DirtyTotal) -> Layer {
        let (objects, read) = (Mutex::default(), Mutex::default());
        Layer { txg, objects, read, dirty: Dirty::of(total), changes: AtomicU64::new(0) }
    }

    pub(crate) fn block(&self, object: ObjectId, block: BlockId) -> Shown {
        self.objects.lock().get(&object).map_or(Shown::Below, |changed| changed.block(block))
    }

    /// Without blocks.
    pub(crate) fn object(&self, object: ObjectId) -> Option<Changed> {
        let objects = self.objects.lock();
        let changed = objects.get(&object)?;
        Some(Changed {
            head: changed.head.clone(),
            fresh: changed.fresh,
            spill: changed.spill.clone(),
            ..Changed::default()
        })
    }

    /// `Some(None)`: freed; `None`: not in this layer.
    pub(crate) fn head(&self, object: ObjectId) -> Option<Option<DnodeHead>> {
        self.objects.lock().get(&object).map(|changed| changed.head.clone())
    }

    pub(crate) fn touches(&self, object: ObjectId) -> bool {
        self.objects.lock().contains_key(&object)
    }

    /// Whether it changes blocks, and so their number.
    pub(crate) fn touches_blocks(&self, object: ObjectId) -> bool {
        self.objects.lock().get(&object).is_some_and(Changed::has_blocks)
    }

    pub(crate) fn has_head(&self, object: ObjectId) -> bool {
        self.objects.lock().get(&object).is_some_and(|changed| changed.head.is_some())
    }

    /// Whether it was read in this txg, or is absent.
    pub(crate) fn has_read(&self, object: ObjectId, indirect: u64) -> bool {
        self.read.lock().contains(&(object, indirect))
    }

    pub(crate) fn note_read(&self, object: ObjectId, indirect: u64) {
        self.read.lock().insert((object, indirect));
    }

    pub(crate) fn touched(&self, range: Range<ObjectId>) -> Vec<ObjectId> {
        self.objects.lock().range(range).map(|(&object, _)| object).collect()
    }

    /// The first changed block from `from` on.
    pub(crate) fn next_change(&self, object: ObjectId, from: BlockId) -> Option<BlockId> {
        let objects = self.objects.lock();
        let changed = objects.get(&object)?;
        if changed.fresh || changed.is_punched(from) {
            return Some(from);
        }
        let written = changed.blocks.range(from..).next().map(|(&block, _)| block);
        let cloned = changed.clones.range(from..).next().map(|(&block, _)| block);
        let punched = changed.punched.range(from.0..).next().map(|(&start, _)| BlockId(start));
        written.into_iter().chain(cloned).chain(punched).min()
    }

    /// End of the hole at `block`.
    pub(crate) fn hole_end(&self, object: ObjectId, block: BlockId) -> u64 {
        self.objects.lock().get(&object).map_or(block.0, |changed| changed.hole_end(block))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.lock().is_empty()
    }

    pub(crate) fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// Number of changes.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// `current` is its present head, for the txg's first change.
    pub(crate) fn change<T>(
        &self,
        object: ObjectId,
        current: Option<DnodeHead>,
        change: impl FnOnce(&mut Changed) -> T,
    ) -> T {
        let mut objects = self.objects.lock();
        let is_first = !objects.contains_key(&object);
        let head_before = if is_first { current.clone() } else { None };
        let changed =
            objects.entry(object).or_insert_with(|| Changed { head: current, ..Changed::default() });
        let before = if is_first { 0 } else { changed.bytes() };
        let result = change(changed);
        if is_first && changed.is_only(&head_before) {
            objects.remove(&object);
            return result;
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.dirty.replace(before, changed.bytes());
        result
    }

    /// Its changes, for the sync.
    pub fn freeze(&self) -> BTreeMap<ObjectId, Changed> {
        self.objects.lock().clone()
    }
}

impl Changed {
    pub(crate) fn block(&self, block: BlockId) -> Shown {
        match (self.blocks.get(&block), self.clones.get(&block)) {
            (Some(data), _) => Shown::Data(data.clone()),
            (None, Some(Foreign::Shared(bp))) => Shown::Stored(*bp),
            (None, Some(Foreign::Arrived(block))) => Shown::Arrived(block.clone()),
            (None, Some(Foreign::Rewritten { data, .. })) => Shown::Data(data.clone()),
            (None, None) if self.fresh || self.is_punched(block) => Shown::Hole,
            (None, None) => Shown::Below,
        }
    }

    pub(crate) fn put(&mut self, block: BlockId, data: Bytes) {
        self.index = None;
        self.clones.remove(&block);
        self.blocks.insert(block, data);
        self.reach(block);
    }

    pub(crate) fn share(&mut self, block: BlockId, bp: Blkptr) {
        self.blocks.remove(&block);
        self.clones.insert(block, Foreign::Shared(bp));
        self.reach(block);
    }

    pub(crate) fn arrive(&mut self, block: BlockId, stored: StoredBlock) {
        self.index = None;
        self.lacking_bytes += stored.bytes.len() as u64;
        self.blocks.remove(&block);
        self.clones.insert(block, Foreign::Arrived(stored));
        if block != SPILL_BLOCK {
            self.reach(block);
        }
    }

    /// The block is on disk, and in no layer.
    pub(crate) fn rewrite(&mut self, block: BlockId, data: Bytes, keeps_birth: bool) {
        self.lacking_bytes += data.len() as u64;
        self.clones.insert(block, Foreign::Rewritten { data, keeps_birth });
    }

    fn reach(&mut self, block: BlockId) {
        if let Some(head) = &mut self.head {
            head.max_block_id = head.max_block_id.max(block);
        }
    }

    /// Drops blocks of this txg and hides those below.
    pub(crate) fn punch(&mut self, range: Range<u64>) {
        self.index = None;
        if range.is_empty() {
            return;
        }
        forget(&mut self.blocks, &range);
        forget(&mut self.clones, &range);
        if self.fresh {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let touching: Vec<u64> =
            self.punched.range(..=end).filter(|(_, e)| **e >= start).map(|(&s, _)| s).collect();
        for key in touching {
            if let Some(other_end) = self.punched.remove(&key) {
                start = start.min(key);
                end = end.max(other_end);
            }
        }
        self.punched.insert(start, end);
    }

    fn hole_end(&self, block: BlockId) -> u64 {
        let punched = self.punched.range(..=block.0).next_back().map_or(block.0, |(_, &end)| end);
        let end = if self.fresh { u64::MAX } else { punched };
        let written = self.blocks.range(block..).next().map(|(&block, _)| block.0);
        let cloned = self.clones.range(block..).next().map(|(&block, _)| block.0);
        written.into_iter().chain(cloned).fold(end, u64::min)
    }

    fn is_punched(&self, block: BlockId) -> bool {
        self.punched.range(..=block.0).next_back().is_some_and(|(_, &end)| block.0 < end)
    }

    fn is_only(&self, head: &Option<DnodeHead>) -> bool {
        !self.fresh && !self.has_blocks() && self.head == *head
    }

    /// Whether it writes or frees blocks.
    fn has_blocks(&self) -> bool {
        let is_written = !self.blocks.is_empty() || !self.clones.is_empty() || self.spill.is_some();
        is_written || !self.punched.is_empty()
    }

    fn bytes(&self) -> u64 {
        // Approximate: few blocks change at a time, or large ones.
        let spill = self.spill.iter().flatten().map(Bytes::len).sum::<usize>() as u64;
        let block = self.head.as_ref().map_or(0, |head| u64::from(head.data_block_bytes));
        let clones = (self.clones.len() * BLKPTR_BYTES) as u64 + self.lacking_bytes;
        self.blocks.len() as u64 * block + clones + spill + 512
    }
}

fn forget<V>(blocks: &mut BTreeMap<BlockId, V>, range: &Range<u64>) {
    let gone: Vec<BlockId> =
        blocks.range(BlockId(range.start)..BlockId(range.end)).map(|(&block, _)| block).collect();
    gone.iter().for_each(|block| _ = blocks.remove(block));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_follow_one_another_in_a_block_are_a_run() {
        let mut run = WriteRun::default();
        let mut then = |block, part| run.goes_on_with(BlockId(block), part);
        assert_eq!(then(0, 0..10), 0..10);
        assert_eq!(then(0, 10..30), 0..30);
        assert_eq!(then(1, 30..40), 30..40);
        assert_eq!(then(1, 0..10), 0..10);
        assert_eq!(then(1, 20..30), 20..30);
    }

    #[test]
    fn punched_ranges_join_and_hide_what_is_below() {
        let mut changed = Changed::default();
        changed.punch(10..20);
        changed.punch(30..40);
        changed.punch(20..25);
        changed.punch(24..30);
        assert_eq!(changed.punched, BTreeMap::from([(10, 40)]));
        assert_eq!(changed.block(BlockId(9)), Shown::Below);
        assert_eq!(changed.block(BlockId(10)), Shown::Hole);
        assert_eq!(changed.block(BlockId(39)), Shown::Hole);
        assert_eq!(changed.block(BlockId(40)), Shown::Below);
        changed.blocks.insert(BlockId(12), Bytes::from_static(b"x"));
        assert_eq!(changed.block(BlockId(12)), Shown::Data(Bytes::from_static(b"x")));
        assert_eq!((changed.hole_end(BlockId(10)), changed.hole_end(BlockId(13))), (12, 40));
        changed.punch(0..13);
        assert_eq!(changed.block(BlockId(12)), Shown::Hole);
        assert_eq!(changed.punched, BTreeMap::from([(0, 40)]));
    }
}
