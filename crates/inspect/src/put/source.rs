//! The source of a copy: a local file, or one of the same pool.

use std::ffi::OsString;
use std::path::Path;

use cenote_format::units::ObjectId;
use cenote_fs::FileKind;

use super::Putter;
use crate::copy::Reason;
use crate::error::Result;

/// An open file of any kind.
pub(super) trait Source: Sized {
    fn kind(&self) -> FileKind;

    /// Permissions, set-id and sticky bits.
    fn permissions(&self) -> u32;

    /// User and group.
    fn owner(&self) -> (u64, u64);

    /// Major and minor number of a device.
    fn device(&self) -> (u32, u32);

    /// A key shared by all names of a file with several.
    fn link_key(&self) -> Option<(u64, u64)>;

    /// The names in a folder, sorted.
    async fn names(&self) -> Result<Vec<OsString>, Reason>;

    async fn enter(&self, name: &[u8]) -> Result<Self, Reason>;

    async fn target(&self) -> Result<Vec<u8>, Reason>;

    /// Copies the content into a new, empty file. Returns whether it is complete.
    async fn put_content(&self, putter: &Putter, path: &Path, object: ObjectId) -> Result<bool>;

    /// Copies the metadata to an object.
    async fn dress(&self, putter: &Putter, path: &Path, object: ObjectId);
}
