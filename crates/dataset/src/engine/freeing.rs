//! What was destroyed and is freed in the background, some in each group.
//!
//! ```text
//!   free_bpobj   blocks that destroyed snapshots had alone; only OpenZFS leaves any there
//!   bptree_obj   [tree 0: gone] [tree 1: mark] [tree 2] ...        trees of destroyed file systems and volumes
//! ```
//!
//! Idea: to destroy a data set is to put its tree into this list, whatever its size; what it used is then used by `$FREE`. Each group frees
//! a part, and notes in the list how far it came, so a cut loses nothing. Groups are written for it as long as there is something to free.
//!
//! A tree that can't be read further stays as it is, and so do those after it: until the pool is opened again nothing more is tried.
//!
//! Source: OpenZFS `dsl_scan.c` (`dsl_process_async_destroys`), `bptree.c`, `dsl_destroy.c` (`dsl_async_dataset_destroy`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_format::Phys;
use cenote_format::blkptr::Blkptr;
use cenote_format::bpobj::{BptreeEntry, BptreePhys};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_format::words::Words;

use super::{Engine, SyncContext};
use crate::dead_tree::DeadTree;
use crate::dsl::account::Account;
use crate::error::Result;
use crate::features::FeatureCounts;
use crate::live::NewObject;
use crate::mos::{FREE_DIR_NAME, Mos};
use crate::sync::blocks::Space;
use crate::zap::ZapEdit;

const FEATURE: &str = "async_destroy";
const ZB_DESTROYED_OBJSET: DatasetId = DatasetId(u64::MAX);
/// Blocks freed in a group: `zfs_async_block_max_blocks`, as it was before OpenZFS went by time alone.
const BLOCKS_PER_GROUP: u64 = 100_000;
/// `SPA_OLD_MAXBLOCKSIZE`.
const LIST_BLOCK_BYTES: u32 = 128 << 10;
/// Bytes of an entry of the list.
const ENTRY_BYTES: u64 = BptreeEntry::COUNT as u64 * 8;

/// Whether there is something to free.
pub(super) struct Freeing {
    is_pending: AtomicBool,
    blocks_per_group: AtomicU64,
}

impl Default for Freeing {
    fn default() -> Freeing {
        Freeing { is_pending: false.into(), blocks_per_group: BLOCKS_PER_GROUP.into() }
    }
}

impl Freeing {
    /// As a pool was left.
    pub(super) async fn of(mos: &Mos) -> Result<Freeing> {
        let mut is_pending = !mos.pending_destroys().await?.is_empty();
        if let Some(list) = mos.directory_u64(names::FREE_BPOBJ).await?.filter(|&id| id != 0) {
            let list = crate::deadlist::Bpobj::open(mos.objset(), ObjectId(list)).await?;
            is_pending |= list.phys().blkptr_count + list.phys().subobj_count != 0;
        }
        Ok(Freeing { is_pending: is_pending.into(), ..Freeing::default() })
    }

    /// The next group has something to free.
    pub(super) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Relaxed)
    }

    fn set_pending(&self, is_pending: bool) {
        self.is_pending.store(is_pending, Ordering::Relaxed);
    }
}

impl Engine {
    /// Whether groups still have something to free of what was destroyed.
    pub fn is_freeing(&self) -> bool {
        self.0.freeing.is_pending()
    }

    /// Writes groups until all that was destroyed is free, or can't be freed now.
    ///
    /// # Errors
    /// A group could not be written.
    pub async fn finish_freeing(&self) -> Result<()> {
        while self.is_freeing() {
            self.sync_all().await?;
        }
        Ok(())
    }

    /// Sets how many blocks of destroyed data sets a group frees, about.
    pub fn set_frees_per_group(&self, blocks: u64) {
        self.0.freeing.blocks_per_group.store(blocks, Ordering::Relaxed);
    }
}

impl SyncContext {
    /// Whether trees can be left to be freed in the background.
    pub(crate) async fn frees_in_background(&self) -> Result<bool> {
        Ok(FeatureCounts::of(&self.edit()).count(FEATURE).await?.is_some())
    }

    /// Leaves a tree to be freed: what of it was born after a group, which takes so much space.
    pub(crate) async fn free_tree_later(&mut self, bp: Blkptr, birth_txg: Txg, space: Space) -> Result<()> {
        let edit = self.edit();
        let list = match self.find_directory_object(names::BPTREE_OBJ).await? {
            Some(list) => list,
            None => self.make_list_of_trees().await?,
        };
        let mut phys = self.list_of_trees(list).await?;
        let entry = BptreeEntry { bp, birth_txg, resume: [0; 4] };
        edit.write(list, phys.end * ENTRY_BYTES, entry.encode(Endian::NATIVE).into()).await?;
        phys.end += 1;
        change(&mut phys, space);
        self.set_list_of_trees(list, &phys).await?;
        let free_dir = self.special_dir(FREE_DIR_NAME).await?;
        self.use_space(free_dir, space, Account::Head).await?;
        self.engine.freeing.set_pending(true);
        Ok(())
    }

    /// Frees some of what waits for it.
    pub(super) async fn free_pending(&mut self) -> Result<()> {
        if !self.engine.freeing.is_pending() {
            return Ok(());
        }
        self.engine.freeing.set_pending(false);
        if let Some(list) = self.find_directory_object(names::FREE_BPOBJ).await? {
            self.free_list(list).await?;
        }
        match self.find_directory_object(names::BPTREE_OBJ).await? {
            Some(list) => self.free_trees(list).await,
            None => Ok(()),
        }
    }

    async fn free_list(&mut self, list: ObjectId) -> Result<()> {
        let mut freed = Space::default();
        for bp in self.take_list(list).await? {
            freed = freed + self.space_of(&bp);
            self.free_now(&bp).await?;
        }
        self.leave_free_dir(freed).await
    }

    async fn free_trees(&mut self, list: ObjectId) -> Result<()> {
        let edit = self.edit();
        let mut phys = self.list_of_trees(list).await?;
        let mut budget = self.engine.freeing.blocks_per_group.load(Ordering::Relaxed);
        let mut freed = Space::default();
        while phys.begin < phys.end && budget > 0 {
            let at = phys.begin * ENTRY_BYTES;
            let words = edit.view().object(list).await?.read_words(at / 8, BptreeEntry::COUNT).await?;
            let mut entry = BptreeEntry::from_words(&words).map_err(|e| edit.view().format(list, e))?;
            let left = self.free_tree(&entry, &mut budget, &mut freed).await?;
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
        self.leave_free_dir(freed).await?;
        if phys.begin < phys.end {
            // With some of the budget left a tree can't be read: what is wrong will not be better in the next group.
            self.engine.freeing.set_pending(budget == 0);
            return self.set_list_of_trees(list, &phys).await;
        }
        edit.destroy(list).await?;
        ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).remove(names::BPTREE_OBJ).await?;
        self.use_feature(FEATURE, -1).await
    }

    /// Frees what is left of a tree, as far as the budget goes; answers where to go on.
    async fn free_tree(
        &mut self,
        entry: &BptreeEntry,
        budget: &mut u64,
        freed: &mut Space,
    ) -> Result<Option<[u64; 4]>> {
        let mut tree = DeadTree::new(&self.group.pool, ZB_DESTROYED_OBJSET, entry);
        loop {
            let bp = match tree.next().await {
                Ok(Some(bp)) => bp,
                Ok(None) => return Ok(None),
                Err(_) => return Ok(Some(tree.resume())),
            };
            if *budget == 0 && tree.may_stop() {
                return Ok(Some(tree.resume()));
            }
            *freed = *freed + self.space_of(&bp);
            self.free_now(&bp).await?;
            *budget = budget.saturating_sub(1);
        }
    }

    async fn leave_free_dir(&mut self, freed: Space) -> Result<()> {
        if freed == Space::default() {
            return Ok(());
        }
        let free_dir = self.special_dir(FREE_DIR_NAME).await?;
        self.use_space(free_dir, -freed, Account::Head).await
    }

    async fn make_list_of_trees(&mut self) -> Result<ObjectId> {
        let edit = self.edit();
        let empty = BptreePhys::zeroed().encode(Endian::NATIVE);
        let object_type = ObjectType::UINT64_METADATA;
        let new = NewObject::of(object_type).block_bytes(LIST_BLOCK_BYTES).bonus(object_type, empty);
        let list = edit.create(&new).await?;
        ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(names::BPTREE_OBJ, list.0).await?;
        self.use_feature(FEATURE, 1).await?;
        Ok(list)
    }

    async fn list_of_trees(&self, list: ObjectId) -> Result<BptreePhys> {
        let view = self.edit().view();
        let dnode = view.dnode(list).await?;
        BptreePhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| view.format(list, e))
    }

    async fn set_list_of_trees(&self, list: ObjectId, phys: &BptreePhys) -> Result<()> {
        let bonus = phys.encode(Endian::NATIVE).into();
        self.edit().set_bonus(list, ObjectType::UINT64_METADATA, bonus).await
    }
}

/// Changes what the trees of the list take.
fn change(phys: &mut BptreePhys, space: Space) {
    use crate::dsl::account::add;
    add(&mut phys.bytes, space.used);
    add(&mut phys.compressed_bytes, space.compressed);
    add(&mut phys.uncompressed_bytes, space.uncompressed);
}
