//! Deadlists of datasets, as tasks change them when versions come and go.
//!
//! Source: OpenZFS `dsl_destroy.c` (`dsl_dir_remove_clones_key`).

use cenote_format::units::{ObjectId, Txg};

use crate::deadlist::{BlockLists, BlockSpace, DeadlistEdit};
use crate::engine::SyncContext;
use crate::error::Result;
use crate::sync::blocks::Space;
use crate::zap::Zap;

impl SyncContext {
    /// Space of a deadlist's blocks under keys from `from` up to, not including, `to`.
    pub(super) async fn dead_space(&self, deadlist: ObjectId, from: Txg, to: Txg) -> Result<Space> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let opened = DeadlistEdit::open(BlockLists::new(&edit, &dsize), deadlist).await?;
        Ok(opened.space_between(from, to).await?.into())
    }

    /// Space of all of a deadlist's blocks.
    pub(super) async fn all_dead_space(&self, deadlist: ObjectId) -> Result<Space> {
        let (edit, dsize) = (self.edit(), self.dsize());
        Ok(DeadlistEdit::open(BlockLists::new(&edit, &dsize), deadlist).await?.space().into())
    }

    /// Frees a deadlist's blocks born after `from`, and the keys from there on.
    pub(super) async fn free_dead_from(&self, deadlist: ObjectId, from: Txg) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let mut opened = DeadlistEdit::open(BlockLists::new(&edit, &dsize), deadlist).await?;
        for (key, list) in opened.lists_from(from).await? {
            let mut entries = list.entries();
            while let Some(batch) = entries.next_batch().await {
                for entry in batch? {
                    self.free_now(&entry.bp).await?;
                }
            }
            opened.drop_key(key).await?;
        }
        for bp in opened.take_from_plain(from).await? {
            self.free_now(&bp).await?;
        }
        Ok(())
    }

    /// Moves all of a deadlist's blocks to another, and gives it up.
    pub(super) async fn merge_deadlist(&self, into: ObjectId, deadlist: ObjectId) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let lists = BlockLists::new(&edit, &dsize);
        let mut from = DeadlistEdit::open(lists, deadlist).await?;
        DeadlistEdit::open(lists, into).await?.merge(&mut from).await?;
        from.free().await
    }

    pub(super) async fn free_deadlist(&self, deadlist: ObjectId) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        DeadlistEdit::open(BlockLists::new(&edit, &dsize), deadlist).await?.free().await
    }

    pub(super) async fn remove_deadlist_key(&self, deadlist: ObjectId, key: Txg) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        DeadlistEdit::open(BlockLists::new(&edit, &dsize), deadlist).await?.remove_key(key).await
    }

    /// A snapshot is gone: the heads of clones made from later ones tell its blocks no longer apart.
    pub(super) async fn remove_key_of_clones(&self, dir: ObjectId, key: Txg) -> Result<()> {
        let mut pending = vec![dir];
        while let Some(dir) = pending.pop() {
            let clones = self.dir_phys(dir).await?.clones_zap;
            if clones.0 == 0 {
                continue;
            }
            for entry in Zap::open_id(&self.edit().view(), clones).await?.to_vec().await? {
                let Some(clone) = entry.value.as_u64().map(ObjectId) else { continue };
                let phys = self.dataset_phys(clone).await?;
                if self.origin_txg(phys.dir).await? > key {
                    self.forget_key(clone, key).await?;
                    pending.push(phys.dir);
                }
            }
        }
        Ok(())
    }
}

impl From<BlockSpace> for Space {
    fn from(space: BlockSpace) -> Space {
        Space {
            used: space.used_bytes as i64,
            compressed: space.compressed_bytes as i64,
            uncompressed: space.uncompressed_bytes as i64,
        }
    }
}
