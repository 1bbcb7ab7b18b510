//! The delete queue: files without names that are still open, or still being freed.
//!
//! Idea: a file without names stays in the queue until it is freed, so a crash leaves nothing behind: the
//! next opening of the file system drains the queue. Large files are freed in steps, from their end, to limit
//! the work of each txg.
//!
//! Locking: the queue's mutex is taken after the file's lock. It is held for one change of the queue's table.
//!
//! Source: OpenZFS `zfs_dir.c` (`zfs_unlinked_add`, `zfs_unlinked_drain`, `zfs_rmnode`).

use cenote_boxed::boxed;
use cenote_engine::{Engine, Need};
use cenote_format::sa::ZplAttr;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::znode::FileKind;
use cenote_object::{DatasetError, Edit, Zap, ZapEdit};

use super::{Change, FsWriter};
use crate::error::{FsError, Refusal, Result};

/// Blocks freed in one step: with 128 KiB records, 16 GiB.
const STEP_BLOCKS: u64 = 1 << 17;

impl FsWriter {
    /// Adds a file without names.
    pub(super) async fn enqueue(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        let _turn = self.0.queue.lock().await;
        let queue = self.delete_queue()?;
        Ok(ZapEdit::new(edit, queue).update(&format!("{:x}", object.0), object.0).await?)
    }

    /// Frees a file without names that is no longer open, or part of it. Returns whether it is gone; if not,
    /// continue in another txg.
    ///
    /// # Errors
    /// It has names; damage.
    #[boxed]
    pub async fn free_unlinked(&self, change: Change<'_>, object: ObjectId) -> Result<bool> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let node = self.load(change.edit, object).await?;
        if node.u64(ZplAttr::Links)? != 0 {
            return Err(Refusal::Exists.of(object));
        }
        if node.kind()? == FileKind::Regular && node.max_block.0 >= STEP_BLOCKS {
            let left = self.last_data_block(change.edit, object).await?;
            if left >= STEP_BLOCKS {
                let first = BlockId(left - STEP_BLOCKS + 1);
                change.edit.punch(object, first, node.max_block.0 - first.0 + 1).await?;
                return Ok(false);
            }
        }
        self.free_xattr_dir(change.edit, &node).await?;
        self.destroy(change.edit, &node).await?;
        self.0.unnamed.lock().remove(&object);
        self.dequeue(change.edit, object).await?;
        Ok(true)
    }

    /// Removes a file from the queue, if it is there.
    pub(super) async fn dequeue(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        let _turn = self.0.queue.lock().await;
        let queue = self.delete_queue()?;
        match ZapEdit::new(edit, queue).remove(&format!("{:x}", object.0)).await {
            Ok(()) | Err(DatasetError::NoEntry { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Frees the files of the delete queue, in a file system that is not in use yet, in as many txgs as it
    /// takes. Must not be called under a hold.
    ///
    /// # Errors
    /// The queue or a file in it is damaged, or a txg could not be written.
    #[boxed]
    pub async fn free_all_unlinked(&self, engine: &Engine) -> Result<()> {
        if self.view().unlinked().await?.is_empty() {
            return Ok(());
        }
        while self.change(engine, Need::Free, |fs, change| fs.drain_delete_queue(change)).await? > 0 {
            engine.sync_all().await?;
        }
        Ok(())
    }

    /// Frees as much of the delete queue as one txg allows. Returns the number of files left; if there are
    /// any, continue in another txg.
    ///
    /// # Errors
    /// The queue or a file in it is damaged.
    #[boxed]
    pub async fn drain_delete_queue(&self, change: Change<'_>) -> Result<usize> {
        let mut left = 0;
        for entry in Zap::open_id(&change.edit.view(), self.delete_queue()?).await?.to_vec().await? {
            let Some(id) = entry.value.as_u64().map(ObjectId) else { continue };
            match self.free_unlinked(change, id).await {
                Ok(true) => {}
                // It is already gone; OpenZFS ignores this too.
                Err(FsError::NoObject { .. }) => {}
                Ok(false) => left += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(left)
    }

    /// Finds the last block with data by binary search: holes at the end cost nothing.
    async fn last_data_block(&self, edit: &Edit, object: ObjectId) -> Result<u64> {
        let object = edit.view().object(object).await?;
        let (mut low, mut high) = (0, object.dnode().max_block_id.0);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            match object.next_data_block(BlockId(middle)).await? {
                Some(found) => low = found.0.min(high),
                None => high = middle - 1,
            }
        }
        Ok(low)
    }

    fn delete_queue(&self) -> Result<ObjectId> {
        self.0.master.delete_queue.ok_or(FsError::MasterNode { name: "DELETE_QUEUE" })
    }
}
