//! All block pointers of an object, level by level from the top, in bounded memory.
//!
//! Idea: a stack holds indirect blocks to open. Each batch opens up to `BATCH` from its top (the deepest and
//! leftmost, so the stack stays short), reads them together and yields their pointers, without holes. An
//! indirect block met twice is damage and not opened again, so a cyclic tree ends. Reads bypass the cache,
//! which a full walk would only flush.
//!
//! A pointer has the newest birth of its subtree, so [`Walk::born_after`] skips old subtrees.

use cenote_boxed::boxed;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::units::{BlockId, Txg};
pub use cenote_pool::SPILL_BLOCK;

use crate::error::DatasetError;
use crate::object::Object;
use crate::trail::OpenedBlocks;

/// Indirect blocks opened at once: 64 of 128 KiB are 8 MiB.
const BATCH: usize = 64;

/// An item of a walk.
#[derive(Debug)]
pub enum Visited {
    /// A block pointer, not a hole.
    Block {
        /// 0 for data, higher for indirect blocks.
        level: u8,
        /// Its number; [`SPILL_BLOCK`] for the spill block.
        block: BlockId,
        /// The pointer.
        bp: Blkptr,
    },
    /// A wrong pointer, or an unreadable indirect block (yielded before as `Block`).
    Unreadable {
        /// Its level.
        level: u8,
        /// Its number.
        block: BlockId,
        /// The error.
        error: DatasetError,
    },
}

/// A walk over an object's block pointers.
#[derive(Debug)]
pub struct Walk {
    object: Object,
    pending: Vec<(u8, BlockId, Blkptr)>,
    born_after: Txg,
    started: bool,
    opened: OpenedBlocks,
}

impl Walk {
    pub(super) fn new(object: Object) -> Walk {
        let (pending, opened) = (Vec::new(), OpenedBlocks::default());
        Walk { object, pending, born_after: Txg(0), started: false, opened }
    }

    /// Skips older blocks.
    pub fn born_after(mut self, txg: Txg) -> Walk {
        self.born_after = txg;
        self
    }

    /// Parents come before children; `None` at the end.
    #[boxed]
    pub async fn next_batch(&mut self) -> Option<Vec<Visited>> {
        let mut visited = Vec::new();
        if !std::mem::replace(&mut self.started, true) {
            self.start(&mut visited);
            return Some(visited);
        }
        if self.pending.is_empty() {
            return None;
        }
        let batch = self.pending.split_off(self.pending.len().saturating_sub(BATCH));
        let context = |level, block| self.object.objset().context(self.object.id(), level, block);
        let requests = batch.iter().rev().map(|(level, block, bp)| (*bp, context(*level, *block))).collect();
        let results = self.object.objset().pool().read_many(requests).await;
        let mut opened = Vec::new();
        for ((level, block, bp), result) in batch.into_iter().rev().zip(results) {
            match result {
                Err(error) => visited.push(Visited::Unreadable { level, block, error: error.into() }),
                Ok(bytes) => {
                    let children = bytes.chunks_exact(BLKPTR_BYTES).map(|c| Blkptr::decode(c, bp.endian()));
                    let first = block.0.checked_shl(self.object.dnode().fanout_shift()).unwrap_or(u64::MAX);
                    for (i, child) in children.flatten().enumerate() {
                        let block = BlockId(first.saturating_add(i as u64));
                        self.visit(level - 1, block, child, &mut visited, &mut opened);
                    }
                }
            }
        }
        self.pending.extend(opened.into_iter().rev());
        Some(visited)
    }

    fn start(&mut self, visited: &mut Vec<Visited>) {
        let dnode = self.object.dnode().clone();
        let mut opened = Vec::new();
        for (i, bp) in dnode.blkptrs().enumerate() {
            self.visit(dnode.levels - 1, BlockId(i as u64), bp, visited, &mut opened);
        }
        if let Some(bp) = dnode.spill() {
            self.visit(0, SPILL_BLOCK, bp, visited, &mut opened);
        }
        self.pending.extend(opened.into_iter().rev());
    }

    fn visit(
        &mut self,
        level: u8,
        block: BlockId,
        bp: Blkptr,
        visited: &mut Vec<Visited>,
        opened: &mut Vec<(u8, BlockId, Blkptr)>,
    ) {
        if bp.is_hole() || bp.allocation_birth() <= self.born_after {
            return;
        }
        if bp.level() != level || (level > 0 && !self.opened.first(&bp)) {
            let error = self.object.damaged("a block of its tree leads to another place of it");
            visited.push(Visited::Unreadable { level, block, error });
            return;
        }
        visited.push(Visited::Block { level, block, bp });
        if level > 0 {
            opened.push((level, block, bp));
        }
    }
}
