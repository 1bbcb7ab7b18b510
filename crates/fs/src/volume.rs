//! A volume (zvol): a disk of fixed size in one object.
//!
//! Layout of its object set: object 1 holds the content, object 2 is a ZAP with `size`.
//! Source: OpenZFS `zvol_impl.h`, `zvol.c`.

mod clone;
mod extents;
mod ranges;
mod writer;

use std::sync::Arc;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::objset::ObjsetType;
use cenote_format::units::ObjectId;
use cenote_object::{Objset, Zap};

use crate::error::{FsError, Result};
use crate::file::Layered;
use crate::manifest::Content;
use crate::overlay::ContentOverlay;

pub use clone::VolumeSource;
pub use writer::VolumeWriter;

/// `ZVOL_OBJ`.
pub(crate) const ZVOL_OBJECT: ObjectId = ObjectId(1);
/// `ZVOL_ZAP_OBJ`.
const ZVOL_ZAP: ObjectId = ObjectId(2);

/// An open volume.
#[derive(Debug, Clone)]
pub struct Volume {
    layered: Layered,
}

impl Volume {
    /// Opens a volume or a snapshot of one.
    ///
    /// # Errors
    /// The set is not a volume, or its two objects can't be read.
    #[boxed]
    pub async fn open(objset: Objset) -> Result<Volume> {
        if objset.phys().objset_type != ObjsetType::Zvol {
            return Err(FsError::WrongKind { wanted: "volume" });
        }
        let zap = Zap::open_id(&objset, ZVOL_ZAP).await?;
        let size_bytes = zap.get_u64("size").await?.ok_or(FsError::MasterNode { name: "size" })?;
        Volume::sized(objset, size_bytes).await
    }

    async fn sized(objset: Objset, size_bytes: u64) -> Result<Volume> {
        let object = objset.object(ZVOL_OBJECT).await?;
        let overlay = Arc::default();
        Ok(Volume { layered: Layered { objset, id: ZVOL_OBJECT, object: Some(object), overlay, size_bytes } })
    }

    pub(crate) fn with_overlay(mut self, overlay: ContentOverlay) -> Volume {
        self.layered.overlay = Arc::new(overlay);
        self
    }

    /// Its object set.
    pub fn objset(&self) -> &Objset {
        &self.layered.objset
    }

    /// Its object, if no changes overlay it: for callers that want blocks rather than bytes.
    pub fn plain_object(&self) -> Option<&cenote_object::Object> {
        self.layered.object.as_ref().filter(|_| self.layered.overlay.is_empty())
    }

    /// Its size, `volsize`.
    pub fn size_bytes(&self) -> u64 {
        self.layered.size_bytes
    }

    /// Its block size, `volblocksize`.
    pub fn block_bytes(&self) -> u64 {
        self.layered.object.as_ref().map_or(512, cenote_object::Object::block_bytes)
    }

    /// Reads up to `len_bytes` at `offset_bytes`: fewer at the end.
    ///
    /// # Errors
    /// A block can't be read.
    #[boxed]
    pub async fn read(&self, offset_bytes: u64, len_bytes: u64) -> Result<Bytes> {
        self.layered.read(offset_bytes, len_bytes).await
    }

    /// The first offset at or after this that has data; `None` if only holes follow.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn next_data(&self, offset_bytes: u64) -> Result<Option<u64>> {
        self.layered.next_data(offset_bytes).await
    }

    /// The first offset at or after this that lies in a hole; the size if none.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn next_hole(&self, offset_bytes: u64) -> Result<u64> {
        self.layered.next_hole(offset_bytes).await
    }
}

impl Content for Volume {
    fn size_bytes(&self) -> u64 {
        self.layered.size_bytes
    }
    fn block_bytes(&self) -> u64 {
        Volume::block_bytes(self)
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
