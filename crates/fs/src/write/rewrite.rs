//! Rewriting: stores a file's blocks again, unchanged, where and how a write would store them today.
//!
//! Idea: a block is read into the open txg's layer. The txg stores it like any other: with the present
//! compression, checksum and number of copies, on the vdevs that allocate now. Neither content nor times
//! change, and nothing is logged: after a power cut, a block is in its old or new place. Holes stay holes;
//! blocks that wait in memory to be written are left alone.
//!
//! A *physical* rewrite keeps the logical births of blocks, so that incremental streams omit them. Embedded
//! and deduplicated blocks get new ones: their pointers have no room for both births.
//!
//! Source: OpenZFS 2.4 `zfs_vnops.c` (`zfs_rewrite`), `dbuf.c` (`dmu_buf_will_rewrite`), zfs-rewrite(8).

use std::ops::Range;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_dataset::sharing::Brt;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::sa::ZplAttr;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_object::{DatasetError, Edit, Object};

use super::{Change, FsWriter};
use crate::error::{Refusal, Result};

/// Bytes after which a call ends with the block that it has reached.
pub const REWRITE_BYTES: u64 = 8 << 20;
/// Blocks that a call looks at.
pub(crate) const LOOKED_AT: u64 = 4096;

/// Decides on a block by its pointer.
pub type Wanted = dyn Fn(&Blkptr) -> bool + Send + Sync;

/// Which blocks are rewritten, and how.
#[derive(Clone, Default)]
pub struct Rewrite {
    /// Keeps logical births.
    pub physical: bool,
    /// Skips blocks allocated up to this txg, that of the latest snapshot.
    pub born_after: Txg,
    /// Skips blocks in these tables of clones.
    pub cloned: Arc<[Brt]>,
    /// Skips blocks that this does not want; none: wants all.
    pub wanted: Option<Arc<Wanted>>,
    /// Ends after the first rewritten block. Its indirect blocks are written anew with it.
    pub one: bool,
}

impl FsWriter {
    /// Rewrites a file's blocks in a range of bytes, [`REWRITE_BYTES`] or one block at most. Returns where to
    /// continue; `None`: there is no more.
    ///
    /// # Errors
    /// It is not a file, or may not be changed; a quota is exhausted; the pool lacks the feature for physical
    /// rewrites; a block can't be read.
    #[boxed]
    pub async fn rewrite(
        &self,
        change: Change<'_>,
        object: ObjectId,
        range: Range<u64>,
        how: &Rewrite,
    ) -> Result<Option<u64>> {
        let _held = self.0.locks.exclusive(&[object]).await;
        let node = self.load_to_write(change.edit, object, range.start).await?;
        if how.physical && !self.options().rewrites_physically {
            return Err(Refusal::NotSupported.of(object));
        }
        self.check_bytes(&node).await?;
        let block_bytes = change.edit.view().object(object).await?.block_bytes();
        let end = range.end.min(node.u64(ZplAttr::Size)?).div_ceil(block_bytes);
        let rest = rewrite_blocks(change.edit, object, range.start / block_bytes..end, how).await?;
        Ok(rest.map(|block| block * block_bytes))
    }

    /// The same for blocks of a file or directory, by their numbers. Blocks of directories get new births.
    ///
    /// # Errors
    /// As [`FsWriter::rewrite`].
    #[boxed]
    pub async fn rewrite_part(
        &self,
        change: Change<'_>,
        object: ObjectId,
        blocks: Range<u64>,
        how: &Rewrite,
    ) -> Result<Option<u64>> {
        let _held = self.0.locks.exclusive(&[object]).await;
        if change.edit.view().head(object).await?.object_type == ObjectType::DIRECTORY_CONTENTS {
            let how = Rewrite { physical: false, ..how.clone() };
            return rewrite_blocks(change.edit, object, blocks, &how).await;
        }
        let node = self.load_to_write(change.edit, object, 0).await?;
        self.check_bytes(&node).await?;
        rewrite_blocks(change.edit, object, blocks, how).await
    }

    /// Writes the dnode of the first object of a range again, unchanged, with the others in its block.
    ///
    /// # Errors
    /// A dnode can't be read.
    #[boxed]
    pub async fn rewrite_dnode(&self, change: Change<'_>, objects: Range<u64>) -> Result<()> {
        for object in objects.map(ObjectId) {
            let _held = self.0.locks.exclusive(&[object]).await;
            match change.edit.touch(object).await {
                Err(DatasetError::NoObject { .. }) => {}
                touched => return Ok(touched?),
            }
        }
        Ok(())
    }
}

/// Rewrites wanted blocks, whose other changes the caller excludes. Returns the block to continue with.
pub(crate) async fn rewrite_blocks(
    edit: &Edit,
    object: ObjectId,
    range: Range<u64>,
    how: &Rewrite,
) -> Result<Option<u64>> {
    let opened = edit.view().object(object).await?;
    let most = if how.one { 1 } else { (REWRITE_BYTES / opened.block_bytes()).max(1) };
    let (mut taken, mut looked_at) = (0..0, 0);
    let mut next = range.start;
    let rest = loop {
        let found = opened.next_data_block(BlockId(next)).await?;
        let Some(BlockId(block)) = found.filter(|block| block.0 < range.end) else { break None };
        if taken.end - taken.start == most || looked_at == LOOKED_AT {
            break Some(block);
        }
        let is_wanted = how.wants(&opened, BlockId(block)).await?;
        if taken.is_empty() && is_wanted {
            taken = block..block;
        }
        // One run a call: its blocks are read together.
        if !taken.is_empty() && (!is_wanted || block != taken.end) {
            break Some(block);
        }
        taken.end += u64::from(is_wanted);
        (next, looked_at) = (block + 1, looked_at + 1);
    };
    let is_done = how.one && !taken.is_empty();
    edit.rewrite(object, taken, how.physical).await?;
    Ok(rest.filter(|_| !is_done))
}

impl Rewrite {
    async fn wants(&self, object: &Object, block: BlockId) -> Result<bool> {
        if self.born_after == Txg(0) && self.cloned.is_empty() && self.wanted.is_none() {
            return Ok(true);
        }
        let bp = object.blkptr(0, block).await?;
        if bp.allocation_birth() <= self.born_after || self.wanted.as_ref().is_some_and(|wanted| !wanted(&bp))
        {
            return Ok(false);
        }
        Ok(!Brt::any_has(&self.cloned, &bp).await?)
    }
}
