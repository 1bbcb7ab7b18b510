//! What is copied into a pool: a file of this system, or one of the same pool.

use std::ffi::OsString;
use std::path::Path;

use cenote_format::units::ObjectId;
use cenote_fs::FileKind;

use super::Putter;
use crate::copy::Reason;
use crate::error::Result;

/// A file of any kind, open.
pub(super) trait Source: Sized {
    /// What it is.
    fn kind(&self) -> FileKind;

    /// Permissions, set-id and sticky bits.
    fn permissions(&self) -> u32;

    /// User and group.
    fn owner(&self) -> (u64, u64);

    /// Major and minor number of a device.
    fn device(&self) -> (u32, u32);

    /// What is the same for all names of a file that has several.
    fn link_key(&self) -> Option<(u64, u64)>;

    /// The names in a folder, sorted.
    async fn names(&self) -> Result<Vec<OsString>, Reason>;

    /// Opens a name in a folder.
    async fn enter(&self, name: &[u8]) -> Result<Self, Reason>;

    /// What a symbolic link says.
    async fn target(&self) -> Result<Vec<u8>, Reason>;

    /// Gives a new, empty file its content. Whether all of it is there.
    async fn put_content(&self, putter: &Putter, path: &Path, object: ObjectId) -> Result<bool>;

    /// Makes an object look like it.
    async fn dress(&self, putter: &Putter, path: &Path, object: ObjectId);
}
