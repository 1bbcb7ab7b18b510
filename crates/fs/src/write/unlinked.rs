//! The delete queue: files without names, still open or being freed.
//!
//! Idea: a file without names stays in the queue until freed, so a crash leaks nothing: the next opening of
//! the file system drains the queue. Large files are freed in steps, from their end, to limit the work of
//! each txg. A file that can't be freed (damaged, or it has names after all) stays in the queue and blocks no
//! other and no mount.
//!
//! The queue may also have hidden directories of extended attributes: the module frees a file before its
//! hidden directory, which is an entry of its own until then.
//!
//! Locking: the queue's mutex is taken after the file's lock. It is held for one change of the queue's table.
//!
//! Source: OpenZFS `zfs_dir.c` (`zfs_unlinked_add`, `zfs_unlinked_drain`, `zfs_rmnode`).

use std::collections::BTreeSet;

use cenote_boxed::boxed;
use cenote_engine::{Engine, Need};
use cenote_format::sa::ZplAttr;
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::znode::FileKind;
use cenote_object::{DatasetError, Edit, Zap, ZapEdit};

use super::znode::Znode;
use super::{Change, FsWriter};
use crate::attr::pflags;
use crate::error::{FsError, Refusal, Result};
use crate::filesystem::MasterNode;

/// Blocks freed in one step: with 128 KiB records, 16 GiB.
const STEP_BLOCKS: u64 = 1 << 17;

/// The table of files without names.
pub(super) struct DeleteQueue {
    table: Option<ObjectId>,
    /// Held while the table changes.
    turn: tokio::sync::Mutex<()>,
    /// Files created without a name that have none yet.
    unnamed: parking_lot::Mutex<BTreeSet<ObjectId>>,
}

impl DeleteQueue {
    pub(super) fn new(master: &MasterNode) -> DeleteQueue {
        let (turn, unnamed) = (tokio::sync::Mutex::default(), parking_lot::Mutex::default());
        DeleteQueue { table: master.delete_queue, turn, unnamed }
    }

    /// Adds a file that lost its last name.
    pub(super) async fn add(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        let _turn = self.turn.lock().await;
        edit.view().traffic().unlinked();
        Ok(ZapEdit::new(edit, self.table()?).update(&name_of(object), object.0).await?)
    }

    pub(super) async fn add_unnamed(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        self.unnamed.lock().insert(object);
        self.add(edit, object).await
    }

    /// Removes the entry of a removed object, unless its number has become that of an unnamed file.
    async fn remove_stale(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        let _turn = self.turn.lock().await;
        if self.has_unnamed(object) { Ok(()) } else { self.remove_entry(edit, object).await }
    }

    /// Whether it was created without a name, and has none yet.
    pub(super) fn has_unnamed(&self, object: ObjectId) -> bool {
        self.unnamed.lock().contains(&object)
    }

    /// Removes a file, if it is there: it is gone, or got a name.
    pub(super) async fn remove(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.unnamed.lock().remove(&object);
        self.remove_entry(edit, object).await
    }

    async fn remove_entry(&self, edit: &Edit, object: ObjectId) -> Result<()> {
        match ZapEdit::new(edit, self.table()?).remove(&name_of(object)).await {
            Ok(()) | Err(DatasetError::NoEntry { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn files(&self, edit: &Edit) -> Result<Vec<ObjectId>> {
        let entries = Zap::open_id(&edit.view(), self.table()?).await?.to_vec().await?;
        Ok(entries.into_iter().filter_map(|entry| entry.value.as_u64()).map(ObjectId).collect())
    }

    fn table(&self) -> Result<ObjectId> {
        self.table.ok_or(FsError::MasterNode { name: "DELETE_QUEUE" })
    }
}

fn name_of(object: ObjectId) -> String {
    format!("{:x}", object.0)
}

impl FsWriter {
    /// Frees a file without names, or part of it, unless the file system's [`Holder`] keeps it. Returns
    /// whether the caller is done with it; if not, continue in another txg.
    ///
    /// # Errors
    /// It has names; damage.
    ///
    /// [`Holder`]: super::Holder
    #[boxed]
    pub async fn free_unlinked(&self, change: Change<'_>, object: ObjectId) -> Result<bool> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let node = match self.load(change.edit, object).await {
            // Another task was faster, or freed it along with its file.
            Err(FsError::NoObject { .. }) => {
                self.0.queue.remove_stale(change.edit, object).await?;
                return Ok(true);
            }
            node => node?,
        };
        if node.u64(ZplAttr::Links)? != 0 {
            return Err(Refusal::Exists.of(object));
        }
        if self.holder().is_some_and(|holder| holder.keeps(object)) {
            return Ok(true);
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
        if node.is_dir()? && node.has_flag(pflags::XATTR)? {
            self.free_xattr_files(change.edit, &node).await?;
        }
        self.destroy(change.edit, &node).await?;
        self.0.queue.remove(change.edit, object).await?;
        change.edit.view().traffic().freed();
        Ok(true)
    }

    /// Frees the unused files of the delete queue, in as many txgs as it takes. Must not be called under a
    /// hold.
    ///
    /// # Errors
    /// A txg could not be written.
    #[boxed]
    pub async fn free_all_unlinked(&self, engine: &Engine) -> Result<()> {
        match self.view().unlinked().await {
            Ok(files) if !files.is_empty() => {}
            Err(error) if !error.is_damage() => return Err(error),
            _ => return Ok(()),
        }
        while self.change(engine, Need::Free, |fs, change| fs.drain_delete_queue(change)).await? > 0 {
            engine.sync_all().await?;
        }
        Ok(())
    }

    /// Frees as much of the delete queue as one txg allows, and nothing that is in use or can't be freed.
    /// Returns the number of files left; if any, continue in another txg.
    ///
    /// # Errors
    /// The pool takes no changes.
    #[boxed]
    pub async fn drain_delete_queue(&self, change: Change<'_>) -> Result<usize> {
        let mut left = 0;
        let files = match self.0.queue.files(change.edit).await {
            // Its files stay where they are.
            Err(error) if error.is_damage() => return Ok(0),
            files => files?,
        };
        for id in files {
            // A file just created without a name is about to be opened.
            if self.is_unnamed(id) {
                continue;
            }
            match self.free_unlinked(change, id).await {
                Ok(is_done) => left += usize::from(!is_done),
                Err(error @ FsError::Dataset(DatasetError::Stopped { .. })) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(left)
    }

    /// Frees an object and everything only it owns, besides its blocks.
    pub(super) async fn destroy(&self, edit: &Edit, node: &Znode) -> Result<()> {
        self.log().inspect(|log| log.forget(node.id));
        self.0.znodes.destroy(edit, node).await?;
        self.holder().inspect(|holder| holder.freed(node.id));
        Ok(())
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
}
