//! The content of files: bytes, holes, targets of symbolic links.
//!
//! Idea: content is the object's data up to the size in the attributes, with the overlay's pieces on top. An
//! [`OpenFile`] holds both, so consecutive reads need no look-ups. A symbolic link's target is in one of
//! three places: the attribute SYMLINK, the bonus after a znode, or the object's first block.
//!
//! Source: OpenZFS `zfs_vnops.c` (`zfs_read`, `zfs_holey_common`), `zfs_sa.c` (`zfs_sa_readlink`).

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cenote_boxed::boxed;
use cenote_format::sa::{SaReader, ZplAttr};
use cenote_format::units::{BlockId, ObjectId};
use cenote_format::znode::ZFS_OLD_ZNODE_PHYS_SIZE;
use cenote_object::{Object, Objset};

use crate::attr::{Attr, FileKind};
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::manifest::Content;
use crate::overlay::{ContentOverlay, Piece, Source};

/// The longest target of a symbolic link; a longer one means damage.
const MAX_TARGET_BYTES: u64 = 65_536;

/// Content under an overlay: the common part of files and volumes.
#[derive(Debug, Clone)]
pub(crate) struct Layered {
    pub objset: Objset,
    pub id: ObjectId,
    /// `None` if nothing is on disk.
    pub object: Option<Object>,
    pub overlay: Arc<ContentOverlay>,
    pub size_bytes: u64,
}

/// A file opened for reading, with its attributes.
#[derive(Debug, Clone)]
pub struct OpenFile {
    layered: Layered,
    attr: Attr,
}

impl Filesystem {
    /// Opens an object's content.
    ///
    /// # Errors
    /// It does not exist, or its attributes can't be read.
    #[boxed]
    pub async fn open_file(&self, id: ObjectId) -> Result<OpenFile> {
        let node = self.node(id);
        let object = match node {
            Some(node) if node.fresh => None,
            _ => Some(self.object(id).await?),
        };
        let attr = match (node.and_then(|node| node.attr), &object) {
            (Some(attr), _) => attr,
            (None, Some(object)) => self.attr_of(object).await?,
            (None, None) => return Err(FsError::NoObject { object: id }),
        };
        let overlay = Arc::new(node.map(|node| node.content.clone()).unwrap_or_default());
        let layered = Layered { objset: self.objset().clone(), id, object, overlay, size_bytes: attr.size };
        Ok(OpenFile { layered, attr })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The object is not a symbolic link, or its target can't be read.
    #[boxed]
    pub async fn read_link(&self, id: ObjectId) -> Result<Vec<u8>> {
        let attr = self.attr(id).await?;
        if attr.kind() != FileKind::Symlink {
            return Err(FsError::NotLink { object: id });
        }
        if let Some(target) = self.node(id).and_then(|node| node.target.clone()) {
            return Ok(target);
        }
        if attr.size > MAX_TARGET_BYTES {
            return Err(FsError::Attributes { why: "give a link an impossible length" }.of(id));
        }
        let object = self.object(id).await?;
        let len = attr.size as usize;
        if attr.is_sa {
            let target = self.sa_bytes(&object, ZplAttr::Symlink).await?;
            if let Some(target) = target {
                return Ok(target.get(..len).unwrap_or(&target).to_vec());
            }
        }
        // In an upgraded file system the target may still be after the old znode, or in a block.
        if !attr.is_sa
            && let Some(target) =
                object.dnode().bonus().get(ZFS_OLD_ZNODE_PHYS_SIZE..ZFS_OLD_ZNODE_PHYS_SIZE + len)
        {
            return Ok(target.to_vec());
        }
        Ok(object.read(0, len).await?.to_vec())
    }

    /// An attribute in SA form, from bonus or spill block.
    pub(crate) async fn sa_bytes(&self, object: &Object, attr: ZplAttr) -> Result<Option<Bytes>> {
        let read = |buffer: &[u8]| -> Result<Option<Bytes>> {
            let reader =
                SaReader::new(self.sa_registry(), buffer).map_err(|e| FsError::from(e).of(object.id()))?;
            Ok(reader.get(attr).map(Bytes::copy_from_slice))
        };
        if let Some(bytes) = read(object.dnode().bonus())? {
            return Ok(Some(bytes));
        }
        match object.read_spill().await? {
            Some((_, block)) => read(&block),
            None => Ok(None),
        }
    }
}

impl OpenFile {
    /// Its attributes.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Its object, if no changes overlay it: for callers that want blocks rather than bytes.
    pub fn plain_object(&self) -> Option<&Object> {
        self.layered.object.as_ref().filter(|_| self.layered.overlay.is_empty())
    }

    /// Reads up to `len_bytes` at `offset_bytes`: fewer at the end of the file.
    ///
    /// # Errors
    /// A block can't be read.
    #[boxed]
    pub async fn read(&self, offset_bytes: u64, len_bytes: u64) -> Result<Bytes> {
        self.layered.read(offset_bytes, len_bytes).await
    }

    /// The same in pieces, without copying data in memory.
    ///
    /// # Errors
    /// Those of [`OpenFile::read`].
    #[boxed]
    pub async fn read_pieces(&self, offset_bytes: u64, len_bytes: u64) -> Result<Vec<Bytes>> {
        let end = offset_bytes.saturating_add(len_bytes).min(self.attr.size);
        let Some(object) = self.plain_object().filter(|_| offset_bytes < end) else {
            return Ok(vec![self.layered.read(offset_bytes, len_bytes).await?]);
        };
        self.layered.objset.traffic().read(end - offset_bytes);
        Ok(object.read_pieces(offset_bytes, (end - offset_bytes) as usize).await?)
    }
}

impl Content for OpenFile {
    fn size_bytes(&self) -> u64 {
        self.attr.size
    }
    fn block_bytes(&self) -> u64 {
        self.layered.object.as_ref().map_or(512, Object::block_bytes)
    }
    async fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        self.layered.read(offset, len).await
    }
    async fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.layered.next_data(offset).await
    }
    async fn next_hole(&self, offset: u64) -> Result<u64> {
        self.layered.next_hole(offset).await
    }
}

impl Layered {
    /// Reads up to `len` bytes at `offset`, clipped at the size.
    #[boxed]
    pub async fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        let end = offset.saturating_add(len).min(self.size_bytes);
        if offset >= end {
            return Ok(Bytes::new());
        }
        self.objset.traffic().read(end - offset);
        let mut pieces = self.overlay.pieces(offset..end);
        if pieces.len() == 1
            && let Some(piece) = pieces.pop()
        {
            return self.read_piece(piece).await;
        }
        let mut out = BytesMut::with_capacity((end - offset) as usize);
        for piece in pieces {
            out.extend_from_slice(&self.read_piece(piece).await?);
        }
        Ok(out.freeze())
    }

    async fn read_piece(&self, (range, source): Piece) -> Result<Bytes> {
        let len = (range.end - range.start) as usize;
        Ok(match (source, &self.object) {
            (None, Some(object)) => object.read(range.start, len).await?,
            (None, None) | (Some(Source::Zeros), _) => BytesMut::zeroed(len).freeze(),
            (Some(Source::Bytes(bytes)), _) => bytes.slice(..len.min(bytes.len())),
            (Some(Source::Block(bp, _)), _) if bp.is_hole() => BytesMut::zeroed(len).freeze(),
            (Some(Source::Block(bp, from)), _) => {
                let context = self.objset.context(self.id, 0, BlockId(0));
                let block = self
                    .objset
                    .pool()
                    .read(&bp, &context)
                    .await
                    .map_err(cenote_object::DatasetError::from)?;
                let part = block.get(from as usize..from as usize + len);
                let part = part.ok_or_else(|| self.objset.damaged(self.id, "a logged block is too short"))?;
                block.slice_ref(part)
            }
        })
    }

    /// The next data at or after `offset`; `None` if none.
    #[boxed]
    pub async fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek(offset, false).await
    }

    /// The next hole at or after `offset`; the end of the file counts as one.
    #[boxed]
    pub async fn next_hole(&self, offset: u64) -> Result<u64> {
        Ok(self.seek(offset, true).await?.unwrap_or(self.size_bytes))
    }

    async fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let mut at = offset;
        while at < self.size_bytes {
            let piece = self.overlay.piece_at(at, self.size_bytes);
            let end = piece.0.end;
            let found = match ContentOverlay::is_hole(&piece) {
                Some(is_hole) => (is_hole == hole).then_some(at),
                None => self.seek_on_disk(at..end, hole).await?,
            };
            if let Some(found) = found.filter(|&found| found < end) {
                return Ok(Some(found));
            }
            at = end;
        }
        Ok(None)
    }

    async fn seek_on_disk(&self, range: Range<u64>, hole: bool) -> Result<Option<u64>> {
        Ok(match (&self.object, hole) {
            (None, true) => Some(range.start),
            (None, false) => None,
            (Some(object), true) => Some(object.next_hole(range.start).await?),
            (Some(object), false) => object.next_data(range.start).await?,
        })
    }
}
