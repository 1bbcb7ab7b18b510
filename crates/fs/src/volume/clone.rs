//! Cloning: a range of a volume shares another volume's blocks instead of copying them.
//!
//! ```text
//!   source  [a][b][ ][c']         block c is dirty, only in memory: not clonable before a txg sync
//!            |  |  |
//!   target  [a][b][ ]             pointers to the same blocks, born in this txg; holes stay holes
//! ```
//!
//! Both have the same block size, and the same key if encrypted. References are counted when the txg is
//! synced; until then the source is told that it has lent them. Clones of volumes are not logged: a commit
//! waits for the txg.
//!
//! Locking: both ranges are taken for the whole operation, in the order of data sets and offsets.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_boxed::boxed;
use cenote_engine::SnapshotHold;
use cenote_format::units::{BlockId, Txg};
use cenote_object::Edit;

use super::ranges::Share;
use super::{Volume, VolumeWriter, ZVOL_OBJECT};
use crate::error::{Refusal, Result};

/// Blocks cloned at once: their pointers are in memory.
const MAX_BLOCKS: u64 = 4 << 10;

/// The volume whose blocks are shared.
#[derive(Debug, Clone)]
pub enum VolumeSource {
    /// A live volume, possibly the target itself.
    Live(Arc<VolumeWriter>),
    /// A snapshot, and the hold that keeps it from being destroyed.
    Snapshot(Volume, SnapshotHold),
}

impl VolumeWriter {
    /// Shares the whole blocks of another volume's range, or of another part of this one, at an offset.
    /// Returns the bytes shared from the range's start; 0: impossible, copy instead.
    ///
    /// # Errors
    /// [`Refusal::Again`]: the source has just changed; sync a txg first. It extends beyond an end; damage.
    #[boxed]
    pub async fn clone_range(
        &self,
        edit: &Edit,
        source: &VolumeSource,
        from: Range<u64>,
        to: u64,
    ) -> Result<u64> {
        let block = self.block_bytes();
        let most = block.saturating_mul(MAX_BLOCKS);
        let len = from.end.saturating_sub(from.start).min(most) / block * block;
        let (from, to) = (from.start..from.start + len, to..self.check_range(to, len)?);
        let is_aligned = from.start.is_multiple_of(block) && to.start.is_multiple_of(block);
        let is_apart = !source.is_live(self) || from.end <= to.start || to.end <= from.start;
        if len == 0 || !is_aligned || !is_apart || !self.may_clone(&source.view().await?) {
            return Ok(0);
        }
        let mut theirs = None;
        let mut ours = None;
        if let VolumeSource::Live(other) = source {
            let is_first = (other.live().dataset_id(), from.start) < (self.live().dataset_id(), to.start);
            ours = if is_first { None } else { Some(self.take_inside(to.start, len).await?) };
            theirs = Some(other.ranges.take(from.clone(), Share::Alone).await);
        }
        if ours.is_none() {
            ours = Some(self.take_inside(to.start, len).await?);
        }
        let view = source.view().await?;
        if from.end > view.size_bytes() {
            return Err(Refusal::NoSpace.of(ZVOL_OBJECT));
        }
        let object = view.objset().object(ZVOL_OBJECT).await?;
        let blocks = object.stored_blocks(from.start / block..from.end / block).await?;
        let blocks = blocks.ok_or_else(|| Refusal::Again.of(ZVOL_OBJECT))?;
        source.lend(edit.txg());
        self.dataset.log().inspect(|log| log.cannot_say(edit.txg()));
        edit.share_blocks(ZVOL_OBJECT, BlockId(to.start / block), &blocks).await?;
        drop((ours, theirs));
        Ok(len)
    }

    /// Whether blocks of a volume can be shared with this one at all.
    fn may_clone(&self, source: &Volume) -> bool {
        let (ours, theirs) = (self.live().on_disk(), source.objset());
        let key = |objset: &cenote_object::Objset| objset.key().map(|key| key.master().guid());
        self.clones.load(Ordering::Relaxed)
            && source.block_bytes() == self.block_bytes()
            && ours.pool().tree().guid() == theirs.pool().tree().guid()
            && key(&ours) == key(theirs)
    }
}

impl VolumeSource {
    async fn view(&self) -> Result<Volume> {
        match self {
            VolumeSource::Live(writer) => writer.view().await,
            VolumeSource::Snapshot(volume, _) => Ok(volume.clone()),
        }
    }

    /// Notes that another volume gets blocks of this one in txg `txg`, which is held open.
    fn lend(&self, txg: Txg) {
        match self {
            VolumeSource::Live(writer) => writer.live().lend(txg),
            VolumeSource::Snapshot(_, hold) => hold.lend(txg),
        }
    }

    fn is_live(&self, volume: &VolumeWriter) -> bool {
        matches!(self, VolumeSource::Live(other) if std::ptr::eq(&**other, volume))
    }
}
