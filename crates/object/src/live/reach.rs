//! Reads the indirect blocks above a change before it is accepted.
//!
//! Idea: syncing a change reads and patches the indirect blocks above it, and finds freed blocks through
//! them. At that time a read error has no caller to go to, and would fail the txg for all. So a change reads
//! them first and gets the error itself; the sync finds them in the cache.
//!
//! Blocks that become unreadable in between are confined: see `write/objset`.
//!
//! Source: OpenZFS `dmu_tx.c` (`dmu_tx_check_ioerr`, `dmu_tx_hold_write`, `dmu_tx_hold_free`).

use std::ops::Range;

use cenote_format::dnode::DnodeHead;
use cenote_format::units::{BlockId, ObjectId};

use crate::error::{DatasetError, Result};
use crate::live::edit::Edit;
use crate::object::Object;

impl Edit {
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
