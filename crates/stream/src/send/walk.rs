//! The parts of a snapshot, in the order of its stream.
//!
//! Idea: a stream follows a walk over the snapshot's tree: a block of dnodes, then each dnode and all blocks
//! below it, then the next block of dnodes. Only blocks born after a txg are visited, and holes without a
//! birth. The walk is a stack of finished parts and of blocks to open. When such a block comes to the top,
//! all those near the top are read at once, in disk order.
//!
//! ```text
//!   top  object 7 | data | data | indirect block | object 8 | indirect block | block of dnodes ...
//!                                 '---------------------------'---------------'  read together
//! ```
//!
//! Memory: [`BATCH_BYTES`] of opened blocks for each level of the two stacked trees, and the content of the
//! top ones; 12 bytes for each opened block, so that none is opened twice.
//!
//! Source: OpenZFS `dmu_traverse.c` (`traverse_visitbp`), `dmu_send.c` (`send_cb`), `zio.c`
//! (`zbookmark_subtree_completed`).

use std::sync::Arc;

use bytes::Bytes;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr, BlkptrKind};
use cenote_format::dnode::{DNODE_MIN_BYTES, DNODES_PER_BLOCK, Dnode, ObjectType};
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_object::Objset;
use cenote_object::dead_tree::leaves_before;
use cenote_object::object::SPILL_BLOCK;
use cenote_object::objset::META_DNODE_OBJECT;
use cenote_object::trail::OpenedBlocks;
use cenote_pool::{Form, PoolError, ReadContext};
use cenote_tasks::RedactedRun;

use super::error::{Result, SendError};
use super::redaction::{has_objects, intersects, within};

/// Metadata read at once, as decoded bytes.
const BATCH_BYTES: u64 = 2 << 20;
/// Depth of the search for blocks to read with the first.
const LOOK_ITEMS: usize = 8_192;

/// The start of a walk: an object and its first block to visit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) object: ObjectId,
    pub(super) block: u64,
}

/// Blocks `first..end` of an object; an end of 0: to the last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) object: ObjectId,
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) block_bytes: u32,
}

/// A block with content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) object: ObjectId,
    pub(super) object_type: ObjectType,
    pub(super) id: BlockId,
    pub(super) bp: Blkptr,
}

/// A part of a snapshot.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// A block of dnodes, whose dnodes and holes follow.
    Dnodes { first: ObjectId, slots: u64, bp: Blkptr },
    /// An object.
    Object { object: ObjectId, dnode: Dnode },
    /// An unused object number.
    Free(ObjectId),
    /// A hole.
    Hole(Span),
    /// Redacted blocks.
    Redacted(Span),
    /// A block with content.
    Block(Block),
}

/// The object of a block.
#[derive(Debug, Clone, Copy)]
struct Owner {
    object: ObjectId,
    object_type: ObjectType,
    block_bytes: u32,
    max_block_id: u64,
    fanout_shift: u8,
}

impl Owner {
    fn of(object: ObjectId, dnode: &Dnode) -> Owner {
        Owner {
            object,
            object_type: dnode.object_type,
            block_bytes: dnode.data_block_bytes,
            max_block_id: dnode.max_block_id.0,
            fanout_shift: dnode.fanout_shift() as u8,
        }
    }

    fn is_meta(&self) -> bool {
        self.object == META_DNODE_OBJECT
    }

    /// The range of blocks below one; `None` if out of range.
    fn span(&self, level: u8, block: u64) -> Option<Span> {
        let shift = u32::from(level) * u32::from(self.fanout_shift);
        let blocks = 1u64.checked_shl(shift)?;
        let first = blocks.checked_mul(block)?;
        if !self.object_type.is_metadata() && first > self.max_block_id {
            return None;
        }
        let end = first.checked_add(blocks).unwrap_or(0);
        Some(Span { object: self.object, first, end, block_bytes: self.block_bytes })
    }
}

/// A block to open.
struct Node {
    owner: Owner,
    level: u8,
    block: u64,
    bp: Blkptr,
    /// The receiver has it, except for blocks left out below.
    is_old: bool,
}

enum Item {
    Part(Part),
    Closed(Node),
    Opened(Node, Result<Bytes, PoolError>),
}

/// A walk over an object set.
pub(super) struct Walk {
    objset: Objset,
    born_after: Txg,
    start: Start,
    /// Dnodes are needed as stored: with encrypted bonuses.
    is_raw: bool,
    /// All blocks must be encrypted.
    is_encrypted: bool,
    /// The next item is last.
    stack: Vec<Item>,
    opened: OpenedBlocks,
    /// Blocks that the receiver lacks, though older: an earlier send left them out.
    lacking: Arc<[RedactedRun]>,
}

impl Walk {
    /// A walk over blocks born after a txg. `is_encrypted`: the object set is.
    pub(super) fn new(
        objset: &Objset,
        born_after: Txg,
        start: Start,
        is_encrypted: bool,
        is_raw: bool,
    ) -> Result<Walk> {
        Walk::with(objset, born_after, start, is_encrypted, is_raw, Arc::default())
    }

    /// The same, also over older blocks that the receiver lacks.
    pub(super) fn with(
        objset: &Objset,
        born_after: Txg,
        start: Start,
        is_encrypted: bool,
        is_raw: bool,
        lacking: Arc<[RedactedRun]>,
    ) -> Result<Walk> {
        let (objset, opened) = (objset.clone(), OpenedBlocks::default());
        let stack = Vec::new();
        let mut walk = Walk { objset, born_after, start, is_raw, is_encrypted, stack, opened, lacking };
        let is_old = walk.objset.bp().logical_birth() <= born_after;
        if let Some(meta) = walk.objset.meta().filter(|_| !is_old || !walk.lacking.is_empty()) {
            let mut items = Vec::new();
            walk.enter(META_DNODE_OBJECT, meta.dnode(), is_old, &mut items)?;
            walk.push(items);
        }
        Ok(walk)
    }

    /// The next part; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Part>> {
        loop {
            match self.stack.pop() {
                None => return Ok(None),
                Some(Item::Part(part)) => return Ok(Some(part)),
                Some(Item::Opened(node, block)) => {
                    let mut items = Vec::new();
                    match node.level {
                        0 => self.expand_dnodes(&node, &block?, &mut items)?,
                        _ => self.expand_pointers(&node, &block?, &mut items)?,
                    }
                    self.push(items);
                }
                Some(closed @ Item::Closed(_)) => {
                    self.stack.push(closed);
                    self.open().await;
                }
            }
        }
    }

    fn push(&mut self, items: Vec<Item>) {
        self.stack.extend(items.into_iter().rev());
    }

    /// Reads the blocks near the top.
    async fn open(&mut self) {
        let (mut places, mut requests, mut bytes) = (Vec::new(), Vec::new(), 0);
        let lowest = self.stack.len().saturating_sub(LOOK_ITEMS);
        for (at, item) in self.stack.iter().enumerate().skip(lowest).rev() {
            let Item::Closed(node) = item else { continue };
            if bytes >= BATCH_BYTES {
                break;
            }
            bytes += node.bp.lsize().0;
            places.push(at);
            requests.push((node.bp, self.context(node)));
        }
        let blocks = self.objset.pool().read_many(requests).await;
        for (at, block) in places.into_iter().zip(blocks) {
            let Some(item) = self.stack.get_mut(at) else { continue };
            let closed = std::mem::replace(item, Item::Part(Part::Free(ObjectId(0))));
            *item = match closed {
                Item::Closed(node) => Item::Opened(node, block),
                other => other,
            };
        }
    }

    fn context(&self, node: &Node) -> ReadContext {
        let context = self.objset.context(node.owner.object, node.level, BlockId(node.block));
        let form = if self.is_raw && node.bp.is_encrypted() { Form::Stored } else { Form::Clear };
        ReadContext { form, ..context }
    }

    /// The pointers of a dnode, with that of its spill block.
    fn enter(&mut self, object: ObjectId, dnode: &Dnode, is_old: bool, items: &mut Vec<Item>) -> Result<()> {
        let owner = Owner::of(object, dnode);
        let spill = dnode.spill().filter(|bp| !bp.is_hole() && !is_old);
        if let Some(bp) = &spill {
            self.check_crypt(&owner, bp)?;
        }
        let spill_block = |bp: Blkptr| {
            let object_type = dnode.object_type;
            Item::Part(Part::Block(Block { object, object_type, id: SPILL_BLOCK, bp }))
        };
        // An unchanged spill block comes first, for older receivers that may have lost it.
        let (old, new): (Vec<_>, Vec<_>) =
            spill.into_iter().partition(|bp| bp.logical_birth() <= self.born_after);
        items.extend(old.into_iter().map(spill_block));
        for (block, bp) in dnode.blkptrs().enumerate() {
            self.visit(&owner, dnode.levels - 1, block as u64, bp, is_old, items)?;
        }
        items.extend(new.into_iter().map(spill_block));
        Ok(())
    }

    fn visit(
        &mut self,
        owner: &Owner,
        level: u8,
        block: u64,
        bp: Blkptr,
        is_below_old: bool,
        items: &mut Vec<Item>,
    ) -> Result<()> {
        // A hole without a birth may be as old as its object, or new.
        let is_old = is_below_old || bp.logical_birth().0 != 0 && bp.logical_birth() <= self.born_after;
        if is_old && !self.lacks(owner, level, block) || self.is_before_start(owner, level, block) {
            return Ok(());
        }
        let span = owner.span(level, block);
        match (bp.kind(), span) {
            (BlkptrKind::Hole, span) if is_old => {
                let span = span.filter(|_| !owner.is_meta());
                let Some(span) = span else { return Ok(()) };
                let end = if span.end == 0 { u64::MAX } else { span.end };
                let lacking = within(&self.lacking, owner.object, span.first, end);
                items.extend(lacking.map(|(first, end)| Item::Part(Part::Hole(Span { first, end, ..span }))));
                return Ok(());
            }
            (BlkptrKind::Hole, span) => {
                items.extend(span.map(|span| Item::Part(Part::Hole(span))));
                return Ok(());
            }
            (_, None) => return Err(self.damaged(owner, "has a block beyond its end")),
            (BlkptrKind::Redacted, Some(span)) => {
                items.push(Item::Part(Part::Redacted(span)));
                return Ok(());
            }
            (BlkptrKind::Normal | BlkptrKind::Embedded, Some(_)) => {}
        }
        self.check_crypt(owner, &bp)?;
        if bp.level() != level {
            return Err(self.damaged(owner, "has a pointer to a block of another level"));
        }
        if level == 0 && !owner.is_meta() {
            let (object, object_type) = (owner.object, owner.object_type);
            items.push(Item::Part(Part::Block(Block { object, object_type, id: BlockId(block), bp })));
            return Ok(());
        }
        if !self.opened.first(&bp) {
            return Err(self.damaged(owner, "has two pointers to one block of metadata"));
        }
        items.push(Item::Closed(Node { owner: *owner, level, block, bp, is_old }));
        Ok(())
    }

    /// Whether the receiver lacks a block at or below this one, though it is old.
    fn lacks(&self, owner: &Owner, level: u8, block: u64) -> bool {
        if self.lacking.is_empty() {
            return false;
        }
        let first = leaves_before(block, level, owner.fanout_shift);
        let end = leaves_before(block.saturating_add(1), level, owner.fanout_shift);
        match owner.is_meta() {
            true => {
                let slots = u64::from(owner.block_bytes) / DNODE_MIN_BYTES as u64;
                has_objects(&self.lacking, first.saturating_mul(slots), end.saturating_mul(slots))
            }
            false => intersects(&self.lacking, owner.object, first, end),
        }
    }

    /// Whether all blocks below were sent before.
    fn is_before_start(&self, owner: &Owner, level: u8, block: u64) -> bool {
        let end = leaves_before(block.saturating_add(1), level, owner.fanout_shift);
        match owner.object {
            META_DNODE_OBJECT => end.saturating_mul(DNODES_PER_BLOCK) <= self.start.object.0,
            object => object == self.start.object && end <= self.start.block,
        }
    }

    fn expand_pointers(&mut self, node: &Node, bytes: &[u8], items: &mut Vec<Item>) -> Result<()> {
        let first = node.block.checked_shl(node.owner.fanout_shift.into()).unwrap_or(u64::MAX);
        for (i, raw) in bytes.chunks_exact(BLKPTR_BYTES).enumerate() {
            let bp = Blkptr::decode(raw, node.bp.endian())
                .map_err(|source| self.objset.format(node.owner.object, source))?;
            let block = first.saturating_add(i as u64);
            self.visit(&node.owner, node.level - 1, block, bp, node.is_old, items)?;
        }
        Ok(())
    }

    fn expand_dnodes(&mut self, node: &Node, bytes: &Bytes, items: &mut Vec<Item>) -> Result<()> {
        let slots = (bytes.len() / DNODE_MIN_BYTES) as u64;
        let first = node.block.saturating_mul(slots);
        if !node.is_old {
            items.push(Item::Part(Part::Dnodes { first: ObjectId(first), slots, bp: node.bp }));
        }
        let mut slot = 0;
        while slot < slots {
            let object = ObjectId(first.saturating_add(slot));
            let raw = bytes.slice(slot as usize * DNODE_MIN_BYTES..);
            let dnode =
                Dnode::decode(raw, node.bp.endian()).map_err(|source| self.objset.format(object, source))?;
            slot += dnode.as_ref().map_or(1, |dnode| u64::from(dnode.slots));
            match dnode {
                // Slot 0 belongs to the object of dnodes, whose dnode is elsewhere.
                _ if object == META_DNODE_OBJECT || object < self.start.object => {}
                None if node.is_old => {}
                Some(dnode) if node.is_old => self.enter(object, &dnode, true, items)?,
                None => items.push(Item::Part(Part::Free(object))),
                Some(dnode) => {
                    items.push(Item::Part(Part::Object { object, dnode: dnode.clone() }));
                    self.enter(object, &dnode, false, items)?;
                }
            }
        }
        Ok(())
    }

    /// An unencrypted block in an encrypted object set is not the owner's.
    fn check_crypt(&self, owner: &Owner, bp: &Blkptr) -> Result<()> {
        match self.is_encrypted && !bp.uses_crypt() {
            true => Err(self.damaged(owner, "has a block that is not encrypted as its dataset is")),
            false => Ok(()),
        }
    }

    fn damaged(&self, owner: &Owner, why: &'static str) -> SendError {
        self.objset.damaged(owner.object, why).into()
    }
}
