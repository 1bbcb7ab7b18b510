//! Cloning: a range of a file shares another file's blocks instead of copying them (`copy_file_range`,
//! reflink).
//!
//! ```text
//!   source  [a][b][ ][c']         block c is dirty, only in memory: not clonable before a txg sync
//!            |  |  |
//!   target  [a][b][ ]             pointers to the same blocks, born in this txg; holes stay holes
//! ```
//!
//! Idea: a pointer suffices to read its block, so one file's block can be attached to another with the same
//! block size and encryption key. References are counted when the txg is synced. Until then the blocks must
//! not be freed: the source has lent them (`cenote_engine::Quiet`).
//!
//! Locking: source and target are locked for the whole operation. If both are live, two file systems are
//! locked in the order of their dataset ids.
//!
//! Source: OpenZFS `zfs_vnops.c` (`zfs_clone_range`), `dmu.c` (`dmu_read_l0_bps`, `dmu_brt_clone`),
//! `zfs_log.c` (`zfs_log_clone_range`).

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_engine::SnapshotHold;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::sa::ZplAttr;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_format::zil::ZIL_CHAIN_BYTES;
use cenote_format::zil::record::LR_BYTES;
use tokio::sync::RwLockReadGuard;

use super::locks::Held;
use super::znode::Znode;
use super::{Change, FsWriter};
use crate::attr::FileKind;
use crate::error::{Refusal, Result};
use crate::filesystem::Filesystem;

/// Maximum blocks cloned at once: as many as fit in a record in the largest log block (`zil_max_log_data`).
const MAX_BLOCKS: u64 = (((128 << 10) - ZIL_CHAIN_BYTES - LR_BYTES - 5 * 8) / BLKPTR_BYTES) as u64;

/// The file system whose blocks are shared.
#[derive(Debug, Clone, Copy)]
pub enum CloneSource<'a> {
    /// A live file system, possibly the target itself.
    Live(&'a FsWriter),
    /// A snapshot, and the hold that keeps it from being destroyed.
    Snapshot(&'a Filesystem, &'a SnapshotHold),
}

/// A file and an offset in it.
pub type Position = (ObjectId, u64);

/// Locks on a source and a target.
type Both<'a> = (Held<'a>, Option<RwLockReadGuard<'a, ()>>);

/// A request to share `len` bytes in blocks of `block_bytes`, of a file of `from_size` bytes.
struct Request {
    from: u64,
    from_size: u64,
    to: u64,
    len: u64,
    block_bytes: u64,
}

impl FsWriter {
    /// Shares `len` bytes of another file, or of another part of the same file. Returns the bytes shared:
    /// fewer if the source ends, or if a log record can't hold as many blocks. Offsets must be block
    /// boundaries, as must the end unless both files end there.
    ///
    /// # Errors
    /// [`Refusal::Again`]: the source has just changed; sync a txg first. [`Refusal::Invalid`]: the block
    /// sizes don't match. [`Refusal::CrossDevice`], [`Refusal::NotSupported`]: the blocks can't be shared;
    /// copy instead. The target's refusals; damage.
    #[boxed]
    pub async fn clone_range(
        &self,
        change: Change<'_>,
        source: CloneSource<'_>,
        from: Position,
        to: Position,
        len: u64,
    ) -> Result<u64> {
        let _held = self.hold_with_source(&source, from.0, to.0).await;
        let view = source.view();
        self.check_source(&view, to.0)?;
        let attr = view.attr(from.0).await?;
        if attr.kind() != FileKind::Regular {
            return Err(Refusal::Invalid.of(from.0));
        }
        let mut node = self.load_to_write(change.edit, to.0, to.1).await?;
        let object = view.objset().object(from.0).await?;
        let block_bytes = object.block_bytes();
        let len = len.min(attr.size.saturating_sub(from.1)).min(MAX_BLOCKS.saturating_mul(block_bytes));
        if len == 0 {
            return Ok(0);
        }
        let is_same = source.is_live(self) && from.0 == to.0;
        if is_same && from.1 < to.1.saturating_add(len) && to.1 < from.1.saturating_add(len) {
            return Err(Refusal::Invalid.of(to.0));
        }
        let request = Request { from: from.1, from_size: attr.size, to: to.1, len, block_bytes };
        if !self.fits(&node, &request)? {
            return Err(Refusal::Invalid.of(to.0));
        }
        self.check_bytes(&node).await?;
        let first = from.1 / block_bytes;
        let blocks = object.stored_blocks(first..first + len.div_ceil(block_bytes)).await?;
        let blocks = self.settled(blocks).await?.ok_or_else(|| Refusal::Again.of(from.0))?;
        source.lend(change.edit.txg());
        self.share(change, &mut node, request.to..request.to + len, block_bytes, &blocks).await?;
        self.notes(change).cloned(&node, request.to..request.to + len, blocks);
        Ok(len)
    }

    /// Attaches shared blocks to a file whose lock the caller holds; the file may grow.
    pub(super) async fn share(
        &self,
        change: Change<'_>,
        node: &mut Znode,
        range: std::ops::Range<u64>,
        block_bytes: u64,
        blocks: &[Blkptr],
    ) -> Result<()> {
        if u64::from(node.block_bytes) < block_bytes {
            change.edit.set_block_bytes(node.id, block_bytes as u32).await?;
            node.block_bytes = block_bytes as u32;
        }
        change.edit.share_blocks(node.id, BlockId(range.start / block_bytes), blocks).await?;
        node.set_u64(ZplAttr::Size, node.u64(ZplAttr::Size)?.max(range.end));
        node.content_changed(change)?;
        self.save(change.edit, node).await
    }

    /// Locks a source for reading and a target for writing.
    async fn hold_with_source<'a>(
        &'a self,
        source: &CloneSource<'a>,
        from: ObjectId,
        to: ObjectId,
    ) -> Both<'a> {
        match source {
            CloneSource::Snapshot(..) => (self.0.locks.exclusive(&[to]).await, None),
            CloneSource::Live(other) if source.is_live(self) => {
                (other.0.locks.exclusive(&[from, to]).await, None)
            }
            // If two file systems clone from each other, both operations lock the lower dataset id first.
            CloneSource::Live(other) if other.live().dataset_id() < self.live().dataset_id() => {
                let theirs = other.0.locks.shared(from).await;
                (self.0.locks.exclusive(&[to]).await, Some(theirs))
            }
            CloneSource::Live(other) => {
                let ours = self.0.locks.exclusive(&[to]).await;
                (ours, Some(other.0.locks.shared(from).await))
            }
        }
    }

    /// Refuses sources whose blocks can't be shared with this file system at all.
    fn check_source(&self, source: &Filesystem, target: ObjectId) -> Result<()> {
        if !self.options().clones {
            return Err(Refusal::NotSupported.of(target));
        }
        let (ours, theirs) = (self.live().on_disk(), source.objset().clone());
        let [our_key, their_key] = [&ours, &theirs].map(|objset| objset.key().map(|key| key.master().guid()));
        match ours.pool().tree().guid() == theirs.pool().tree().guid() && our_key == their_key {
            true => Ok(()),
            false => Err(Refusal::CrossDevice.of(target)),
        }
    }

    /// Whether the blocks can be attached there, possibly after growing the target's only block.
    fn fits(&self, node: &Znode, request: &Request) -> Result<bool> {
        let Request { from, from_size, to, len, block_bytes } = *request;
        let (size, old_block) = (node.u64(ZplAttr::Size)?, u64::from(node.block_bytes));
        let may_grow = size <= old_block && node.max_block.0 == 0;
        let has_size = block_bytes == old_block || block_bytes > old_block && may_grow;
        let is_aligned = from.is_multiple_of(block_bytes) && to.is_multiple_of(block_bytes);
        let ends_files = len == from_size - from && len >= size.saturating_sub(to);
        // A file with several small blocks would be stuck with their size.
        let gets_stuck = len <= block_bytes
            && block_bytes < self.options().record_bytes.into()
            && size <= block_bytes
            && to + len > block_bytes;
        let is_sound = to.checked_add(len).is_some_and(|end| end <= i64::MAX as u64);
        Ok(is_sound
            && has_size
            && is_aligned
            && (to == 0 || block_bytes.is_power_of_two())
            && (len.is_multiple_of(block_bytes) || ends_files)
            && !gets_stuck)
    }

    /// Returns the blocks if all are on disk for certain, so that a replay finds them.
    async fn settled(&self, blocks: Option<Vec<Blkptr>>) -> Result<Option<Vec<Blkptr>>> {
        let synced = match self.log() {
            Some(log) => log.last_synced()?,
            None => Txg(u64::MAX),
        };
        let is_settled =
            |bp: &Blkptr| bp.is_hole() || bp.is_embedded() || bp.physical_birth().txg() <= synced;
        Ok(blocks.filter(|blocks| blocks.iter().all(is_settled)))
    }
}

impl CloneSource<'_> {
    fn view(&self) -> Filesystem {
        match self {
            CloneSource::Live(fs) => fs.view(),
            CloneSource::Snapshot(fs, _) => (*fs).clone(),
        }
    }

    /// Notes that another file system gets blocks of this one in txg `txg`, which is held open.
    fn lend(&self, txg: Txg) {
        match self {
            CloneSource::Live(fs) => fs.live().lend(txg),
            CloneSource::Snapshot(_, hold) => hold.lend(txg),
        }
    }

    /// Whether it is this same file system.
    fn is_live(&self, fs: &FsWriter) -> bool {
        matches!(self, CloneSource::Live(other) if Arc::ptr_eq(&other.0, &fs.0))
    }
}
