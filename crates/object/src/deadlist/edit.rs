//! Changing deadlists: blocks die, snapshots come and go.
//!
//! Idea: each snapshot begins a list under its txg; a dead block goes to the list of the newest snapshot
//! taken before its birth. Destroying a snapshot adds its list to the one before; merging its deadlist into
//! the next one's goes list by list.
//!
//! ```text
//!   keys  0       40      70               a block born in 55 dies: list 40
//!         [b b b] [b b]   [ ]              remove_key(40): list 0 gets what 40 had
//! ```
//!
//! Source: OpenZFS `dsl_deadlist.c`.

use std::collections::{BTreeMap, BTreeSet};

use cenote_boxed::boxed;
use cenote_format::Phys;
use cenote_format::blkptr::Blkptr;
use cenote_format::bpobj::BpobjEntry;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::deadlist::{DeadlistPhys, deadlist_key};
use cenote_format::units::{ObjectId, Txg};
use cenote_format::words::{Pad, Words};

use crate::deadlist::append::{BlockLists, BlockSpace};
use crate::deadlist::keys::Keys;
use crate::deadlist::remains::Remains;
use crate::deadlist::{Bpobj, Deadlist};
use crate::error::Result;
use crate::live::NewObject;
use crate::zap::copy::copy_with;
use crate::zap::{NewZap, ZapEdit};

/// Editor of a deadlist or livelist.
#[derive(Debug)]
pub struct DeadlistEdit<'a> {
    lists: BlockLists<'a>,
    object: ObjectId,
    /// By the txg after which their blocks were born; `None`: a plain list (pools before version 26).
    by_birth: Option<Keys>,
    space: BlockSpace,
    /// Removed keys still on disk: perhaps thousands, in vain if the deadlist is freed later.
    gone: Vec<Txg>,
    /// Keys with another list than on disk.
    changed: BTreeSet<Txg>,
}

/// An open deadlist put aside.
#[derive(Debug)]
pub struct PutAside {
    by_birth: Option<Keys>,
    space: BlockSpace,
    gone: Vec<Txg>,
    changed: BTreeSet<Txg>,
}

impl PutAside {
    /// Keys in memory.
    pub fn key_count(&self) -> usize {
        self.by_birth.as_ref().map_or(0, Keys::len) + self.gone.len()
    }
}

impl<'a> DeadlistEdit<'a> {
    /// Makes a deadlist without keys (`dsl_deadlist_alloc`).
    ///
    /// # Errors
    /// Damaged MOS.
    pub async fn create(lists: BlockLists<'a>) -> Result<DeadlistEdit<'a>> {
        if !lists.has_deadlists() {
            let object = lists.create().await?;
            return Ok(DeadlistEdit::new(lists, object, None, BlockSpace::default()));
        }
        let object = NewZap::in_object(new_table()).create(lists.mos).await?;
        Ok(DeadlistEdit::new(lists, object, Some(Keys::default()), BlockSpace::default()))
    }

    fn new(
        lists: BlockLists<'a>,
        object: ObjectId,
        by_birth: Option<Keys>,
        space: BlockSpace,
    ) -> DeadlistEdit<'a> {
        DeadlistEdit { lists, object, by_birth, space, gone: Vec::new(), changed: BTreeSet::new() }
    }

    /// Opens a deadlist.
    ///
    /// # Errors
    /// Damage.
    pub async fn open(lists: BlockLists<'a>, object: ObjectId) -> Result<DeadlistEdit<'a>> {
        let opened = Deadlist::open(&lists.mos.view(), object).await?;
        let (by_birth, space) = match &opened {
            Deadlist::Flat(list) => {
                (None, list.as_ref().map_or(BlockSpace::default(), |list| BlockSpace::of_list(&list.phys)))
            }
            Deadlist::ByBirth { phys, .. } => {
                let empty = lists.shared_empty().await?;
                let mut keys = Keys::new(empty);
                opened.each_key(|_| true, |key, list| keys.add(key, list, empty)).await?;
                (Some(keys), space_of(phys))
            }
        };
        Ok(DeadlistEdit::new(lists, object, by_birth, space))
    }

    /// Opens a deadlist to be dissolved: keys of the shared empty list are only counted.
    ///
    /// # Errors
    /// Damage.
    pub async fn open_last(lists: BlockLists<'a>, object: ObjectId) -> Result<DeadlistEdit<'a>> {
        let opened = Deadlist::open(&lists.mos.view(), object).await?;
        let (Deadlist::ByBirth { phys, .. }, Some(empty)) = (&opened, lists.shared_empty().await?) else {
            return DeadlistEdit::open(lists, object).await;
        };
        let (mut keys, mut counted) = (Keys::new(Some(empty)), 0);
        let is_own = |list| {
            counted += usize::from(list == empty);
            list != empty
        };
        opened.each_key(is_own, |key, list| keys.add(key, list, Some(empty))).await?;
        keys.count(counted);
        Ok(DeadlistEdit::new(lists, object, Some(keys), space_of(phys)))
    }

    /// Resumes a deadlist put aside.
    pub fn resume(lists: BlockLists<'a>, object: ObjectId, aside: PutAside) -> DeadlistEdit<'a> {
        let PutAside { by_birth, space, gone, changed } = aside;
        DeadlistEdit { lists, object, by_birth, space, gone, changed }
    }

    /// Puts it aside; it must not be opened again until stored.
    pub fn put_aside(self) -> PutAside {
        let DeadlistEdit { by_birth, space, gone, changed, .. } = self;
        PutAside { by_birth, space, gone, changed }
    }

    /// Stores changes of [`DeadlistEdit::drop_from`], [`DeadlistEdit::insert`] and [`DeadlistEdit::merge`].
    /// Not needed before it is freed.
    ///
    /// # Errors
    /// Damaged MOS.
    #[boxed]
    pub async fn store(&mut self) -> Result<()> {
        let table = ZapEdit::new(self.lists.mos, self.object);
        for key in std::mem::take(&mut self.gone) {
            table.remove(&deadlist_key(key)).await?;
        }
        for key in std::mem::take(&mut self.changed) {
            if let Some(list) = self.by_birth.as_mut().and_then(|keys| keys.get(key)) {
                table.update(&deadlist_key(key), list.0).await?;
            }
        }
        Ok(())
    }

    /// Its object.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Space of all its blocks.
    pub fn space(&self) -> BlockSpace {
        self.space
    }

    /// Space of blocks born after `from` and up to `to`, both keys: of their lists, or of single blocks in a
    /// plain list (`dsl_deadlist_space_range`).
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn space_between(&self, from: Txg, to: Txg) -> Result<BlockSpace> {
        let mut space = BlockSpace::default();
        if let Some(by_birth) = &self.by_birth {
            for (_, list) in by_birth.own(from..to.max(from)) {
                let list = Bpobj::open(&self.lists.mos.view(), list).await?;
                space = space.plus(BlockSpace::of_list(list.phys()));
            }
            return Ok(space);
        }
        let mut entries = Bpobj::open(&self.lists.mos.view(), self.object).await?.entries();
        while let Some(batch) = entries.next_batch().await {
            let born = |entry: &BpobjEntry| entry.bp.allocation_birth();
            let between: Vec<BpobjEntry> =
                batch?.into_iter().filter(|entry| born(entry) > from && born(entry) <= to).collect();
            space = space.plus(self.lists.space(&between));
        }
        Ok(space)
    }

    /// Lists with keys from `from` on, without the shared empty one.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn lists_from(&self, from: Txg) -> Result<Vec<Bpobj>> {
        let mut lists = Vec::new();
        for (_, list) in self.by_birth.iter().flat_map(|keys| keys.own(from..)) {
            lists.push(Bpobj::open(&self.lists.mos.view(), list).await?);
        }
        Ok(lists)
    }

    /// The list with the highest key.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn last_list(&mut self) -> Result<Option<Bpobj>> {
        let Some(last) = self.by_birth.as_ref().and_then(Keys::last) else { return Ok(None) };
        let list = self.list(last)?;
        Bpobj::open(&self.lists.mos.view(), list).await.map(Some)
    }

    /// Frees the lists with keys from `from` on, not their blocks.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn drop_from(&mut self, from: Txg) -> Result<()> {
        for list in self.lists_from(from).await? {
            self.space = self.space.minus(BlockSpace::of_list(list.phys()));
        }
        let Some(by_birth) = &mut self.by_birth else { return Ok(()) };
        let dropped = by_birth.split_off(from);
        self.gone.extend(dropped.iter());
        self.lists.free_all(dropped.into_lists()).await?;
        self.store_space().await
    }

    /// Takes the blocks born after `from` off a plain list. Memory: all blocks of the list.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn take_from_plain(&mut self, from: Txg) -> Result<Vec<Blkptr>> {
        if self.by_birth.is_some() {
            return Ok(Vec::new());
        }
        let all = self.lists.take_all(self.object).await?;
        let (taken, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|bp| bp.allocation_birth() > from);
        let kept: Vec<BpobjEntry> = kept.into_iter().map(|bp| BpobjEntry { bp, freed: false }).collect();
        self.space = BlockSpace::default();
        self.insert(&kept).await?;
        Ok(taken)
    }

    /// Adds dead blocks, or births and deaths to a livelist (`dsl_deadlist_insert`).
    ///
    /// # Errors
    /// A block older than every key; damage.
    #[boxed]
    pub async fn insert(&mut self, entries: &[BpobjEntry]) -> Result<()> {
        let Some(keys) = &mut self.by_birth else {
            self.space = self.space.plus(self.lists.append(self.object, entries).await?);
            return Ok(());
        };
        let mut sorted: BTreeMap<Option<Txg>, Vec<BpobjEntry>> = BTreeMap::new();
        for entry in entries {
            sorted.entry(keys.last_before(entry.bp.allocation_birth())).or_default().push(*entry);
        }
        for (key, entries) in sorted {
            let key = key.ok_or_else(|| self.damaged("has no list for a block as old as this"))?;
            let list = self.own_list(key).await?;
            self.space = self.space.plus(self.lists.append(list, &entries).await?);
        }
        self.store_space().await
    }

    /// Begins the last list, for births after a txg (`dsl_deadlist_add_key`).
    ///
    /// # Errors
    /// The key exists; damaged MOS.
    #[boxed]
    pub async fn add_key(&mut self, after: Txg) -> Result<()> {
        let Some(by_birth) = &mut self.by_birth else { return Ok(()) };
        let list = self.lists.create_empty().await?;
        ZapEdit::new(self.lists.mos, self.object).add(&deadlist_key(after), list.0).await?;
        by_birth.add(after, list, self.lists.shared_empty().await?);
        Ok(())
    }

    /// Adds a list to the one before it (`dsl_deadlist_remove_key`).
    ///
    /// # Errors
    /// No such key, or none before; damage.
    #[boxed]
    pub async fn remove_key(&mut self, after: Txg) -> Result<()> {
        let Some(by_birth) = &mut self.by_birth else { return Ok(()) };
        let before = by_birth.last_before(after);
        let before = before.ok_or_else(|| self.damaged("has no list before that which is removed"))?;
        let list = self.take_key(after).await?;
        self.add_to(before, list).await.map(|_| ())
    }

    /// Absorbs another deadlist (`dsl_deadlist_merge`).
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn merge(&mut self, other: DeadlistEdit<'_>) -> Result<()> {
        let mut remains = Remains::default();
        other.dissolve(&mut remains).await?;
        self.absorb(remains).await
    }

    /// Frees it, and adds its own lists to `remains`.
    ///
    /// # Errors
    /// Damage.
    pub async fn dissolve(mut self, remains: &mut Remains) -> Result<()> {
        let Some(keys) = self.by_birth.take() else {
            remains.plain.push(self.object);
            return Ok(());
        };
        for (key, list) in keys.own(..) {
            remains.add(self.lists, key, list).await?;
        }
        self.lists.free_all(keys.into_empties()).await?;
        self.lists.mos.destroy(self.object).await
    }

    /// Absorbs lists of dissolved deadlists.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn absorb(&mut self, remains: Remains) -> Result<()> {
        for plain in remains.plain {
            let mut entries = Bpobj::open(&self.lists.mos.view(), plain).await?.entries();
            while let Some(batch) = entries.next_batch().await {
                self.insert(&batch?).await?;
            }
            self.lists.free(plain).await?;
        }
        let is_partial = self.by_birth.as_ref().is_some_and(Keys::are_partial);
        for (key, list) in remains.by_birth {
            // A list without an equal key here goes to the one before.
            let own = self.by_birth.as_mut().and_then(|keys| keys.last_before(Txg(key.0.saturating_add(1))));
            let own = own.filter(|_| !is_partial);
            let own = own.ok_or_else(|| self.damaged("has no list for blocks as old as these"))?;
            self.space = self.space.plus(self.add_to(own, list).await?);
        }
        self.store_space().await
    }

    /// Makes a deadlist with the keys below a txg and empty lists (`dsl_deadlist_clone`).
    ///
    /// # Errors
    /// Damaged MOS.
    #[boxed]
    pub async fn clone_keys(&self, below: Txg) -> Result<ObjectId> {
        if self.by_birth.as_ref().is_some_and(Keys::are_partial) {
            return DeadlistEdit::open(self.lists, self.object).await?.clone_keys(below).await;
        }
        if let Some(copy) = self.copy_table(below).await? {
            return Ok(copy);
        }
        let clone = DeadlistEdit::create(self.lists).await?;
        let mut keys = self.by_birth.as_ref().map_or(Vec::new(), |keys| keys.within(Txg(0), below));
        keys.dedup();
        let table = ZapEdit::new(self.lists.mos, clone.object);
        for (key, list) in keys.iter().zip(self.lists.create_empties(keys.len()).await?) {
            table.add(&deadlist_key(*key), list.0).await?;
        }
        Ok(clone.object)
    }

    /// The same, if all keys are below: thousands at once. `None`: the keys have to be added one by one, as
    /// with a damaged table, since the task may have changed much already.
    async fn copy_table(&self, below: Txg) -> Result<Option<ObjectId>> {
        let Some(keys) = self.by_birth.as_ref().filter(|keys| keys.last().is_some_and(|last| last < below))
        else {
            return Ok(None);
        };
        // The table in memory is that on disk.
        if !self.gone.is_empty() || !self.lists.shares_empty().await? {
            return Ok(None);
        }
        let lists = self.lists.create_empties(keys.len()).await?;
        let Some(empty) = lists.first() else { return Ok(None) };
        let copied = copy_with(self.lists.mos, self.object, new_table(), empty.0, keys.len()).await?;
        if copied.is_none() {
            self.lists.free_all(lists).await?;
        }
        Ok(copied)
    }

    /// [`DeadlistEdit::add_key`] to a deadlist that is not open, without looking at its other keys.
    ///
    /// # Errors
    /// The key exists; damaged MOS.
    pub async fn add_key_to(lists: BlockLists<'a>, object: ObjectId, after: Txg) -> Result<()> {
        if lists.mos.view().head(object).await?.object_type != ObjectType::DEADLIST {
            return Ok(());
        }
        let list = lists.create_empty().await?;
        ZapEdit::new(lists.mos, object).add(&deadlist_key(after), list.0).await
    }

    /// Moves the lists from a key on to a plain list, such as that of blocks to free
    /// (`dsl_deadlist_move_bpobj`).
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn move_to(&mut self, list: ObjectId, from: Txg) -> Result<()> {
        for key in self.by_birth.as_ref().map_or(Vec::new(), |keys| keys.within(from, Txg(u64::MAX))) {
            let moved = self.take_key(key).await?;
            self.space = self.space.minus(self.lists.append_list(list, moved).await?);
        }
        self.store_space().await
    }

    /// Frees it with all its lists (`dsl_deadlist_free`).
    ///
    /// # Errors
    /// Damage.
    pub async fn free(self) -> Result<()> {
        let Some(by_birth) = self.by_birth else { return self.lists.free(self.object).await };
        self.lists.free_all(by_birth.into_lists()).await?;
        self.lists.mos.destroy(self.object).await
    }

    /// Replaces the shared empty list by an own one.
    async fn own_list(&mut self, key: Txg) -> Result<ObjectId> {
        let list = self.list(key)?;
        if self.lists.shared_empty().await? != Some(list) {
            return Ok(list);
        }
        let own = self.lists.create().await?;
        self.lists.free(list).await?;
        self.set_list(key, own);
        Ok(own)
    }

    /// Adds a list to a key's list, or replaces the shared empty one.
    async fn add_to(&mut self, key: Txg, added: ObjectId) -> Result<BlockSpace> {
        let list = self.list(key)?;
        if self.lists.shared_empty().await? != Some(list) {
            return self.lists.append_list(list, added).await;
        }
        let space = BlockSpace::of_list(Bpobj::open(&self.lists.mos.view(), added).await?.phys());
        self.lists.free(list).await?;
        self.set_list(key, added);
        Ok(space)
    }

    fn list(&mut self, key: Txg) -> Result<ObjectId> {
        let list = self.by_birth.as_mut().and_then(|keys| keys.get(key));
        list.ok_or_else(|| self.damaged("has no list under that key"))
    }

    fn set_list(&mut self, key: Txg, list: ObjectId) {
        if let Some(keys) = &mut self.by_birth {
            keys.set(key, list);
            self.changed.insert(key);
        }
    }

    async fn take_key(&mut self, key: Txg) -> Result<ObjectId> {
        let list = self.list(key)?;
        ZapEdit::new(self.lists.mos, self.object).remove(&deadlist_key(key)).await?;
        if let Some(keys) = &mut self.by_birth {
            keys.take(key);
        }
        self.changed.remove(&key);
        Ok(list)
    }

    async fn store_space(&self) -> Result<()> {
        let BlockSpace { used_bytes, compressed_bytes, uncompressed_bytes } = self.space;
        let phys = DeadlistPhys { used_bytes, compressed_bytes, uncompressed_bytes, pad: Pad };
        match self.by_birth {
            Some(_) => self.lists.mos.set_bonus_words(self.object, &phys.to_words()).await,
            None => Ok(()),
        }
    }

    fn damaged(&self, why: &str) -> crate::error::DatasetError {
        self.lists.mos.damaged(self.object, why)
    }
}

fn new_table() -> NewObject {
    let bonus = vec![0; DeadlistPhys::COUNT * 8];
    NewObject::of(ObjectType::DEADLIST).bonus(ObjectType::DEADLIST_HDR, bonus)
}

fn space_of(phys: &DeadlistPhys) -> BlockSpace {
    let (compressed_bytes, uncompressed_bytes) = (phys.compressed_bytes, phys.uncompressed_bytes);
    BlockSpace { used_bytes: phys.used_bytes, compressed_bytes, uncompressed_bytes }
}
