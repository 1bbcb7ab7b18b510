//! The holder of a file system: a mount, whose kernel keeps files open and caches answers.
//!
//! Idea: a mounted file system has one holder, which changes it through its own writer
//! ([`FsWriter::held_by`]). Changes by any other writer are reported to the holder (only `save` and the two
//! functions that change a directory's table change anything a kernel caches), and files in use by the holder
//! are not freed.
//!
//! Locking: calls come under the locks of the objects concerned, after the change shows in views. A holder
//! returns at once, and calls nothing here.

use std::sync::{Arc, Weak};

use cenote_format::units::ObjectId;
use cenote_object::Edit;

use super::znode::Znode;
use super::{By, FsWriter};
use crate::error::Result;

/// Uses and caches files of a file system.
pub trait Holder: Send + Sync {
    /// Whether a file without names is still in use. If so, the holder frees it later.
    fn keeps(&self, file: ObjectId) -> bool;

    /// A file was freed. Its number may be reused.
    fn freed(&self, file: ObjectId);

    /// Another writer has changed this.
    fn changed(&self, what: Changed<'_>);
}

/// Another writer's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed<'a> {
    /// A name in a directory was added, removed, or given to another file.
    Name(ObjectId, &'a [u8]),
    /// Attributes or content of a file.
    File(ObjectId),
}

impl FsWriter {
    /// The holder's writer; replaces an earlier holder.
    #[must_use]
    pub fn held_by(self, holder: Weak<dyn Holder>) -> FsWriter {
        *self.0.holder.write() = Some(holder);
        FsWriter(self.0, By::Holder)
    }

    pub(super) fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.0.holder.read().as_ref().and_then(Weak::upgrade)
    }

    /// Reports a change to the holder, unless it made it.
    pub(super) fn tell(&self, what: Changed<'_>) {
        if self.1 == By::Others
            && let Some(holder) = self.holder()
        {
            holder.changed(what);
        }
    }

    /// Saves an object whose lock the caller holds, and whose content it has already changed.
    pub(super) async fn save(&self, edit: &Edit, node: &mut Znode) -> Result<()> {
        self.0.znodes.save(edit, node).await?;
        self.tell(Changed::File(node.id));
        Ok(())
    }
}
