//! What syncing a change will read of the tree on disk is read before the change is accepted.
//!
//! Idea: a block takes its place by way of the indirect blocks above it, which are read, patched and written
//! anew when the txg syncs; what is freed is found through them as well. If one could not be read only then,
//! nobody could be told, and the txg of all others would fail. So whoever changes an object reads them first,
//! and hears of it. Then they are in the cache, where the sync finds them.
//!
//! What becomes unreadable between the two is confined: see `write/objset`.
//!
//! Source: OpenZFS `dmu_tx.c` (`dmu_tx_check_ioerr`, `dmu_tx_hold_write`, `dmu_tx_hold_free`).

use std::ops::Range;

use cenote_format::dnode::DnodeHead;
use cenote_format::units::{BlockId, ObjectId};

use crate::error::{DatasetError, Result};
use crate::live::edit::Edit;
use crate::object::Object;

impl Edit {
    /// Reads what leads to blocks that are to be written.
    pub(super) async fn reach(
        &self,
        object: ObjectId,
        head: &DnodeHead,
        first: BlockId,
        last: BlockId,
    ) -> Result<()> {
        let shift = head.fanout_shift();
        for indirect in first.0 >> shift..=last.0 >> shift {
            if self.layer.has_read(object, indirect) {
                continue;
            }
            if let Some(old) = self.object_on_disk(object).await? {
                old.blkptr(0, BlockId(indirect << shift)).await?;
            }
            self.layer.note_read(object, indirect);
        }
        Ok(())
    }

    /// Reads what leads to all blocks of a range that are on disk.
    pub(super) async fn reach_all(&self, object: ObjectId, blocks: Range<u64>) -> Result<()> {
        let Some(old) = self.object_on_disk(object).await?.filter(|old| old.dnode().levels > 1) else {
            return Ok(());
        };
        let mut next = blocks.start;
        while let Some((runs, after)) = old.next_pointers(next, blocks.end).await? {
            for run in runs {
                run.pointers?;
            }
            next = after;
        }
        Ok(())
    }

    /// The object whose blocks a change replaces; `None`: it has none on disk.
    async fn object_on_disk(&self, object: ObjectId) -> Result<Option<Object>> {
        if self.view().layers().object(object).is_some_and(|changed| changed.fresh) {
            return Ok(None);
        }
        match self.on_disk().object(object).await {
            Ok(old) => Ok(Some(old)),
            Err(DatasetError::NoObject { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
