//! Adds names to new and existing files, and removes them.
//!
//! A directory counts its entries in `size` (including `.` and `..`) and its subdirectories in `links`. A
//! file that loses its last name moves to the delete queue, and stays unchanged until it is no longer open
//! ([`FsWriter::free_unlinked`]).
//!
//! Source: OpenZFS `zfs_dir.c` (`zfs_link_create`, `zfs_link_destroy`, `zfs_drop_nlink`), `zfs_vnops_os.c`.

use cenote_boxed::boxed;
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_format::znode::{Dirent, FileKind};
use cenote_object::{Edit, ZapEdit};

use super::holder::Changed;
use super::locks::Held;
use super::make::{Making, NewFile};
use super::znode::Znode;
use super::{Change, FsWriter, ZPL_VERSION_DIRENT_TYPE, table_error};
use crate::attr::pflags;
use crate::directory::DirEntry;
use crate::error::{Refusal, Result};

/// `ZFS_LINK_MAX`.
const MAX_LINKS: u64 = u32::MAX as u64 >> 1;
/// `size` of a directory without entries.
const EMPTY_SIZE: u64 = 2;

impl FsWriter {
    /// Creates a file of any type under a new name.
    ///
    /// # Errors
    /// The name exists or is invalid; refusals of the directory; damage.
    #[boxed]
    pub async fn create(
        &self,
        change: Change<'_>,
        dir: ObjectId,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<ObjectId> {
        self.check_name(dir, name)?;
        let _held = self.0.locks.exclusive(&[dir]).await;
        let mut parent = self.load_dir(change.edit, dir).await?;
        if self.find(change.edit, dir, name).await?.is_some() {
            return Err(Refusal::Exists.named(dir, name));
        }
        self.may_add(&parent)?;
        let (new, default_acl) = self.under_default_acl(change.edit, &parent, new).await?;
        let making = Making::child(self, &parent, &new)?;
        let kind = FileKind::from_mode(making.mode.into());
        let id = self.make(change, &making).await?;
        if let Err(error) = self.add_name(change, &mut parent, name, id, kind).await {
            change.edit.destroy(id).await?;
            return Err(error);
        }
        let notes = self.notes(change);
        if notes.are_kept() {
            notes.created(&parent, name, &self.load(change.edit, id).await?)?;
        }
        if let Some(acl) = default_acl {
            self.inherit_posix_acl(change, id, &acl).await?;
        }
        self.save(change.edit, &mut parent).await?;
        Ok(id)
    }

    /// Creates a file without a name, as if it were in `dir` (`O_TMPFILE`). It is in the delete queue: the
    /// caller frees it with [`FsWriter::free_unlinked`] once no longer open, unless [`FsWriter::link`] names
    /// it first.
    ///
    /// # Errors
    /// Refusals of the directory; damage.
    #[boxed]
    pub async fn create_unnamed(
        &self,
        change: Change<'_>,
        dir: ObjectId,
        new: &NewFile<'_>,
    ) -> Result<ObjectId> {
        let _held = self.0.locks.exclusive(&[dir]).await;
        let parent = self.load_dir(change.edit, dir).await?;
        self.may_add(&parent)?;
        let (new, default_acl) = self.under_default_acl(change.edit, &parent, new).await?;
        let making = Making::child(self, &parent, &new)?;
        let id = self.make(change, &making).await?;
        if let Some(acl) = default_acl {
            self.inherit_posix_acl(change, id, &acl).await?;
        }
        let mut file = self.load(change.edit, id).await?;
        file.set_u64(ZplAttr::Links, 0);
        self.0.queue.add_unnamed(change.edit, id).await?;
        self.save(change.edit, &mut file).await?;
        Ok(id)
    }

    /// Adds a name to a file, or the first name to one of [`FsWriter::create_unnamed`]. The log can't record
    /// that one: the caller syncs the txg before it reports success.
    ///
    /// # Errors
    /// The name exists; the file is a directory, or has lost its last name; refusals of either; damage.
    #[boxed]
    pub async fn link(&self, change: Change<'_>, object: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.check_name(dir, name)?;
        let _held = self.0.locks.exclusive(&[dir, object]).await;
        let mut parent = self.load_dir(change.edit, dir).await?;
        let mut file = self.load(change.edit, object).await?;
        let links = file.u64(ZplAttr::Links)?;
        if file.is_dir()? || file.flags()? & pflags::XATTR != parent.flags()? & pflags::XATTR {
            return Err(Refusal::NotPermitted.of(object));
        }
        self.may_link(&parent, &file)?;
        if links >= MAX_LINKS {
            return Err(Refusal::TooManyLinks.of(object));
        }
        if links == 0 && !self.is_unnamed(object) {
            return Err(Refusal::NotFound.of(object));
        }
        if self.find(change.edit, dir, name).await?.is_some() {
            return Err(Refusal::Exists.named(dir, name));
        }
        self.add_name(change, &mut parent, name, object, file.kind()?).await?;
        file.set_u64(ZplAttr::Links, links + 1);
        file.set_u64(ZplAttr::Parent, dir.0);
        file.state_changed(change)?;
        self.save(change.edit, &mut file).await?;
        self.save(change.edit, &mut parent).await?;
        if links == 0 {
            self.0.queue.remove(change.edit, object).await?;
        } else {
            self.notes(change).linked(dir, object, name);
        }
        Ok(())
    }

    /// Removes a name of a non-directory. Returns the file if that was its last name: it is then in the
    /// delete queue, and the caller frees it with [`FsWriter::free_unlinked`] once no longer open.
    ///
    /// # Errors
    /// The name does not exist; it is a directory's; refusals of file or directory; damage.
    #[boxed]
    pub async fn unlink(&self, change: Change<'_>, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        let (_held, entry) = self.hold_entry(change.edit, dir, name).await?;
        let mut parent = self.load_dir(change.edit, dir).await?;
        let mut file = self.load(change.edit, entry.object).await?;
        self.may_remove(&parent, &file)?;
        if file.is_dir()? {
            return Err(Refusal::IsDirectory.named(dir, name));
        }
        self.remove_name(change, &mut parent, &entry.name, false).await?;
        let is_last = self.drop_link(change, &mut file).await?;
        self.save(change.edit, &mut parent).await?;
        let gone = is_last.then_some(entry.object);
        self.notes(change).removed(dir, &entry.name, false, gone);
        Ok(gone)
    }

    /// Removes an empty directory and returns it: see [`FsWriter::unlink`].
    ///
    /// # Errors
    /// The name does not exist; it is not a directory's; the directory is not empty; refusals of either;
    /// damage.
    #[boxed]
    pub async fn rmdir(&self, change: Change<'_>, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        match name {
            b"." => return Err(Refusal::Invalid.named(dir, name)),
            b".." => return Err(Refusal::NotEmpty.named(dir, name)),
            _ => {}
        }
        let (_held, entry) = self.hold_entry(change.edit, dir, name).await?;
        let mut parent = self.load_dir(change.edit, dir).await?;
        let mut child = self.load(change.edit, entry.object).await?;
        if !child.is_dir()? {
            return Err(Refusal::NotDirectory.named(dir, name));
        }
        self.may_remove(&parent, &child)?;
        check_empty(&child)?;
        self.remove_name(change, &mut parent, &entry.name, true).await?;
        self.drop_link(change, &mut child).await?;
        self.save(change.edit, &mut parent).await?;
        self.notes(change).removed(dir, &entry.name, true, Some(entry.object));
        Ok(entry.object)
    }

    /// Whether a file without a name was created that way, rather than having lost its last name.
    pub fn is_unnamed(&self, object: ObjectId) -> bool {
        self.0.queue.has_unnamed(object)
    }

    /// Loads a named directory.
    pub(super) async fn load_dir(&self, edit: &Edit, dir: ObjectId) -> Result<Znode> {
        let node = self.load(edit, dir).await?;
        if !node.is_dir()? {
            return Err(Refusal::NotDirectory.of(dir));
        }
        if node.u64(ZplAttr::Links)? == 0 {
            return Err(Refusal::NotFound.of(dir));
        }
        Ok(node)
    }

    /// Looks up a name and locks directory and file together.
    pub(super) async fn hold_entry(
        &self,
        edit: &Edit,
        dir: ObjectId,
        name: &[u8],
    ) -> Result<(Held<'_>, DirEntry)> {
        loop {
            let entry = {
                let _held = self.0.locks.shared(dir).await;
                self.find(edit, dir, name).await?
            };
            let entry = entry.ok_or_else(|| Refusal::NotFound.named(dir, name))?;
            let held = self.0.locks.exclusive(&[dir, entry.object]).await;
            // Between the two locks the name may have been given to another file.
            if self.find(edit, dir, name).await?.as_ref() == Some(&entry) {
                return Ok((held, entry));
            }
        }
    }

    /// Adds a name to a directory, which the caller saves.
    pub(super) async fn add_name(
        &self,
        change: Change<'_>,
        parent: &mut Znode,
        name: &[u8],
        object: ObjectId,
        kind: FileKind,
    ) -> Result<()> {
        let said = Some(kind).filter(|_| self.0.master.version >= ZPL_VERSION_DIRENT_TYPE);
        let word = Dirent { object, kind: said }.to_word();
        let table = ZapEdit::new(change.edit, parent.id);
        table.add(name, word).await.map_err(|error| table_error(error, parent.id, name))?;
        self.tell(Changed::Name(parent.id, name));
        let is_dir = u64::from(kind == FileKind::Directory);
        parent.set_u64(ZplAttr::Size, parent.u64(ZplAttr::Size)?.saturating_add(1));
        parent.set_u64(ZplAttr::Links, parent.u64(ZplAttr::Links)?.saturating_add(is_dir));
        parent.content_changed(change)
    }

    /// Removes a name, in its stored spelling, from a directory, which the caller saves.
    pub(super) async fn remove_name(
        &self,
        change: Change<'_>,
        parent: &mut Znode,
        name: &[u8],
        is_dir: bool,
    ) -> Result<()> {
        let table = ZapEdit::new(change.edit, parent.id);
        table.remove(name).await.map_err(|error| table_error(error, parent.id, name))?;
        self.tell(Changed::Name(parent.id, name));
        parent.set_u64(ZplAttr::Size, parent.u64(ZplAttr::Size)?.saturating_sub(1));
        parent.set_u64(ZplAttr::Links, parent.u64(ZplAttr::Links)?.saturating_sub(is_dir.into()));
        parent.content_changed(change)
    }

    /// Removes one link of a file; returns whether it was the last.
    pub(super) async fn drop_link(&self, change: Change<'_>, file: &mut Znode) -> Result<bool> {
        let links = if file.is_dir()? { 0 } else { file.u64(ZplAttr::Links)?.saturating_sub(1) };
        file.set_u64(ZplAttr::Links, links);
        if links == 0 {
            self.0.queue.add(change.edit, file.id).await?;
        } else {
            file.state_changed(change)?;
        }
        self.save(change.edit, file).await?;
        Ok(links == 0)
    }
}

pub(super) fn check_empty(dir: &Znode) -> Result<()> {
    if dir.u64(ZplAttr::Size)? > EMPTY_SIZE {
        return Err(Refusal::NotEmpty.of(dir.id));
    }
    Ok(())
}
