//! The hidden directory in which a file's extended attributes are files.
//!
//! Invariants: the file's lock also covers its hidden directory and everything in it. Only objects flagged as
//! extended attributes are treated as such, even on a corrupt disk: nothing else is ever overwritten or freed
//! along with a file.
//!
//! Source: OpenZFS `zfs_dir.c` (`zfs_make_xattrdir`, `zfs_purgedir`).

use bytes::Bytes;
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_format::znode::FileKind;
use cenote_object::{Edit, Zap};

use super::make::{Making, NewFile, NewKind};
use super::znode::Znode;
use super::{Change, FsWriter, SetAttr};
use crate::attr::pflags;
use crate::directory::DirEntry;
use crate::error::{FsError, Result};

/// The mode of the directory and of its files.
const DIR_MODE: u32 = 0o1777;
const FILE_MODE: u32 = 0o644;

impl FsWriter {
    /// The hidden directory of a file.
    pub(super) async fn xattr_dir(&self, edit: &Edit, node: &Znode) -> Result<Option<Znode>> {
        let Some(id) = node.find_u64(ZplAttr::Xattr).filter(|&id| id != 0) else { return Ok(None) };
        let dir = self.load_xattr(edit, ObjectId(id)).await?;
        if !dir.is_dir()? {
            return Err(FsError::Attributes { why: "name a hidden directory that is not one" }.of(node.id));
        }
        Ok(Some(dir))
    }

    /// The hidden directory, and the file in it that stores an attribute, with its stored name.
    pub(super) async fn xattr_file(
        &self,
        edit: &Edit,
        node: &Znode,
        name: &[u8],
    ) -> Result<Option<(Znode, Bytes, Znode)>> {
        let Some(dir) = self.xattr_dir(edit, node).await? else { return Ok(None) };
        match self.find(edit, dir.id, name).await? {
            Some(entry) => Ok(Some((dir, entry.name, self.load_xattr(edit, entry.object).await?))),
            None => Ok(None),
        }
    }

    async fn load_xattr(&self, edit: &Edit, id: ObjectId) -> Result<Znode> {
        let node = self.load(edit, id).await?;
        if !node.has_flag(pflags::XATTR)? {
            return Err(FsError::Attributes { why: "are not those of an extended attribute" }.of(id));
        }
        Ok(node)
    }

    /// Stores an attribute in the hidden directory, creating that if needed.
    pub(super) async fn put_xattr_file(
        &self,
        change: Change<'_>,
        node: &mut Znode,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let mut file = match self.xattr_file(change.edit, node, name).await? {
            Some((.., file)) => file,
            None => self.make_xattr_file(change, node, name).await?,
        };
        self.notes(change).emptying(&file);
        self.notes(change).noted_before(self.resize(change.edit, &mut file, 0).await)?;
        if !value.is_empty() {
            self.put(change.edit, &mut file, 0, Bytes::copy_from_slice(value)).await?;
            self.notes(change).written(&file, 0..value.len() as u64);
        }
        file.content_changed(change)?;
        self.save(change.edit, &mut file).await?;
        // Committing the file has no other way to request this.
        self.log().inspect(|log| log.release(file.id));
        self.notes(change).touched(node);
        Ok(())
    }

    async fn make_xattr_file(&self, change: Change<'_>, node: &mut Znode, name: &[u8]) -> Result<Znode> {
        let (uid, gid) = (node.u64(ZplAttr::Uid)?, node.u64(ZplAttr::Gid)?);
        let mut dir = match self.xattr_dir(change.edit, node).await? {
            Some(dir) => dir,
            None => {
                let new = Making::apart(self, node.id, DIR_MODE, (uid, gid));
                let id = self.make(change, &Making { flags: pflags::XATTR, ..new }).await?;
                node.set_u64(ZplAttr::Xattr, id.0);
                let dir = self.load(change.edit, id).await?;
                self.notes(change).xattr_dir(node, &dir)?;
                dir
            }
        };
        let new = NewFile { kind: NewKind::Regular, mode: FILE_MODE, umask: 0, uid, gid };
        let id = self.make(change, &Making::child(self, &dir, &new)?).await?;
        self.add_name(change, &mut dir, name, id, FileKind::Regular).await?;
        self.save(change.edit, &mut dir).await?;
        let file = self.load(change.edit, id).await?;
        self.notes(change).created(&dir, name, &file)?;
        Ok(file)
    }

    pub(super) async fn drop_xattr_file(&self, change: Change<'_>, node: &Znode, name: &[u8]) -> Result<()> {
        let Some((mut dir, name, file)) = self.xattr_file(change.edit, node, name).await? else {
            return Ok(());
        };
        self.remove_name(change, &mut dir, &name, false).await?;
        self.save(change.edit, &mut dir).await?;
        // The attribute may have gone to the packed list. A log with this removal must have that, too.
        self.log().inspect(|log| log.release(node.id));
        self.notes(change).removed(dir.id, &name, false, Some(file.id));
        self.notes(change).touched(node);
        self.destroy(change.edit, &file).await
    }

    pub(super) async fn free_xattr_dir(&self, edit: &Edit, node: &Znode) -> Result<()> {
        let Some(dir) = self.xattr_dir(edit, node).await? else { return Ok(()) };
        self.free_xattr_files(edit, &dir).await?;
        self.destroy(edit, &dir).await
    }

    /// Frees the files of a hidden directory, which is about to be freed itself.
    pub(super) async fn free_xattr_files(&self, edit: &Edit, dir: &Znode) -> Result<()> {
        for entry in Zap::open_id(&edit.view(), dir.id).await?.to_vec().await? {
            let Some(word) = entry.value.as_u64() else { continue };
            let file = self.load_xattr(edit, DirEntry::decode(entry.name, word).object).await?;
            self.destroy(edit, &file).await?;
        }
        Ok(())
    }

    /// Gives the hidden directory, and each attribute in it, the owner of the file (`zfs_setattr_dir`).
    pub(super) async fn set_xattr_owner(
        &self,
        change: Change<'_>,
        node: &Znode,
        set: &SetAttr,
    ) -> Result<()> {
        if set.uid.or(set.gid).is_none() && set.project.is_none() {
            return Ok(());
        }
        let Some(mut dir) = self.xattr_dir(change.edit, node).await? else { return Ok(()) };
        dir.set_owner(set)?;
        dir.set_time(ZplAttr::Ctime, change.now);
        self.save(change.edit, &mut dir).await?;
        for entry in self.view().list(dir.id).await? {
            let mut file = self.load(change.edit, entry.object).await?;
            file.set_owner(set)?;
            file.set_time(ZplAttr::Ctime, change.now);
            self.save(change.edit, &mut file).await?;
        }
        Ok(())
    }
}
