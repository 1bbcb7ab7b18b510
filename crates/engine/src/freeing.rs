//! Frees destroyed datasets in the background, a part in each txg.
//!
//! ```text
//!   free_bpobj   blocks that only destroyed snapshots had; only OpenZFS leaves any there
//!   bptree_obj   [tree 0: gone] [tree 1: mark] [tree 2] ...   trees of destroyed file systems and volumes
//! ```
//!
//! Idea: destroying a dataset puts its tree into this list and charges its space to `$FREE`. Each txg frees a
//! part and records its progress, so a power cut loses nothing. Txgs are written while the list has entries.
//!
//! An unreadable tree stops the list until the pool is opened again; so does an unreadable list.
//!
//! Source: OpenZFS `dsl_scan.c` (`dsl_process_async_destroys`), `bptree.c`, `dsl_destroy.c`
//! (`dsl_async_dataset_destroy`).

use std::sync::atomic::Ordering;

use cenote_boxed::boxed;
use cenote_dataset::mos::FREE_DIR_NAME;
use cenote_format::Phys;
use cenote_format::blkptr::Blkptr;
use cenote_format::bpobj::{BptreeEntry, BptreePhys};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::units::{DatasetId, ObjectId, SPA_OLD_MAXBLOCKSIZE, Txg};
use cenote_format::words::Words;
use cenote_object::dead_tree::DeadTree;
use cenote_object::deadlist::Bpobj;
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{NewObject, Result, ZapEdit};

use crate::account::Account;
use crate::context::SyncContext;
use crate::engine::{Engine, Shared};
use crate::store::space_delta::SpaceDelta;

const FEATURE: &str = "async_destroy";
const ZB_DESTROYED_OBJSET: DatasetId = DatasetId(u64::MAX);
const LIST_BLOCK_BYTES: u32 = SPA_OLD_MAXBLOCKSIZE as u32;
const ENTRY_BYTES: u64 = BptreeEntry::COUNT as u64 * 8;

impl Shared {
    /// Whether the next txg frees something. This alone does not start the first txg of an unchanged pool.
    pub(crate) fn frees_now(&self) -> bool {
        self.freeing.is_pending() && !self.is_untouched()
    }
}

/// Destroyed datasets still being freed.
#[derive(Clone, Copy)]
pub struct Frees<'a>(&'a Engine);

impl Engine {
    /// Destroyed datasets still being freed.
    pub fn frees(&self) -> Frees<'_> {
        Frees(self)
    }
}

impl Frees<'_> {
    /// Whether destroyed datasets are still being freed.
    pub fn is_pending(&self) -> bool {
        self.0.0.frees_now()
    }

    /// Writes txgs until all destroyed datasets are freed, or blocked by damage.
    ///
    /// # Errors
    /// A txg could not be written.
    #[boxed]
    pub async fn finish(&self) -> Result<()> {
        while self.is_pending() {
            self.0.sync_all().await?;
        }
        Ok(())
    }

    /// Sets about how many blocks a txg frees.
    pub fn set_per_txg(&self, blocks: u64) {
        self.0.0.freeing.blocks_per_txg.store(blocks, Ordering::Relaxed);
    }
}

/// Whether the pool frees trees in the background.
#[boxed]
pub async fn frees_in_background(context: &SyncContext) -> Result<bool> {
    Ok(FeatureCounts::of(&context.edit()).count(FEATURE).await?.is_some())
}

/// Queues the blocks of a tree born after `birth_txg`; they take `space`.
#[boxed]
pub async fn free_tree_later(
    context: &mut SyncContext,
    bp: Blkptr,
    birth_txg: Txg,
    space: SpaceDelta,
) -> Result<()> {
    let edit = context.edit();
    let list = match context.find_directory_object(names::BPTREE_OBJ).await? {
        Some(list) => list,
        None => make_list_of_trees(context).await?,
    };
    let mut phys = list_of_trees(context, list).await?;
    let entry = BptreeEntry { bp, birth_txg, resume: [0; 4] };
    edit.write(list, phys.end * ENTRY_BYTES, entry.encode(Endian::NATIVE).into()).await?;
    phys.end += 1;
    change(&mut phys, space);
    set_list_of_trees(context, list, &phys).await?;
    let free_dir = context.special_dir(FREE_DIR_NAME).await?;
    context.use_space(free_dir, space, Account::Head).await?;
    context.engine.freeing.set_pending(true);
    Ok(())
}

pub(crate) async fn free_pending(context: &mut SyncContext) -> Result<()> {
    if !context.engine.freeing.is_pending() {
        return Ok(());
    }
    context.engine.freeing.set_pending(false);
    if let Some(list) = context.find_directory_object(names::FREE_BPOBJ).await? {
        free_list(context, list).await?;
    }
    match context.find_directory_object(names::BPTREE_OBJ).await? {
        Some(list) => free_trees(context, list).await,
        None => Ok(()),
    }
}

async fn free_list(context: &mut SyncContext, list: ObjectId) -> Result<()> {
    let blocks = match context.take_list(list).await {
        Err(error) if error.is_damage() => {
            context
                .syncing
                .pool
                .read_errors()
                .note_aside(format!("what waits to be freed can't be read: {error}"));
            return Ok(());
        }
        blocks => blocks?,
    };
    let freed = blocks.iter().fold(SpaceDelta::default(), |sum, bp| sum + context.space_of(bp));
    context.free_all(&blocks).await?;
    leave_free_dir(context, freed).await
}

async fn free_trees(context: &mut SyncContext, list: ObjectId) -> Result<()> {
    let edit = context.edit();
    let mut phys = list_of_trees(context, list).await?;
    let mut budget = context.engine.freeing.blocks_per_txg.load(Ordering::Relaxed);
    let mut freed = SpaceDelta::default();
    while phys.begin < phys.end && budget > 0 {
        let at = phys.begin * ENTRY_BYTES;
        let words = edit.view().object(list).await?.read_table(at / 8, BptreeEntry::COUNT as u64).await?;
        let mut entry = BptreeEntry::from_words(&words).map_err(|e| edit.view().format(list, e))?;
        budget = budget.saturating_sub(1);
        let left = free_tree(context, &entry, &mut budget, &mut freed).await?;
        match left {
            None => {
                phys.begin += 1;
                edit.write(list, at, vec![0; ENTRY_BYTES as usize].into()).await?;
            }
            Some(resume) => {
                entry.resume = resume;
                edit.write(list, at, entry.encode(Endian::NATIVE).into()).await?;
                break;
            }
        }
    }
    change(&mut phys, -freed);
    leave_free_dir(context, freed).await?;
    if phys.begin < phys.end {
        // Budget is left, so a tree is unreadable; the next txg would fare no better.
        context.engine.freeing.set_pending(budget == 0);
        return set_list_of_trees(context, list, &phys).await;
    }
    edit.destroy(list).await?;
    ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).remove(names::BPTREE_OBJ).await?;
    context.use_feature(FEATURE, -1).await?;
    match context.find_directory_object(names::FREE_BPOBJ).await? {
        Some(list) if holds_blocks(context, list).await? => Ok(()),
        _ => context.leak_rest().await,
    }
}

async fn holds_blocks(context: &SyncContext, list: ObjectId) -> Result<bool> {
    let list = Bpobj::open(&context.edit().view(), list).await?;
    Ok(list.phys().blkptr_count + list.phys().subobj_count != 0)
}

/// Frees the rest of a tree within the budget. Returns the place to resume from.
async fn free_tree(
    context: &mut SyncContext,
    entry: &BptreeEntry,
    budget: &mut u64,
    freed: &mut SpaceDelta,
) -> Result<Option<[u64; 4]>> {
    let mut tree = DeadTree::new(&context.syncing.pool, ZB_DESTROYED_OBJSET, entry);
    let mut batch = Vec::new();
    let left = loop {
        let bp = match tree.next().await {
            Ok(Some(bp)) => bp,
            Ok(None) => break None,
            Err(_) => break Some(tree.resume()),
        };
        if *budget == 0 && tree.may_stop() {
            break Some(tree.resume());
        }
        *freed = *freed + context.space_of(&bp);
        batch.push(bp);
        if batch.len() == SyncContext::FREES_AT_ONCE {
            context.free_all(&std::mem::take(&mut batch)).await?;
        }
        *budget = budget.saturating_sub(1);
    };
    context.free_all(&batch).await?;
    Ok(left)
}

async fn leave_free_dir(context: &mut SyncContext, freed: SpaceDelta) -> Result<()> {
    if freed == SpaceDelta::default() {
        return Ok(());
    }
    let free_dir = context.special_dir(FREE_DIR_NAME).await?;
    context.use_space(free_dir, -freed, Account::Head).await
}

async fn make_list_of_trees(context: &mut SyncContext) -> Result<ObjectId> {
    let edit = context.edit();
    let empty = BptreePhys::zeroed().encode(Endian::NATIVE);
    let object_type = ObjectType::UINT64_METADATA;
    let new = NewObject::of(object_type).block_bytes(LIST_BLOCK_BYTES).bonus(object_type, empty);
    let list = edit.create(&new).await?;
    ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(names::BPTREE_OBJ, list.0).await?;
    context.use_feature(FEATURE, 1).await?;
    Ok(list)
}

async fn list_of_trees(context: &SyncContext, list: ObjectId) -> Result<BptreePhys> {
    let view = context.edit().view();
    let dnode = view.dnode(list).await?;
    BptreePhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| view.format(list, e))
}

async fn set_list_of_trees(context: &SyncContext, list: ObjectId, phys: &BptreePhys) -> Result<()> {
    let bonus = phys.encode(Endian::NATIVE).into();
    context.edit().set_bonus(list, ObjectType::UINT64_METADATA, bonus).await
}

fn change(phys: &mut BptreePhys, space: SpaceDelta) {
    use crate::account::add;
    add(&mut phys.bytes, space.used);
    add(&mut phys.compressed_bytes, space.compressed);
    add(&mut phys.uncompressed_bytes, space.uncompressed);
}
