//! Traversal of every live block pointer of a pool, each block once.
//!
//! Idea: all metadata form one tree: object sets contain dnodes, dnodes and indirect blocks contain pointers,
//! and dataset objects in the meta object set (MOS) lead to further object sets. So one stack holds all
//! metadata blocks to open. Each step reads a batch from its top in disk order and yields every pointer
//! found; only those to metadata go on the stack.
//!
//! ```text
//!   uberblock --> MOS head --> meta dnode's tree --> dnodes --+--> indirect blocks --> pointers
//!                                                             +--> datasets: head --> meta dnode's tree ...
//! ```
//!
//! Once: a block belongs to the oldest snapshot with it. A dataset is walked only for blocks born after its
//! previous snapshot (a clone's is its origin). A pointer carries the newest birth below it, so older
//! subtrees are not even opened.
//!
//! Memory: the stack, which holds at most a batch's children per level ([`BATCH_CHILDREN`]), plus 12 bytes
//! for each opened block of pointers or dnodes: none is opened twice, so cyclic trees terminate.
//!
//! Encrypted datasets need no key: object sets and indirect blocks are plaintext, and in dnodes only the
//! bonus is encrypted.
//!
//! Source: OpenZFS `dmu_traverse.c` (`traverse_pool`), for the scope of a visit.

mod log;
mod pending;
mod position;

use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::FormatError;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr, BlkptrKind};
use cenote_format::bpobj::BptreeEntry;
use cenote_format::dnode::{DNODE_MIN_BYTES, Dnode, ObjectType};
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::objset::ObjsetPhys;
use cenote_format::units::{BlockId, DatasetId, ObjectId, Txg};
use cenote_format::words::Phys;
use cenote_object::dead_tree::Mark;
use cenote_object::object::SPILL_BLOCK;
use cenote_object::objset::{META_DNODE_OBJECT, dnodes_of_block, objects_of_head};
use cenote_object::trail::OpenedBlocks;
use cenote_pool::{Pool, PoolError, ReadContext, Zbookmark};

pub use log::{Log, LogBlocks};
pub use pending::{listed_blocks, pending_blocks};
pub use position::Position;

/// Metadata blocks opened per batch.
const BATCH_BLOCKS: usize = 256;
/// Approximate metadata blocks that a batch adds to the stack: at 200 bytes each, 6 MB per level.
const BATCH_CHILDREN: usize = 32 << 10;

/// Stands for the dataset of blocks without one, `ZB_DESTROYED_OBJSET`.
pub const DESTROYED: DatasetId = DatasetId(u64::MAX);

/// Traversal result.
#[derive(Debug)]
pub enum Met {
    /// Pointer other than a hole.
    Block {
        /// Pointer.
        bp: Blkptr,
        /// Bookmark.
        place: Zbookmark,
    },
    /// Intent log.
    Log(Log),
    /// A malformed block, or part of one, despite a valid checksum; nothing below it is visited.
    Nonsense {
        /// Bookmark.
        place: Zbookmark,
        /// Defect.
        why: String,
    },
}

struct Node {
    bp: Blkptr,
    place: Zbookmark,
    born_after: Txg,
    holds: Holds,
    fanout_shift: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Object set. `head`: not a snapshot, so its intent log counts.
    Objset { head: bool },
    /// `1 << fanout_shift` pointers per block.
    Pointers { fanout_shift: u8 },
    /// Dnodes.
    Dnodes,
}

/// Traversal.
pub struct Tree {
    pool: Pool,
    born_after: Txg,
    /// Blocks to open, next one last, in visiting order ([`Position`]).
    pending: Vec<Node>,
    scope: Scope,
    opened: OpenedBlocks,
}

#[derive(Clone, Copy)]
enum Scope {
    /// Everything below the root, including datasets.
    All,
    /// One object set, from a position on.
    Objset(Position),
    /// Rest of a tree being freed.
    Left(Option<Mark>),
}

/// Object set to traverse.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Dataset; 0 means the MOS alone, without other datasets.
    pub dataset: DatasetId,
    /// Root block.
    pub root: Blkptr,
    /// Whether it has an intent log.
    pub head: bool,
    /// Visit only blocks born later.
    pub born_after: Txg,
    /// Starting position.
    pub from: Position,
}

impl Tree {
    /// Starts at a root: the uberblock's pointer for a whole pool.
    pub fn new(pool: &Pool, root: Blkptr, met: &mut Vec<Met>) -> Tree {
        Tree::born_after(pool, root, Txg(0), met)
    }

    /// Like [`Tree::new`], for blocks born after a txg.
    pub fn born_after(pool: &Pool, root: Blkptr, txg: Txg, met: &mut Vec<Met>) -> Tree {
        let mut tree = Tree { born_after: txg, ..Tree::within(pool, Scope::All) };
        tree.visit(root, Zbookmark::default(), txg, Some(Holds::Objset { head: false }), met);
        tree
    }

    /// Resumes a destroyed dataset's tree, which is freed from the leaves, in order, up to its mark.
    pub fn resume(pool: &Pool, entry: &BptreeEntry, met: &mut Vec<Met>) -> Tree {
        let mut tree = Tree::within(pool, Scope::Left(Mark::of(entry.resume)));
        let place = Zbookmark { dataset: DESTROYED, ..Zbookmark::default() };
        tree.visit(entry.bp, place, entry.birth_txg, Some(Holds::Objset { head: false }), met);
        tree
    }

    /// Starts a traversal of one object set.
    pub fn of_objset(pool: &Pool, part: &Part, met: &mut Vec<Met>) -> Tree {
        let mut tree = Tree::within(pool, Scope::Objset(part.from));
        let place = Zbookmark { dataset: part.dataset, ..Zbookmark::default() };
        tree.enter(part.root, place, part.born_after, part.head, met);
        tree
    }

    fn within(pool: &Pool, scope: Scope) -> Tree {
        let opened = OpenedBlocks::default();
        Tree { pool: pool.clone(), born_after: Txg(0), pending: Vec::new(), scope, opened }
    }

    /// Position of the rest of an object set; `None` at the end.
    pub fn position(&self) -> Option<Position> {
        let next = self.pending.last()?;
        let is_root = matches!(next.holds, Holds::Objset { .. });
        match self.scope {
            Scope::Objset(from) if is_root => Some(from),
            _ => Some(Position::at(&next.place, next.fanout_shift)),
        }
    }

    /// Opens a batch of blocks and appends their content to `met`. Returns `false` at the end.
    pub async fn step(&mut self, met: &mut Vec<Met>) -> bool {
        let batch = self.take_batch();
        if batch.is_empty() {
            return false;
        }
        // A block's children take its place: blocks are read in disk order but expanded in visiting order.
        let blocks = self.read(&batch).await;
        let mut below = Vec::with_capacity(batch.len());
        for (node, result) in batch.into_iter().zip(blocks) {
            let rest = self.pending.len();
            match result {
                Ok(block) => self.expand(&node, &block, met),
                // Verification reports this block when it reads all copies.
                Err(error) if error.is_damage() => {}
                Err(error) => met.push(Met::Nonsense { place: node.place, why: error.to_string() }),
            }
            below.push(self.pending.split_off(rest));
        }
        self.pending.extend(below.into_iter().rev().flat_map(|nodes| nodes.into_iter().rev()));
        true
    }

    async fn read(&self, batch: &[Node]) -> Vec<Result<Bytes, PoolError>> {
        let context = |node: &Node| ReadContext::new(node.place);
        let (sealed, open): (Vec<&Node>, Vec<&Node>) = batch.iter().partition(|node| node.bp.is_encrypted());
        let requests = open.iter().map(|node| (node.bp, context(node))).collect();
        let mut open = self.pool.read_many(requests).await.into_iter();
        let sealed = sealed.iter().map(|node| {
            let ctx = context(node);
            async move { read_sealed(&self.pool, &node.bp, &ctx).await }
        });
        let mut sealed = futures::future::join_all(sealed).await.into_iter();
        let one = |node: &Node| if node.bp.is_encrypted() { sealed.next() } else { open.next() };
        batch.iter().filter_map(one).collect()
    }

    fn take_batch(&mut self) -> Vec<Node> {
        let mut children = 0;
        let mut batch = Vec::new();
        while batch.len() < BATCH_BLOCKS && children < BATCH_CHILDREN {
            let Some(node) = self.pending.pop() else { break };
            children += node.children();
            batch.push(node);
        }
        batch
    }

    fn expand(&mut self, node: &Node, block: &Bytes, met: &mut Vec<Met>) {
        match node.holds {
            Holds::Objset { head } => self.expand_objset(node, head, block, met),
            Holds::Pointers { fanout_shift } => self.expand_pointers(node, fanout_shift, block, met),
            Holds::Dnodes => self.expand_dnodes(node, block, met),
        }
    }

    fn expand_objset(&mut self, node: &Node, head: bool, block: &Bytes, met: &mut Vec<Met>) {
        let set = match ObjsetPhys::decode(block, node.bp.endian()) {
            Ok(set) => set,
            Err(error) => return met.push(nonsense(node.place, &error)),
        };
        if head && !set.zil_header.log.is_hole() {
            met.push(Met::Log(Log { dataset: node.place.dataset, header: set.zil_header }));
        }
        for (object, dnode) in objects_of_head(set) {
            self.expand_dnode(node, object, &dnode, met);
        }
    }

    fn expand_pointers(&mut self, node: &Node, fanout_shift: u8, block: &Bytes, met: &mut Vec<Met>) {
        let level = node.place.level - 1;
        let first = node.place.block.0.checked_shl(fanout_shift.into()).unwrap_or(u64::MAX);
        let holds = below(node.place.object, level, fanout_shift);
        for (i, raw) in block.chunks_exact(BLKPTR_BYTES).enumerate() {
            let Ok(bp) = Blkptr::decode(raw, node.bp.endian()) else { continue };
            let place = Zbookmark { level, block: BlockId(first.saturating_add(i as u64)), ..node.place };
            self.visit(bp, place, node.born_after, holds, met);
        }
    }

    fn expand_dnodes(&mut self, node: &Node, block: &Bytes, met: &mut Vec<Met>) {
        let per_block = (block.len() / DNODE_MIN_BYTES) as u64;
        let first = node.place.block.0.saturating_mul(per_block);
        for (slot, dnode) in dnodes_of_block(block, node.bp.endian()) {
            let object = ObjectId(first.saturating_add(slot as u64));
            match dnode {
                Ok(dnode) => self.expand_dnode(node, object, &dnode, met),
                Err(error) => met.push(nonsense(Zbookmark { object, ..node.place }, &error)),
            }
        }
    }

    fn expand_dnode(&mut self, node: &Node, object: ObjectId, dnode: &Dnode, met: &mut Vec<Met>) {
        let level = dnode.levels - 1;
        let fanout_shift = dnode.fanout_shift() as u8;
        let place = Zbookmark { dataset: node.place.dataset, object, level, block: BlockId(0) };
        let holds = below(object, level, fanout_shift);
        for (i, bp) in dnode.blkptrs().enumerate() {
            self.visit(bp, Zbookmark { block: BlockId(i as u64), ..place }, node.born_after, holds, met);
        }
        if let Some(bp) = dnode.spill() {
            self.visit(bp, Zbookmark { level: 0, block: SPILL_BLOCK, ..place }, node.born_after, None, met);
        }
        let is_dataset = place.dataset.0 == 0 && dnode.bonus_type == ObjectType::DSL_DATASET;
        if is_dataset && matches!(self.scope, Scope::All) {
            match DslDatasetPhys::decode(dnode.bonus(), dnode.endian()) {
                Ok(dataset) => self.visit_dataset(DatasetId(object.0), &dataset, met),
                Err(error) => met.push(nonsense(place, &error)),
            }
        }
    }

    fn visit_dataset(&mut self, dataset: DatasetId, phys: &DslDatasetPhys, met: &mut Vec<Met>) {
        let place = Zbookmark { dataset, ..Zbookmark::default() };
        let born_after = phys.prev_snapshot_txg.max(self.born_after);
        self.enter(phys.bp, place, born_after, !phys.is_snapshot(), met);
    }

    fn enter(&mut self, bp: Blkptr, place: Zbookmark, born_after: Txg, head: bool, met: &mut Vec<Met>) {
        let holds = Holds::Objset { head };
        // A head's log counts even if the head is unchanged since its snapshot.
        if head && bp.allocation_birth() <= born_after && bp.kind() == BlkptrKind::Normal {
            return self.pending.push(Node { bp, place, born_after, holds, fanout_shift: 0 });
        }
        self.visit(bp, place, born_after, Some(holds), met);
    }

    fn visit(
        &mut self,
        bp: Blkptr,
        place: Zbookmark,
        born_after: Txg,
        holds: Option<Holds>,
        met: &mut Vec<Met>,
    ) {
        if matches!(bp.kind(), BlkptrKind::Hole | BlkptrKind::Redacted) || bp.allocation_birth() <= born_after
        {
            return;
        }
        let fanout_shift = match holds {
            Some(Holds::Pointers { fanout_shift }) => fanout_shift,
            _ => 0,
        };
        let is_objset = matches!(holds, Some(Holds::Objset { .. }));
        let is_past = match self.scope {
            _ if is_objset => false,
            Scope::All => false,
            Scope::Objset(from) => from.is_past(&place, fanout_shift),
            Scope::Left(mark) => mark.is_some_and(|mark| mark.is_past(&place, fanout_shift)),
        };
        if is_past {
            return;
        }
        if !is_objset && bp.level() != place.level {
            let why = format!("the pointer leads to a block of level {}", bp.level());
            return met.push(Met::Nonsense { place, why });
        }
        met.push(Met::Block { bp, place });
        // Right after a snapshot, the live dataset shares the snapshot's object set block.
        if !is_objset && holds.is_some() && !self.opened.first(&bp) {
            let why = "another pointer leads to the same block".into();
            return met.push(Met::Nonsense { place, why });
        }
        if let Some(holds) = holds
            && (place.level == 0 || !bp.is_embedded())
        {
            self.pending.push(Node { bp, place, born_after, holds, fanout_shift });
        }
    }
}

impl Node {
    /// Bound on its child metadata blocks.
    fn children(&self) -> usize {
        match self.holds {
            Holds::Objset { .. } => 4,
            Holds::Dnodes => 3 * (self.bp.lsize().0 as usize / DNODE_MIN_BYTES),
            Holds::Pointers { .. } if self.place.level > 1 || self.place.object == META_DNODE_OBJECT => {
                self.bp.lsize().0 as usize / BLKPTR_BYTES
            }
            Holds::Pointers { .. } => 0,
        }
    }
}

/// Content of a block, if it must be opened.
fn below(object: ObjectId, level: u8, fanout_shift: u8) -> Option<Holds> {
    match level {
        0 if object == META_DNODE_OBJECT => Some(Holds::Dnodes),
        0 => None,
        _ => Some(Holds::Pointers { fanout_shift }),
    }
}

/// Reads an encrypted dnode block as stored: only bonuses are encrypted, and it is never compressed.
async fn read_sealed(pool: &Pool, bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes, PoolError> {
    if bp.compression_id() != Compression::Off as u8 {
        let why = "an encrypted block of dnodes claims to be compressed".into();
        return Err(PoolError::BadPointer { place: ctx.place, why });
    }
    pool.as_stored().read(bp, ctx).await
}

fn nonsense(place: Zbookmark, error: &FormatError) -> Met {
    Met::Nonsense { place, why: error.to_string() }
}
