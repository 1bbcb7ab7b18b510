//! Pointers that lead past a removed vdev's mapping: what becomes of the mapping's parts.
//!
//! Idea: when OpenZFS rewrites a block of pointers, those to blocks on a removed vdev are made to lead to where the blocks are now. The mapping's part is
//! needed then only by snapshots that have the old pointer, if any: it goes to a list beside the deadlist, which travels with it from snapshot to
//! snapshot, and is obsolete when the last of them goes. This engine leaves pointers as they are and makes no such entries, but keeps the lists.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_block_remapped`), `dsl_destroy.c` (`dsl_destroy_snapshot_handle_remaps`).

use cenote_format::dsl::DslDatasetPhys;
use cenote_format::dsl::names::dataset_field;
use cenote_format::units::{ObjectId, Txg};

use crate::deadlist::{BlockLists, DeadlistEdit};
use crate::engine::SyncContext;
use crate::error::Result;
use crate::zap::ZapEdit;

const FEATURE: &str = "obsolete_counts";

impl SyncContext {
    async fn remapped(&self, dataset: ObjectId) -> Result<Option<ObjectId>> {
        self.dataset_field(dataset, dataset_field::REMAP_DEADLIST).await
    }

    /// A snapshot that is taken gets the list of its head.
    pub(super) async fn hand_down_remapped(&mut self, head: ObjectId, snapshot: ObjectId) -> Result<()> {
        let Some(list) = self.remapped(head).await? else { return Ok(()) };
        ZapEdit::new(&self.edit(), head).remove(dataset_field::REMAP_DEADLIST).await?;
        self.set_remapped(snapshot, list).await
    }

    /// A snapshot goes: what only it needed is obsolete, the rest is for the version after it.
    pub(super) async fn leave_remapped(&mut self, id: ObjectId, snapshot: &DslDatasetPhys) -> Result<()> {
        let next = snapshot.next_snapshot;
        if let Some(list) = self.remapped(next).await? {
            self.make_obsolete(list, snapshot.prev_snapshot_txg).await?;
        }
        let Some(own) = self.remapped(id).await? else { return Ok(()) };
        let into = match self.remapped(next).await? {
            Some(list) => list,
            None => {
                let keys_of = self.dataset_phys(next).await?.deadlist;
                let list = self.clone_deadlist(keys_of, Txg(u64::MAX)).await?;
                self.set_remapped(next, list).await?;
                self.use_feature(FEATURE, 1).await?;
                list
            }
        };
        self.merge_deadlist(into, own).await?;
        ZapEdit::new(&self.edit(), id).remove(dataset_field::REMAP_DEADLIST).await?;
        self.use_feature(FEATURE, -1).await
    }

    /// A dataset needs its list no longer: its origin has all that is on it.
    pub(super) async fn drop_remapped(&mut self, id: ObjectId) -> Result<()> {
        let Some(list) = self.remapped(id).await? else { return Ok(()) };
        self.free_deadlist(list).await?;
        ZapEdit::new(&self.edit(), id).remove(dataset_field::REMAP_DEADLIST).await?;
        self.use_feature(FEATURE, -1).await
    }

    /// A snapshot is gone: a dataset's lists tell no longer what was born before it.
    pub(super) async fn forget_key(&self, dataset: ObjectId, key: Txg) -> Result<()> {
        self.remove_deadlist_key(self.dataset_phys(dataset).await?.deadlist, key).await?;
        match self.remapped(dataset).await? {
            Some(list) => self.remove_deadlist_key(list, key).await,
            None => Ok(()),
        }
    }

    async fn set_remapped(&mut self, dataset: ObjectId, list: ObjectId) -> Result<()> {
        self.zapify(dataset).await?;
        ZapEdit::new(&self.edit(), dataset).add(dataset_field::REMAP_DEADLIST, list.0).await
    }

    async fn make_obsolete(&self, list: ObjectId, from: Txg) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let mut opened = DeadlistEdit::open(BlockLists::new(&edit, &dsize), list).await?;
        for (key, list) in opened.lists_from(from).await? {
            let mut entries = list.entries();
            while let Some(batch) = entries.next_batch().await {
                for dva in batch?.iter().filter_map(|entry| entry.bp.dvas().next()) {
                    self.group.allocator.note_obsolete(&dva);
                }
            }
            opened.drop_key(key).await?;
        }
        Ok(())
    }
}
