//! Trees to free, from the leaves up: at once, or a part in each txg.
//!
//! ```text
//!   object set (last) -> meta dnode's tree -> block of dnodes -> each object's tree, the block -> ...
//!                                                                     ^ mark: the leaf that comes next
//! ```
//!
//! Idea: in that order all freed blocks lie before the mark, and all others can still be reached. Freed
//! blocks may have been reused and must not be read again.
//!
//! Memory: a block's pointers for each level of the tree, and the blocks read ahead.
//!
//! Source: OpenZFS `dmu_traverse.c` (`traverse_dataset_destroyed`, with `TRAVERSE_POST`), `bptree.c`, `zio.c`
//! (`zbookmark_subtree_completed`).

use std::collections::VecDeque;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr, BlkptrKind};
use cenote_format::bpobj::BptreeEntry;
use cenote_format::dnode::{DNODE_MIN_BYTES, DNODES_PER_BLOCK, Dnode};
use cenote_format::objset::ObjsetPhys;
use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
use cenote_pool::{Pool, PoolError, ReadContext, Zbookmark};
use futures::future::join_all;

use crate::error::{DatasetError, Result};
use crate::object::SPILL_BLOCK;
use crate::objset::{META_DNODE_OBJECT, dnodes_of_block, objects_of_head};
use crate::trail::OpenedBlocks;

/// Blocks read ahead.
const READ_AHEAD: usize = 32;

/// Progress of freeing a tree. Blocks of dnodes follow the blocks of their objects; the object set is last.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// Lower objects are gone with all their blocks.
    object: u64,
    /// Lower blocks of that object are gone.
    block: u64,
    /// Lower blocks of dnodes are gone.
    dnode_block: u64,
}

impl Mark {
    /// From the bookmark of the next leaf: object set, object, level (0), block.
    pub fn of(resume: [u64; 4]) -> Option<Mark> {
        let [_, object, _, block] = resume;
        if resume == [0; 4] {
            return None;
        }
        if ObjectId(object) == META_DNODE_OBJECT {
            let object = block.saturating_add(1).saturating_mul(DNODES_PER_BLOCK);
            return Some(Mark { object, block: 0, dnode_block: block });
        }
        Some(Mark { object, block, dnode_block: object / DNODES_PER_BLOCK })
    }

    /// `fanout_shift` is that of its object.
    pub fn is_past(&self, place: &Zbookmark, fanout_shift: u8) -> bool {
        let end = leaves_before(place.block.0.saturating_add(1), place.level, fanout_shift);
        match place.object {
            META_DNODE_OBJECT => end <= self.dnode_block,
            // Accounting objects have the highest numbers and are last.
            object if object.0 != self.object => object.0 < self.object,
            _ => place.block != SPILL_BLOCK && end <= self.block,
        }
    }
}

/// Leaves below the first `blocks` blocks of a level.
pub fn leaves_before(blocks: u64, level: u8, fanout_shift: u8) -> u64 {
    let shift = u32::from(fanout_shift) * u32::from(level);
    blocks.saturating_mul(1u64.checked_shl(shift).unwrap_or(u64::MAX))
}

/// Content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Objset,
    Dnodes,
    Pointers,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    bp: Blkptr,
    place: Zbookmark,
    holds: Holds,
    fanout_shift: u8,
}

/// A block whose children are being freed.
struct Opened {
    own: Option<Node>,
    children: std::vec::IntoIter<Node>,
    /// Content of the next children that have any.
    ahead: VecDeque<Result<Bytes, PoolError>>,
}

impl Opened {
    fn new(own: Option<Node>, children: Vec<Node>) -> Opened {
        Opened { own, children: children.into_iter(), ahead: VecDeque::new() }
    }
}

/// The rest of a tree, in the order of frees.
pub struct DeadTree {
    pool: Pool,
    born_after: Txg,
    mark: Option<Mark>,
    opened: Vec<Opened>,
    /// The block returned last, or that could not be opened; and whether all below was returned before.
    at: Option<(Node, bool)>,
    met: OpenedBlocks,
}

impl DeadTree {
    /// The rest of a tree; `dataset` is for errors.
    pub fn new(pool: &Pool, dataset: DatasetId, entry: &BptreeEntry) -> DeadTree {
        let place = Zbookmark { dataset, ..Zbookmark::default() };
        let root = Node { bp: entry.bp, place, holds: Holds::Objset, fanout_shift: 0 };
        DeadTree {
            pool: pool.clone(),
            born_after: entry.birth_txg,
            mark: Mark::of(entry.resume),
            opened: vec![Opened::new(None, vec![root])],
            at: None,
            met: OpenedBlocks::default(),
        }
    }

    /// The next block to free; `None` after the last.
    ///
    /// # Errors
    /// Unreadable block with children: the walk ends.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<Blkptr>> {
        loop {
            let Some(opened) = self.opened.last_mut() else { return Ok(None) };
            let Some(child) = opened.children.next() else {
                let own = self.opened.pop().and_then(|opened| opened.own);
                self.at = own.map(|node| (node, true));
                match own {
                    Some(node) => return Ok(Some(node.bp)),
                    None => continue,
                }
            };
            if self.is_gone(&child) {
                continue;
            }
            self.at = Some((child, false));
            if !child.is_opened() {
                return Ok(Some(child.bp));
            }
            if child.bp.level() != child.place.level || !self.met.first(&child.bp) {
                let why = "a block of the tree leads to another place of it".into();
                let Zbookmark { dataset, object, .. } = child.place;
                return Err(DatasetError::Damaged { dataset, object, why });
            }
            let block = self.read(child).await?;
            self.opened.push(Opened::new(Some(child), child.children(&block)?));
        }
    }

    /// Whether the walk may stop before the block returned last, and resume in a later txg.
    pub fn may_stop(&self) -> bool {
        self.at.is_some_and(|(node, _)| node.place.level == 0 && node.holds != Holds::Objset)
    }

    /// Where to resume if the block returned last is not freed, or could not be opened.
    pub fn resume(&self) -> [u64; 4] {
        let Some((Node { place, holds, fanout_shift, .. }, below_is_gone)) = self.at else { return [0; 4] };
        let leaf = match place.block {
            SPILL_BLOCK => SPILL_BLOCK.0,
            block => leaves_before(block.0, place.level, fanout_shift),
        };
        match place.object {
            _ if holds == Holds::Objset => [0; 4],
            META_DNODE_OBJECT if below_is_gone => [u64::MAX, 0, 0, leaf],
            // Its objects are still there. None has number 0.
            META_DNODE_OBJECT => [u64::MAX, leaf.saturating_mul(DNODES_PER_BLOCK).max(1), 0, 0],
            object => [u64::MAX, object.0, 0, leaf],
        }
    }

    fn is_gone(&self, node: &Node) -> bool {
        node.bp.allocation_birth() <= self.born_after
            || matches!(node.bp.kind(), BlkptrKind::Hole | BlkptrKind::Redacted)
            || (node.holds != Holds::Objset
                && self.mark.is_some_and(|mark| mark.is_past(&node.place, node.fanout_shift)))
    }

    async fn read(&mut self, child: Node) -> Result<Bytes> {
        let Some(opened) = self.opened.last() else { return Ok(Bytes::new()) };
        if opened.ahead.is_empty() {
            let next =
                opened.children.as_slice().iter().filter(|node| node.is_opened() && !self.is_gone(node));
            let nodes: Vec<Node> = std::iter::once(&child).chain(next).take(READ_AHEAD).copied().collect();
            let read = join_all(nodes.iter().map(|node| read_metadata(&self.pool, node))).await;
            if let Some(opened) = self.opened.last_mut() {
                opened.ahead.extend(read);
            }
        }
        let block = self.opened.last_mut().and_then(|opened| opened.ahead.pop_front());
        block.unwrap_or_else(|| Ok(Bytes::new())).map_err(DatasetError::from)
    }
}

/// No key is needed: a block of dnodes has only its bonuses encrypted, and is never compressed.
async fn read_metadata(pool: &Pool, node: &Node) -> Result<Bytes, PoolError> {
    let context = ReadContext::new(node.place);
    if !node.bp.is_encrypted() {
        return pool.read(&node.bp, &context).await;
    }
    if node.bp.compression_id() != Compression::Off as u8 {
        let why = "an encrypted block of dnodes claims to be compressed".into();
        return Err(PoolError::BadPointer { place: node.place, why });
    }
    pool.as_stored().read(&node.bp, &context).await
}

impl Node {
    fn is_opened(&self) -> bool {
        self.holds != Holds::Nothing && !self.bp.is_embedded()
    }

    fn children(&self, block: &Bytes) -> Result<Vec<Node>> {
        let mut children = Vec::new();
        let endian = self.bp.endian();
        let damaged =
            |source| DatasetError::Format { dataset: self.place.dataset, object: self.place.object, source };
        match self.holds {
            Holds::Nothing => {}
            Holds::Objset => {
                let set = ObjsetPhys::decode(block, endian).map_err(damaged)?;
                for (object, dnode) in objects_of_head(set) {
                    self.add_object(object, &dnode, &mut children);
                }
            }
            Holds::Dnodes => {
                let first = self.place.block.0.saturating_mul((block.len() / DNODE_MIN_BYTES) as u64);
                for (slot, dnode) in dnodes_of_block(block, endian) {
                    let object = ObjectId(first.saturating_add(slot as u64));
                    self.add_object(object, &dnode.map_err(damaged)?, &mut children);
                }
            }
            Holds::Pointers => {
                let first = leaves_before(self.place.block.0, 1, self.fanout_shift);
                for (i, raw) in block.chunks_exact(BLKPTR_BYTES).enumerate() {
                    let place = Zbookmark {
                        level: self.place.level.saturating_sub(1),
                        block: BlockId(first.saturating_add(i as u64)),
                        ..self.place
                    };
                    let bp = Blkptr::decode(raw, endian).map_err(damaged)?;
                    children.push(Node::of(bp, place, self.fanout_shift));
                }
            }
        }
        Ok(children)
    }

    fn add_object(&self, object: ObjectId, dnode: &Dnode, children: &mut Vec<Node>) {
        let fanout_shift = dnode.fanout_shift() as u8;
        let level = dnode.levels.saturating_sub(1);
        let place = Zbookmark { dataset: self.place.dataset, object, level, block: BlockId(0) };
        for (i, bp) in dnode.blkptrs().enumerate() {
            children.push(Node::of(bp, Zbookmark { block: BlockId(i as u64), ..place }, fanout_shift));
        }
        if let Some(bp) = dnode.spill() {
            let place = Zbookmark { level: 0, block: SPILL_BLOCK, ..place };
            children.push(Node { bp, place, holds: Holds::Nothing, fanout_shift });
        }
    }

    fn of(bp: Blkptr, place: Zbookmark, fanout_shift: u8) -> Node {
        let holds = match place.level {
            0 if place.object == META_DNODE_OBJECT => Holds::Dnodes,
            0 => Holds::Nothing,
            _ => Holds::Pointers,
        };
        Node { bp, place, holds, fanout_shift }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(object: ObjectId, level: u8, block: u64) -> Zbookmark {
        Zbookmark { object, level, block: BlockId(block), ..Zbookmark::default() }
    }

    #[test]
    fn a_mark_in_an_object_leaves_its_block_of_dnodes() {
        let mark = Mark::of([u64::MAX, 70, 0, 1500]).unwrap();
        let gone = |object, level, block| mark.is_past(&place(object, level, block), 10);
        assert!(gone(ObjectId(69), 0, 0) && gone(ObjectId(69), 2, 0) && !gone(ObjectId(71), 0, 0));
        assert!(gone(ObjectId(70), 0, 1499) && !gone(ObjectId(70), 0, 1500));
        assert!(gone(ObjectId(70), 1, 0) && !gone(ObjectId(70), 1, 1) && !gone(ObjectId(70), 2, 0));
        assert!(!gone(ObjectId(70), 0, SPILL_BLOCK.0));
        assert!(
            gone(META_DNODE_OBJECT, 0, 1) && !gone(META_DNODE_OBJECT, 0, 2) && !gone(META_DNODE_OBJECT, 1, 0)
        );
    }

    #[test]
    fn a_mark_at_a_block_of_dnodes_leaves_only_the_block() {
        let mark = Mark::of([u64::MAX, 0, 0, 2]).unwrap();
        let gone = |object, level, block| mark.is_past(&place(object, level, block), 10);
        assert!(gone(ObjectId(95), 0, 0) && !gone(ObjectId(96), 0, 0));
        assert!(gone(META_DNODE_OBJECT, 0, 1) && !gone(META_DNODE_OBJECT, 0, 2));
        assert!(Mark::of([0; 4]).is_none());
    }
}
