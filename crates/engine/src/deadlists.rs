//! Deadlists of datasets, as tasks change them when versions come and go.
//!
//! Idea: a deadlist has a key for each snapshot that there was when its own was taken, so opening one costs
//! what there are snapshots. Whoever destroys many in a row keeps those opened that one and the next have in
//! common; they are stored at the end, if they are still there. Those that follow are opened ahead, by a task
//! for each: nobody else changes them in this txg, since all who do open them here.
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_dir_remove_clones_key`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::Result;
use cenote_object::deadlist::{BlockLists, DeadlistEdit, PutAside};

use crate::context::SyncContext;
use crate::store::space_delta::SpaceDelta;

/// Keys of opened deadlists that are kept, about: 48 bytes each.
const KEPT_KEYS_MAX: usize = 1 << 20;

impl SyncContext {
    /// Keeps deadlists opened until [`SyncContext::store_deadlists`].
    pub fn keep_deadlists(&self) {
        self.deadlists.lock().is_kept = true;
    }

    /// Stores the deadlists that are kept opened, and keeps none from now on.
    #[boxed]
    pub async fn store_deadlists(&self) -> Result<()> {
        // Those that were opened ahead in vain go.
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

    /// A deadlist, to be given back with [`SyncContext::close_deadlist`] unless it goes.
    #[boxed]
    pub async fn open_deadlist<'a>(&self, lists: BlockLists<'a>, id: ObjectId) -> Result<DeadlistEdit<'a>> {
        let (aside, ahead) = {
            let mut kept = self.deadlists.lock();
            (kept.aside.remove(&id), kept.ahead.remove(&id))
        };
        match (aside, ahead) {
            (Some(aside), _) => Ok(DeadlistEdit::resume(lists, id, aside)),
            // A task that failed in another way has left nothing.
            (None, Some(ahead)) => match ahead.await {
                Ok(aside) => Ok(DeadlistEdit::resume(lists, id, aside?)),
                Err(_) => DeadlistEdit::open(lists, id).await,
            },
            (None, None) => DeadlistEdit::open(lists, id).await,
        }
    }

    /// A deadlist will be opened soon: it is read meanwhile. Only while deadlists are kept.
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

    /// Gives an opened deadlist back: stored, or kept.
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

    /// Space of a deadlist's blocks under keys from `from` up to, not including, `to`.
    #[boxed]
    pub async fn dead_space(&self, deadlist: ObjectId, from: Txg, to: Txg) -> Result<SpaceDelta> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let opened = self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?;
        let space = opened.space_between(from, to).await?.into();
        self.close_deadlist(opened).await?;
        Ok(space)
    }

    /// Space of all of a deadlist's blocks.
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
                        self.syncing.pool.note_leak(left_bytes, &error);
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

    /// Moves all of a deadlist's blocks to another, and gives it up.
    #[boxed]
    pub async fn merge_deadlist(&self, into: ObjectId, deadlist: ObjectId) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let lists = BlockLists::new(&edit, &dsize);
        let from = self.open_deadlist(lists, deadlist).await?;
        let mut into = self.open_deadlist(lists, into).await?;
        into.merge(from).await?;
        self.close_deadlist(into).await
    }

    /// Gives a deadlist up, with its lists.
    #[boxed]
    pub async fn free_deadlist(&self, deadlist: ObjectId) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?.free().await
    }

    /// A deadlist does not tell apart any more what was born up to that txg.
    #[boxed]
    pub async fn remove_deadlist_key(&self, deadlist: ObjectId, key: Txg) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let mut opened = self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?;
        opened.remove_key(key).await?;
        self.close_deadlist(opened).await
    }
}
