//! `zfs rewrite`: a file's blocks are stored again as new blocks would be, part by part.
//!
//! OpenZFS requires a file open for writing. A file of FUSE has no handle here, and the kernel does not pass
//! on how it was opened. Instead the caller must be root, the owner, or one to whom the mode grants writing,
//! its supplementary groups unknown.
//!
//! Source: OpenZFS 2.4 `zpl_file.c` (`zpl_ioctl_rewrite`), `zfs.h` (`ZFS_REWRITE_*`).

use std::sync::Arc;

use cenote_engine::Need;
use cenote_fs::write::REWRITE_BYTES;
use cenote_fs::{Attr, FileKind, Rewrite};
use cenote_fuse::{Caller, Errno, Node, Result};

use super::Files;
use super::errno::{errno, errno_below};

/// With `zfs_rewrite_args_t`: offset, length, flags, zero (8 each).
pub const ZFS_IOC_REWRITE: u32 = 0x4020_8303;

/// Keeps logical births.
pub const ZFS_REWRITE_PHYSICAL: u64 = 1;
/// Skips blocks of the last snapshot.
pub const ZFS_REWRITE_SKIP_SNAPSHOT: u64 = 2;
/// Skips cloned blocks.
pub const ZFS_REWRITE_SKIP_BRT: u64 = 4;

impl Files {
    /// Rewrites a range; a length of 0 extends to the end.
    pub(super) async fn rewrite(
        &self,
        caller: Caller,
        node: Node,
        (offset, len): (u64, u64),
        flags: u64,
    ) -> Result<()> {
        if flags & !(ZFS_REWRITE_PHYSICAL | ZFS_REWRITE_SKIP_SNAPSHOT | ZFS_REWRITE_SKIP_BRT) != 0 {
            return Err(Errno::INVAL);
        }
        let object = self.own(node)?;
        let (engine, fs) = self.writer()?;
        let attr = fs.view().attr(object).await.map_err(|e| errno(&e))?;
        if attr.kind() != FileKind::Regular {
            return Err(Errno::INVAL);
        }
        if !may_write(caller, &attr) {
            return Err(Errno::BADF);
        }
        let end = if len == 0 { attr.size } else { offset.saturating_add(len).min(attr.size) };
        if offset < end {
            // Changes through mappings so far belong to the file.
            self.write_back(node, offset..end).await;
        }
        let mos = engine.mos().await.map_err(|e| errno_below(&e))?;
        let mut how = Rewrite { physical: flags & ZFS_REWRITE_PHYSICAL != 0, ..Rewrite::default() };
        if flags & ZFS_REWRITE_SKIP_SNAPSHOT != 0 {
            let dataset = mos.dataset_phys(fs.live().dataset_id()).await.map_err(|e| errno_below(&e))?;
            how.born_after = dataset.prev_snapshot_txg;
        }
        if flags & ZFS_REWRITE_SKIP_BRT != 0 {
            how.cloned = mos.cloned_blocks().await.map_err(|e| errno_below(&e))?.into();
        }
        let (how, mut next) = (Arc::new(how), Some(offset).filter(|offset| *offset < end));
        while let Some(from) = next {
            let part = (end - from).min(REWRITE_BYTES).max(attr.block_bytes.into());
            let how = how.clone();
            let operation = self.change(Need::Write(part), Some(object), move |fs, change| {
                Box::pin(async move { fs.rewrite(change, object, from..end, &how).await })
            });
            next = operation.await?.filter(|next| *next < end);
        }
        Ok(())
    }
}

fn may_write(caller: Caller, attr: &Attr) -> bool {
    let is = |id: u32, of: u64| u64::from(id) == of;
    let bit = match caller.uid {
        0 => return true,
        uid if is(uid, attr.uid) => 0o200,
        _ if is(caller.gid, attr.gid) => 0o020,
        _ => 0o002,
    };
    attr.mode & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_to_whom_the_mode_grants_writing_may_rewrite() {
        let attr = |mode| Attr { mode, uid: 1000, gid: 100, ..Attr::default() };
        let caller = |uid, gid| Caller { uid, gid, pid: 1 };
        for (mode, uid, gid, may) in [
            (0o000, 0, 0, true),
            (0o200, 1000, 5, true),
            (0o022, 1000, 100, false),
            (0o020, 1001, 100, true),
            (0o002, 1001, 100, false),
            (0o002, 1001, 5, true),
            (0o644, 1001, 100, false),
        ] {
            assert_eq!(may_write(caller(uid, gid), &attr(mode)), may, "{mode:o} {uid} {gid}");
        }
    }
}
