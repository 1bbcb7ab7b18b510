//! Changes to deadlists as snapshots and heads come and go.
//!
//! Idea: opening a deadlist costs time for each of its keys, one per earlier snapshot. A task that destroys
//! many snapshots in a row keeps the deadlists that successive steps share open, stores the remaining ones at
//! the end, and opens following ones ahead in parallel: only this module changes deadlists in this txg.
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_dir_remove_clones_key`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::Result;
use cenote_object::deadlist::{BlockLists, DeadlistEdit, PutAside};

use crate::context::SyncContext;
use crate::store::space_delta::SpaceDelta;

/// Most keys in open deadlists, about: 48 bytes each.
const KEPT_KEYS_MAX: usize = 1 << 20;

impl SyncContext {
    /// Keeps deadlists open until [`SyncContext::store_deadlists`].
    pub fn keep_deadlists(&self) {
        self.deadlists.lock().is_kept = true;
    }

    /// Stores the open deadlists, and keeps none from now on.
    #[boxed]
    pub async fn store_deadlists(&self) -> Result<()> {
        // Drops unused ones opened ahead.
        let kept = std::mem::take(&mut *self.deadlists.lock());
        self.store_aside(kept.aside).await
    }

    async fn store_aside(&self, aside: BTreeMap<ObjectId, PutAside>) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        for (id, aside) in aside {
            DeadlistEdit::resume(BlockLists::new(&edit, &dsize), id, aside).store().await?;
        }
        Ok(())
    }

    /// Return it with [`SyncContext::close_deadlist`] unless destroyed.
    #[boxed]
    pub async fn open_deadlist<'a>(&self, lists: BlockLists<'a>, id: ObjectId) -> Result<DeadlistEdit<'a>> {
        let (aside, ahead) = {
            let mut kept = self.deadlists.lock();
            (kept.aside.remove(&id), kept.ahead.remove(&id))
        };
        match (aside, ahead) {
            (Some(aside), _) => Ok(DeadlistEdit::resume(lists, id, aside)),
            // A failed task left nothing.
            (None, Some(ahead)) => match ahead.await {
                Ok(aside) => Ok(DeadlistEdit::resume(lists, id, aside?)),
                Err(_) => DeadlistEdit::open(lists, id).await,
            },
            (None, None) => DeadlistEdit::open(lists, id).await,
        }
    }

    /// Opens a deadlist ahead, if deadlists are kept.
    pub fn expect_deadlist(&self, id: ObjectId) {
        let mut kept = self.deadlists.lock();
        if !kept.is_kept || kept.aside.contains_key(&id) || kept.ahead.contains_key(&id) {
            return;
        }
        let (edit, dsize) = (self.edit(), self.dsize());
        let opening = async move {
            let lists = BlockLists::new(&edit, &dsize);
            Ok(DeadlistEdit::open(lists, id).await?.put_aside())
        };
        kept.ahead.insert(id, self.runtime().spawn(opening).abort_on_drop());
    }

    /// Stores or keeps an open deadlist.
    #[boxed]
    pub async fn close_deadlist(&self, mut opened: DeadlistEdit<'_>) -> Result<()> {
        if !self.deadlists.lock().is_kept {
            return opened.store().await;
        }
        let too_many = {
            let mut kept = self.deadlists.lock();
            kept.aside.insert(opened.object(), opened.put_aside());
            let keys: usize = kept.aside.values().map(PutAside::key_count).sum();
            if keys > KEPT_KEYS_MAX { std::mem::take(&mut kept.aside) } else { BTreeMap::new() }
        };
        self.store_aside(too_many).await
    }

    /// Space of a deadlist's blocks under keys in `from..to`.
    #[boxed]
    pub async fn dead_space(&self, deadlist: ObjectId, from: Txg, to: Txg) -> Result<SpaceDelta> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let opened = self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?;
        let space = opened.space_between(from, to).await?.into();
        self.close_deadlist(opened).await?;
        Ok(space)
    }

    /// Space of all blocks of a deadlist.
    #[boxed]
    pub async fn all_dead_space(&self, deadlist: ObjectId) -> Result<SpaceDelta> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let opened = self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?;
        let space = opened.space().into();
        self.close_deadlist(opened).await?;
        Ok(space)
    }

    /// Frees a deadlist's blocks born after `from`, and the keys from there on.
    #[boxed]
    pub async fn free_dead_from(&self, deadlist: ObjectId, from: Txg) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let lists = BlockLists::new(&edit, &dsize);
        let mut opened = self.open_deadlist(lists, deadlist).await?;
        for list in opened.lists_from(from).await? {
            let (mut entries, mut left_bytes) = (list.entries(), list.phys().bytes);
            while let Some(batch) = entries.next_batch().await {
                let batch = match batch {
                    Err(error) if error.is_damage() => {
                        self.syncing.pool.read_errors().note_leak(left_bytes, &error);
                        break;
                    }
                    batch => batch?,
                };
                let blocks: Vec<_> = batch.into_iter().map(|entry| entry.bp).collect();
                left_bytes = left_bytes.saturating_sub(blocks.iter().map(&dsize).sum());
                self.free_all(&blocks).await?;
            }
        }
        opened.drop_from(from).await?;
        self.free_all(&opened.take_from_plain(from).await?).await?;
        self.close_deadlist(opened).await
    }

    /// Moves all blocks of a deadlist to another, and frees it.
    #[boxed]
    pub async fn merge_deadlist(&self, into: ObjectId, deadlist: ObjectId) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let lists = BlockLists::new(&edit, &dsize);
        let from = self.open_deadlist(lists, deadlist).await?;
        let mut into = self.open_deadlist(lists, into).await?;
        into.merge(from).await?;
        self.close_deadlist(into).await
    }

    /// Frees a deadlist and its lists.
    #[boxed]
    pub async fn free_deadlist(&self, deadlist: ObjectId) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?.free().await
    }

    /// Removes a key and merges its list into the one before.
    #[boxed]
    pub async fn remove_deadlist_key(&self, deadlist: ObjectId, key: Txg) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let mut opened = self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?;
        opened.remove_key(key).await?;
        self.close_deadlist(opened).await
    }
}
