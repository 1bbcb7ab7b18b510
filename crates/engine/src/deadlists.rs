//! Changes to deadlists as snapshots and heads come and go.
//!
//! Idea: opening a deadlist costs time for each of its keys, one per earlier snapshot. A task that destroys
//! many snapshots in a row keeps the deadlists that successive steps share open, stores the remaining ones at
//! the end, and opens following ones ahead in parallel: only this module changes deadlists in this txg. A
//! task on a head's deadlist opens it before the first change, to find damage in time.
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_dir_remove_clones_key`).

use std::collections::BTreeMap;

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{ObjectId, Txg};
use cenote_object::Result;
use cenote_object::deadlist::{BlockLists, DeadlistEdit, PutAside, Remains};

use crate::account::entries;
use crate::context::SyncContext;
use crate::store::space_delta::SpaceDelta;

impl SyncContext {
    /// Keeps deadlists open until [`SyncContext::store_deadlists`].
    pub fn keep_deadlists(&self) {
        self.deadlists.lock().is_kept = true;
    }

    /// Stores the open deadlists, and keeps none from now on.
    #[boxed]
    pub async fn store_deadlists(&self) -> Result<()> {
        // Drops unused ones opened ahead.
        let aside = std::mem::take(&mut *self.deadlists.lock()).take_all();
        self.store_aside(aside).await
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
            (kept.take(id), kept.ahead.remove(&id))
        };
        let of_head = self.engine.head_deadlists.lock().take(id);
        match (aside.or(of_head), ahead) {
            (Some(aside), _) => Ok(DeadlistEdit::resume(lists, id, aside)),
            // A failed task left nothing.
            (None, Some(ahead)) => match ahead.await {
                Ok(aside) => Ok(DeadlistEdit::resume(lists, id, aside?)),
                Err(_) => DeadlistEdit::open(lists, id).await,
            },
            (None, None) => DeadlistEdit::open(lists, id).await,
        }
    }

    /// Opens a deadlist to be dissolved ahead, if deadlists are kept.
    pub fn expect_last_deadlist(&self, id: ObjectId) {
        let mut kept = self.deadlists.lock();
        if !kept.is_kept || kept.is_open(id) {
            return;
        }
        let (edit, dsize) = (self.edit(), self.dsize());
        let opening = async move {
            let lists = BlockLists::new(&edit, &dsize);
            Ok(DeadlistEdit::open_last(lists, id).await?.put_aside())
        };
        kept.ahead.insert(id, self.runtime().spawn(opening).abort_on_drop());
    }

    /// Stores or keeps an open deadlist.
    #[boxed]
    pub async fn close_deadlist(&self, mut opened: DeadlistEdit<'_>) -> Result<()> {
        if !self.deadlists.lock().is_kept {
            return opened.store().await;
        }
        self.put_aside(opened).await
    }

    /// Opens a deadlist, and keeps it until it is next used.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn check_deadlist(&self, id: ObjectId) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let opened = self.open_deadlist(BlockLists::new(&edit, &dsize), id).await?;
        self.put_aside(opened).await
    }

    /// Adds dead blocks to a head's deadlist, which stays open for the next txg.
    pub(crate) async fn append_to_deadlist(&self, id: ObjectId, dead: &[Blkptr]) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let mut opened = self.open_deadlist(BlockLists::new(&edit, &dsize), id).await?;
        opened.insert(&entries(dead)).await?;
        opened.store().await?;
        self.engine.head_deadlists.lock().insert(id, opened.put_aside(), self.txg());
        Ok(())
    }

    async fn put_aside(&self, opened: DeadlistEdit<'_>) -> Result<()> {
        let too_many = self.deadlists.lock().insert(opened.object(), opened.put_aside());
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
        let mut remains = Remains::default();
        self.dissolve_deadlist(deadlist, &mut remains).await?;
        self.absorb_remains(into, remains).await
    }

    /// Frees a deadlist, and adds its lists to `remains`.
    #[boxed]
    pub async fn dissolve_deadlist(&self, deadlist: ObjectId, remains: &mut Remains) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?.dissolve(remains).await
    }

    /// Moves lists of dissolved deadlists to another.
    #[boxed]
    pub async fn absorb_remains(&self, into: ObjectId, remains: Remains) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let mut into = self.open_deadlist(BlockLists::new(&edit, &dsize), into).await?;
        into.absorb(remains).await?;
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
