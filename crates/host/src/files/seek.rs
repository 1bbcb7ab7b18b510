//! SEEK_DATA and SEEK_HOLE, and file content that only the kernel has.
//!
//! Idea: a page changed through a mapping is only in the kernel until written back, perhaps over a hole. So
//! before a hole is reported, the kernel must write that range back, and it is checked again. Data are never
//! wrong, so they are reported at once, and in place of the hole if the kernel can't be asked now.
//!
//! Immutable files ([`FIXED`](super::attr::FIXED)) are the other case: the kernel's mapped writes are refused
//! and dropped.

use std::ops::Range;
use std::time::Duration;

use cenote_format::units::ObjectId;
use cenote_fs::OpenFile;
use cenote_fs::manifest::Content;
use cenote_fuse::{Errno, Node, Result};

use super::Files;
use super::errno::errno;
use super::node::TreeId;
use super::tell::Notice;

/// Time for the kernel to learn that a file is immutable now.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

impl Files {
    /// The first data at or after an offset.
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

    /// The first hole at or after an offset; the file's end counts as one.
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

    /// A file, and whether the kernel cannot have newer content.
    async fn open_to_seek(&self, node: Node, offset: u64) -> Result<(OpenFile, bool)> {
        let (id, tree, object) = self.file(node).await?;
        let file = tree.view().open_file(object).await.map_err(|e| errno(&e))?;
        if offset >= file.attr().size {
            return Err(Errno::NXIO);
        }
        let is_mapped = id == TreeId::Head && self.writer().is_ok() && self.0.notifier.get().is_some();
        Ok((file, !is_mapped))
    }

    /// Drops the kernel's cached content of an immutable file.
    pub(super) async fn drop_refused(&self, node: Node) {
        // The first write-back is refused, and the page stays; the second drops it.
        for _ in 0..2 {
            if !self.write_back(node, 0..u64::MAX).await {
                return self.0.tell([Notice::Node(node)]);
            }
        }
    }

    /// Makes the kernel drop a file's content and its names in one directory (those in others are unknown),
    /// before this returns unless its locks are held long, perhaps by operations waiting for this one.
    pub(super) async fn forget_names(&self, node: Node, object: ObjectId) {
        let view = self.head().view();
        if let Ok(attr) = view.attr(object).await
            && let Some(dir) = self.0.references.node_of(TreeId::Head, attr.parent)
            && let Ok(entries) = view.list(attr.parent).await
        {
            let names = entries.into_iter().filter(|entry| entry.object == object);
            self.0.tell(names.map(|entry| Notice::Expired(dir, entry.name)));
        }
        self.0.tell([Notice::Node(node)]);
        self.0.runtime.timeout(TOLD_WITHIN, self.settled()).await.ok();
    }
}

/// The file's end if there is no data.
async fn next_data(file: &OpenFile, offset: u64) -> Result<u64> {
    let size = file.attr().size;
    let data = file.next_data(offset).await.map_err(|e| errno(&e))?;
    Ok(data.map_or(size, |data| data.min(size)))
}
