//! SEEK_DATA and SEEK_HOLE, and content that the kernel has and we have not.
//!
//! Idea: a page that was changed through a mapping is the kernel's alone until it is written back. It may lie
//! in a hole. So before a hole is reported, the kernel is asked to write that part back, and it is looked at
//! again. Data is reported as it is: that is never wrong. If the kernel can't be asked now, the hole passes
//! for data, too.
//!
//! Files that can't be changed ([`FIXED`](super::attr::FIXED)) are the other case: what the kernel has of a
//! mapping is refused, and dropped.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::OpenFile;
use cenote_fs::manifest::Content;
use cenote_fuse::{Errno, Node, Result};

use super::Files;
use super::errno::errno;
use super::node::TreeId;
use super::tell::Notice;

/// How long an operation waits for the kernel to take in that a file can't be changed any more.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

impl Files {
    /// Where data begins, at or behind an offset.
    pub(super) async fn next_data(&self, node: Node, offset: u64) -> Result<u64> {
        let (file, is_final) = self.open_to_seek(node, offset).await?;
        let data = next_data(&file, offset).await?;
        if is_final || data == offset {
            return if data < file.attr().size { Ok(data) } else { Err(Errno::NXIO) };
        }
        if !self.write_back(node, offset..data).await {
            return Ok(offset);
        }
        let (file, _) = self.open_to_seek(node, offset).await?;
        let data = next_data(&file, offset).await?;
        if data < file.attr().size { Ok(data) } else { Err(Errno::NXIO) }
    }

    /// Where a hole begins, at or behind an offset; there is one at the end.
    pub(super) async fn next_hole(&self, node: Node, offset: u64) -> Result<u64> {
        let mut known: Range<u64> = 0..0;
        loop {
            let (file, is_final) = self.open_to_seek(node, offset).await?;
            let size = file.attr().size;
            let hole = file.next_hole(offset).await.map_err(|e| errno(&e))?.min(size);
            if is_final || hole == size || known.contains(&hole) {
                return Ok(hole);
            }
            known = hole..next_data(&file, hole).await?;
            if !self.write_back(node, known.clone()).await {
                return Ok(size);
            }
        }
    }

    /// A file, and whether the kernel can have no content that it has not.
    async fn open_to_seek(&self, node: Node, offset: u64) -> Result<(OpenFile, bool)> {
        let (id, tree, object) = self.file(node).await?;
        let file = tree.view().open_file(object).await.map_err(|e| errno(&e))?;
        if offset >= file.attr().size {
            return Err(Errno::NXIO);
        }
        let is_mapped = id == TreeId::Head && self.writer().is_ok() && self.0.notifier.get().is_some();
        Ok((file, !is_mapped))
    }

    /// Drops what the kernel has of a file that can't be changed.
    pub(super) async fn drop_refused(&self, node: Node) {
        // Written back, it is refused, and stays where it is; then it is dropped like everything else.
        for _ in 0..2 {
            if !self.write_back(node, 0..u64::MAX).await {
                return self.0.tell([Notice::Node(node)]);
            }
        }
    }

    /// The kernel does not keep the name of a file from now on, nor its content. It knows when this returns,
    /// unless its locks are held for long: they may be, by operations that wait for this one.
    pub(super) async fn forget_names(&self, node: Node, object: ObjectId) {
        let view = self.head().view();
        if let (Ok(attr), Ok(path)) = (view.attr(object).await, view.path_of(object).await)
            && let Some(dir) = self.0.references.node_of(TreeId::Head, attr.parent)
        {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            self.0.tell([Notice::Expired(dir, Bytes::copy_from_slice(name))]);
        }
        self.0.tell([Notice::Node(node)]);
        self.0.runtime.timeout(TOLD_WITHIN, self.settled()).await.ok();
    }
}

/// The end, if there is none.
async fn next_data(file: &OpenFile, offset: u64) -> Result<u64> {
    let size = file.attr().size;
    let data = file.next_data(offset).await.map_err(|e| errno(&e))?;
    Ok(data.map_or(size, |data| data.min(size)))
}
