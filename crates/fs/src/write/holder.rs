//! The holder of a file system: a mount, whose kernel keeps files open and remembers what it was told.
//!
//! Idea: a mounted file system has one holder. It changes the file system through a writer of its own
//! ([`FsWriter::held_by`]). Whatever any other writer of the same file system changes, the holder is told
//! (`save` and the two functions that change a directory's table are the only ways to change what a kernel
//! remembers), and a file that it still uses is not freed, whoever removed it.
//!
//! Locking: calls come under the locks of the objects concerned, after the change shows in views. A holder
//! returns at once, and calls nothing here.

use std::sync::{Arc, Weak};

use cenote_format::units::ObjectId;
use cenote_object::Edit;

use super::znode::Znode;
use super::{By, FsWriter};
use crate::error::Result;

/// Uses files of a file system, and remembers them.
pub trait Holder: Send + Sync {
    /// Whether a file without names is still in use. If so, the holder frees it when it is not.
    fn keeps(&self, file: ObjectId) -> bool;

    /// A file was freed. Its number may become another file's.
    fn freed(&self, file: ObjectId);

    /// Somebody else has changed this.
    fn changed(&self, what: Changed<'_>);
}

/// A change that the holder did not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed<'a> {
    /// What a name in a directory stands for: it came, went, or became another file's.
    Name(ObjectId, &'a [u8]),
    /// Attributes or content of a file.
    File(ObjectId),
}

impl FsWriter {
    /// The writer of the file system's holder, which takes the place of an earlier one.
    #[must_use]
    pub fn held_by(self, holder: Weak<dyn Holder>) -> FsWriter {
        *self.0.holder.write() = Some(holder);
        FsWriter(self.0, By::Holder)
    }

    pub(super) fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.0.holder.read().as_ref().and_then(Weak::upgrade)
    }

    /// Tells the holder of a change, unless it made it itself.
    pub(super) fn tell(&self, what: Changed<'_>) {
        if self.1 == By::Others
            && let Some(holder) = self.holder()
        {
            holder.changed(what);
        }
    }

    /// Saves an object whose lock the caller holds, and whose content it has changed already.
    pub(super) async fn save(&self, edit: &Edit, node: &mut Znode) -> Result<()> {
        self.0.znodes.save(edit, node).await?;
        self.tell(Changed::File(node.id));
        Ok(())
    }
}
