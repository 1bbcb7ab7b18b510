//! Growing lists of block pointers.
//!
//! Idea: entries go to a list's end; its header counts them and their space. A list is added to another by
//! name; a small one (at most a block of entries and a block of subobjects) is copied and freed instead, so
//! that nesting stays shallow. Most lists of deadlists are empty: they share one object, which feature
//! `empty_bpobj` counts.
//!
//! Source: OpenZFS `bpobj.c` (`bpobj_enqueue`, `bpobj_enqueue_subobj`, `bpobj_alloc_empty`).

use cenote_boxed::boxed;
use cenote_format::Phys;
use cenote_format::blkptr::Blkptr;
use cenote_format::bpobj::{BpobjEntry, BpobjPhys};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::pool as names;
use cenote_format::features::Since;
use cenote_format::units::{BlockId, ObjectId, SPA_OLD_MAXBLOCKSIZE};
use cenote_format::words::Words;

use crate::deadlist::{Bpobj, WORDS};
use crate::error::Result;
use crate::feature_counts::{FeatureCounts, POOL_DIRECTORY};
use crate::live::{Edit, NewObject};
use crate::zap::ZapEdit;

const LIST_BLOCK_BYTES: u32 = SPA_OLD_MAXBLOCKSIZE as u32;
/// `BPOBJ_SIZE_V1`: header without subobjects, of pools before version 26.
const HEAD_WITHOUT_LISTS_BYTES: usize = 32;
/// `BPOBJ_SIZE_V2`: header without a count of entries marked as freed.
const HEAD_WITHOUT_FREED_BYTES: usize = 48;
const EMPTY_FEATURE: &str = "empty_bpobj";
const LIVELIST_FEATURE: &str = "livelist";

/// Space of blocks in a list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BlockSpace {
    /// As accounted: net of parity, all copies.
    pub used_bytes: u64,
    /// As stored, one copy.
    pub compressed_bytes: u64,
    /// Before compression.
    pub uncompressed_bytes: u64,
}

impl BlockSpace {
    /// Space of a block that takes `used_bytes`. Metadata counts as uncompressed (`BP_GET_UCSIZE`): users ask
    /// about the compression of their data.
    pub fn of(bp: &Blkptr, used_bytes: u64) -> BlockSpace {
        let compressed_bytes = if bp.is_embedded() { 0 } else { bp.psize().0 };
        let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
        let uncompressed_bytes = if is_metadata { compressed_bytes } else { bp.lsize().0 };
        BlockSpace { used_bytes, compressed_bytes, uncompressed_bytes }
    }

    /// Space of a list.
    pub fn of_list(phys: &BpobjPhys) -> BlockSpace {
        let (compressed_bytes, uncompressed_bytes) = (phys.compressed_bytes, phys.uncompressed_bytes);
        BlockSpace { used_bytes: phys.bytes, compressed_bytes, uncompressed_bytes }
    }

    /// The sum; may go below 0 and back.
    pub fn plus(self, other: BlockSpace) -> BlockSpace {
        BlockSpace {
            used_bytes: self.used_bytes.wrapping_add(other.used_bytes),
            compressed_bytes: self.compressed_bytes.wrapping_add(other.compressed_bytes),
            uncompressed_bytes: self.uncompressed_bytes.wrapping_add(other.uncompressed_bytes),
        }
    }

    /// The difference.
    pub fn minus(self, other: BlockSpace) -> BlockSpace {
        BlockSpace {
            used_bytes: self.used_bytes.wrapping_sub(other.used_bytes),
            compressed_bytes: self.compressed_bytes.wrapping_sub(other.compressed_bytes),
            uncompressed_bytes: self.uncompressed_bytes.wrapping_sub(other.uncompressed_bytes),
        }
    }
}

/// Editor of a pool's lists.
#[derive(Clone, Copy)]
pub struct BlockLists<'a> {
    pub(super) mos: &'a Edit,
    dsize: &'a (dyn Fn(&Blkptr) -> u64 + Sync),
}

impl<'a> BlockLists<'a> {
    /// `dsize` gives a block's size in accounts (`cenote_dataset::Mos::dsize`).
    pub fn new(mos: &'a Edit, dsize: &'a (dyn Fn(&Blkptr) -> u64 + Sync)) -> BlockLists<'a> {
        BlockLists { mos, dsize }
    }

    /// Older pools have plain lists.
    pub(super) fn has_deadlists(&self) -> bool {
        self.mos.view().pool().uberblock().has(Since::Deadlists)
    }

    /// Makes a list (`bpobj_alloc`).
    ///
    /// # Errors
    /// Damaged MOS.
    #[boxed]
    pub async fn create(&self) -> Result<ObjectId> {
        let livelists = FeatureCounts::of(self.mos).count(LIVELIST_FEATURE).await?.unwrap_or(0);
        let head_bytes = match livelists {
            _ if !self.has_deadlists() => HEAD_WITHOUT_LISTS_BYTES,
            0 => HEAD_WITHOUT_FREED_BYTES,
            _ => BpobjPhys::COUNT * 8,
        };
        let new = NewObject::of(ObjectType::BPOBJ).block_bytes(LIST_BLOCK_BYTES);
        self.mos.create(&new.bonus(ObjectType::BPOBJ_HDR, vec![0; head_bytes])).await
    }

    /// An empty list, shared if the pool has the feature (`bpobj_alloc_empty`).
    ///
    /// # Errors
    /// Damaged MOS.
    #[boxed]
    pub async fn create_empty(&self) -> Result<ObjectId> {
        match self.create_empties(1).await?.pop() {
            Some(list) => Ok(list),
            None => self.create().await,
        }
    }

    /// Whether all empty lists are one.
    pub(super) async fn shares_empty(&self) -> Result<bool> {
        Ok(FeatureCounts::of(self.mos).count(EMPTY_FEATURE).await?.is_some())
    }

    pub(super) async fn create_empties(&self, count: usize) -> Result<Vec<ObjectId>> {
        let features = FeatureCounts::of(self.mos);
        let shared = match features.count(EMPTY_FEATURE).await? {
            _ if count == 0 => return Ok(Vec::new()),
            None => {
                let mut lists = Vec::new();
                for _ in 0..count {
                    lists.push(self.create().await?);
                }
                return Ok(lists);
            }
            Some(0) => {
                let shared = self.create().await?;
                ZapEdit::new(self.mos, POOL_DIRECTORY).update(names::EMPTY_BPOBJ, shared.0).await?;
                shared
            }
            Some(_) => {
                let why = || self.mos.damaged(POOL_DIRECTORY, "counts empty lists and has none");
                self.shared_empty().await?.ok_or_else(why)?
            }
        };
        features.change(EMPTY_FEATURE, count as i64).await?;
        Ok(vec![shared; count])
    }

    pub(super) async fn shared_empty(&self) -> Result<Option<ObjectId>> {
        let id = ZapEdit::new(self.mos, POOL_DIRECTORY).get(names::EMPTY_BPOBJ).await?;
        Ok(id.and_then(|id| id.as_u64()).map(ObjectId))
    }

    /// Frees a list with subobjects, or a reference to the shared empty one (`bpobj_free`,
    /// `bpobj_decr_empty`).
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn free(&self, list: ObjectId) -> Result<()> {
        self.free_all([list]).await
    }

    pub(super) async fn free_all(&self, lists: impl IntoIterator<Item = ObjectId>) -> Result<()> {
        let empty = self.shared_empty().await?;
        let (shared, own): (Vec<ObjectId>, Vec<ObjectId>) =
            lists.into_iter().partition(|list| Some(*list) == empty);
        for list in own {
            self.free_own(list).await?;
        }
        let Some(&empty) = shared.first() else { return Ok(()) };
        if FeatureCounts::of(self.mos).change(EMPTY_FEATURE, -(shared.len() as i64)).await? == 0 {
            ZapEdit::new(self.mos, POOL_DIRECTORY).remove(names::EMPTY_BPOBJ).await?;
            self.mos.destroy(empty).await?;
        }
        Ok(())
    }

    async fn free_own(&self, list: ObjectId) -> Result<()> {
        let mut pending = vec![list];
        while let Some(id) = pending.pop() {
            let list = Bpobj::open(&self.mos.view(), id).await?;
            match list.subobjects().await {
                Ok(within) => pending.extend(within),
                // Their loss was reported when the list's entries were read.
                Err(error) if error.is_damage() => {
                    let what = format!("the lists that list {id} names stay: {error}");
                    self.mos.view().pool().read_errors().note_aside(what);
                }
                Err(error) => return Err(error),
            }
            if list.phys.subobjs.0 != 0 {
                self.mos.destroy(list.phys.subobjs).await?;
            }
            // Ends: a list named twice is gone the second time.
            self.mos.destroy(id).await?;
        }
        Ok(())
    }

    /// Appends blocks, no holes (`bpobj_enqueue`). Returns their space, less frees.
    ///
    /// # Errors
    /// Damage; a freed entry in a list without such marks.
    #[boxed]
    pub async fn append(&self, list: ObjectId, entries: &[BpobjEntry]) -> Result<BlockSpace> {
        let opened = Bpobj::open(&self.mos.view(), list).await?;
        let mut phys = opened.phys;
        let freed = entries.iter().filter(|entry| entry.freed).count() as u64;
        if freed > 0 && opened.object.dnode().bonus().len() <= HEAD_WITHOUT_FREED_BYTES {
            return Err(self.mos.damaged(list, "is a list without marks of what is freed"));
        }
        let stored: Vec<u64> = entries.iter().flat_map(|entry| *entry.to_blkptr().words()).collect();
        let space = self.space(entries);
        // Entries of a list with an unreadable end stay allocated.
        let written = self.mos.write_words(list, phys.blkptr_count * WORDS, &stored).await;
        if self.or_unlisted(space.used_bytes, written)?.is_none() {
            return Ok(BlockSpace::default());
        }
        phys.blkptr_count += entries.len() as u64;
        phys.freed_count = phys.freed_count.wrapping_add(freed);
        self.set_head(list, phys, BlockSpace::of_list(&phys).plus(space)).await?;
        Ok(space)
    }

    /// Takes all blocks off a list without subobjects.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn take_all(&self, list: ObjectId) -> Result<Vec<Blkptr>> {
        let opened = Bpobj::open(&self.mos.view(), list).await?;
        let mut phys = opened.phys;
        if phys.blkptr_count == 0 {
            return Ok(Vec::new());
        }
        let mut blocks = Vec::new();
        let mut entries = opened.entries();
        while let Some(batch) = entries.next_batch().await {
            blocks.extend(batch?.into_iter().map(|entry| entry.bp));
        }
        self.mos.punch(list, BlockId(0), u64::MAX).await?;
        (phys.blkptr_count, phys.freed_count) = (0, 0);
        self.set_head(list, phys, BlockSpace::default()).await?;
        Ok(blocks)
    }

    /// Space of entries, less frees.
    pub(super) fn space(&self, entries: &[BpobjEntry]) -> BlockSpace {
        entries.iter().fold(BlockSpace::default(), |sum, entry| {
            let space = BlockSpace::of(&entry.bp, (self.dsize)(&entry.bp));
            if entry.freed { sum.minus(space) } else { sum.plus(space) }
        })
    }

    /// Adds a list to another, which then owns or has absorbed it (`bpobj_enqueue_subobj`). Returns its
    /// space. An unreadable list is named, not copied; blocks that can't be listed stay allocated.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn append_list(&self, list: ObjectId, added: ObjectId) -> Result<BlockSpace> {
        let sub = Bpobj::open(&self.mos.view(), added).await?;
        if sub.phys.blkptr_count == 0 && sub.phys.subobj_count == 0 {
            self.free(added).await?;
            return Ok(BlockSpace::default());
        }
        let mut phys = Bpobj::open(&self.mos.view(), list).await?.phys;
        let space = BlockSpace::of_list(&sub.phys);
        let has_lists = sub.phys.subobjs.0 != 0;
        let lists = match has_lists && self.is_one_block(sub.phys.subobjs).await? {
            true => sub.subobjects().await.ok(),
            false => None,
        };
        let copy_entries = (lists.is_some() || !has_lists) && self.is_one_block(added).await?;
        if let Some(lists) = lists {
            if self.or_unlisted(space.used_bytes, self.append_names(&mut phys, &lists).await)?.is_none() {
                return Ok(BlockSpace::default());
            }
            self.mos.destroy(sub.phys.subobjs).await?;
            let bare = BpobjPhys { subobjs: ObjectId(0), subobj_count: 0, ..sub.phys };
            self.set_head(added, bare, space).await?;
        }
        if copy_entries && self.copy_entries(list, &phys, &sub).await.is_ok() {
            phys.blkptr_count += sub.phys.blkptr_count;
            self.mos.destroy(added).await?;
        } else if self.or_unlisted(space.used_bytes, self.append_names(&mut phys, &[added]).await)?.is_none()
        {
            return Ok(BlockSpace::default());
        }
        self.set_head(list, phys, BlockSpace::of_list(&phys).plus(space)).await?;
        Ok(space)
    }

    async fn copy_entries(&self, list: ObjectId, phys: &BpobjPhys, added: &Bpobj) -> Result<()> {
        let words = added.object.read_table(0, added.phys.blkptr_count * WORDS).await?;
        self.mos.write_words(list, phys.blkptr_count * WORDS, &words).await
    }

    /// Continues after damage; `bytes` will not be freed.
    fn or_unlisted<T>(&self, bytes: u64, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.is_damage() => {
                self.mos.view().pool().read_errors().note_unlisted(bytes, &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn is_one_block(&self, object: ObjectId) -> Result<bool> {
        Ok(self.mos.view().dnode(object).await?.max_block_id == BlockId(0))
    }

    async fn append_names(&self, phys: &mut BpobjPhys, lists: &[ObjectId]) -> Result<()> {
        if phys.subobjs.0 == 0 {
            let new = NewObject::of(ObjectType::BPOBJ_SUBOBJ).block_bytes(LIST_BLOCK_BYTES);
            phys.subobjs = self.mos.create(&new).await?;
        }
        let words: Vec<u64> = lists.iter().map(|id| id.0).collect();
        self.mos.write_words(phys.subobjs, phys.subobj_count, &words).await?;
        phys.subobj_count += words.len() as u64;
        Ok(())
    }

    async fn set_head(&self, list: ObjectId, phys: BpobjPhys, space: BlockSpace) -> Result<()> {
        let BlockSpace { used_bytes: bytes, compressed_bytes, uncompressed_bytes } = space;
        let phys = BpobjPhys { bytes, compressed_bytes, uncompressed_bytes, ..phys };
        self.mos.set_bonus_words(list, &phys.to_words()).await
    }
}

impl std::fmt::Debug for BlockLists<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockLists({:?})", self.mos)
    }
}
