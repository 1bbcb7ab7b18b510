//! Records that change directories.
//!
//! Their effect on attributes: a directory that gains or loses a name changes its size, both times and, for a
//! subdirectory, its links. A file that gains or loses a name changes its links and ctime, and its recorded
//! parent is the directory linked last. A file without names is gone: no process has it open after a crash.
//!
//! Source: OpenZFS `zfs_dir.c` (`zfs_link_create`, `zfs_link_destroy`), `zfs_vnops_os.c` (`zfs_rename`).

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_format::zil::record::NewObject;

use super::Replay;
use super::attributes::time;
use crate::attr::{Attr, FileKind, pflags};
use crate::directory::DirEntry;
use crate::error::{FsError, Result};
use crate::filesystem::CaseSensitivity;

/// The first file system version that marks changed files for backup programs, `ZPL_VERSION_FUID`.
const ZPL_VERSION_FUID: u64 = 3;
/// The first version with attributes in SA form, `ZPL_VERSION_SA`.
const ZPL_VERSION_SA: u64 = 5;

impl Replay {
    pub(super) async fn create(&mut self, new: &NewObject, name: &[u8]) -> Result<()> {
        let attr = self.make(new, false).await?;
        self.add_name(new.directory, name, new.object, attr.kind()).await
    }

    pub(super) async fn make_xattr_dir(&mut self, new: &NewObject) -> Result<()> {
        self.make(new, true).await?;
        self.attr_mut(new.directory).await?.xattr_dir = Some(new.object);
        Ok(())
    }

    /// Creates an object without a name.
    async fn make(&mut self, new: &NewObject, is_xattr_dir: bool) -> Result<Attr> {
        match self.fs.attr(new.object).await {
            Err(FsError::NoObject { .. }) => {}
            Ok(_) => return Err(self.contradiction("creates an object that exists already")),
            Err(error) => return Err(error),
        }
        let parent = self.fs.attr(new.directory).await?;
        let time = time(new.crtime);
        let kind = FileKind::from_mode(new.mode);
        let version = self.fs.master().version;
        let mut flags = 0;
        if version >= ZPL_VERSION_FUID {
            flags |= pflags::ARCHIVE | pflags::AV_MODIFIED;
        }
        if is_xattr_dir || parent.is_xattr() {
            flags |= pflags::XATTR;
        }
        let inherits = matches!(kind, FileKind::Regular | FileKind::Directory)
            && parent.flags & pflags::PROJINHERIT != 0;
        if inherits {
            flags |= pflags::PROJID | pflags::PROJINHERIT;
        }
        let is_dir = kind == FileKind::Directory;
        let attr = Attr {
            mode: new.mode as u32,
            uid: new.uid,
            gid: new.gid,
            size: if is_dir { 2 } else { 0 },
            links: if is_dir { 2 } else { 1 },
            generation: new.generation,
            parent: new.directory,
            flags,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            rdev: new.rdev,
            project: if inherits { parent.project } else { 0 },
            xattr_dir: None,
            is_sa: version >= ZPL_VERSION_SA,
            has_spill: false,
            used_bytes: 0,
            dnode_slots: new.slots.min(32) as u8,
            block_bytes: 512,
        };
        self.overlay().create(new.object, attr);
        Ok(attr)
    }

    pub(super) async fn remove(&mut self, dir: ObjectId, name: &[u8], fold: bool) -> Result<()> {
        let entry = self.entry(dir, name, fold).await?;
        self.drop_name(dir, &entry).await?;
        self.drop_link(entry.object).await
    }

    pub(super) async fn link(&mut self, dir: ObjectId, object: ObjectId, name: &[u8]) -> Result<()> {
        let now = self.now;
        let attr = self.attr_mut(object).await?;
        attr.links += 1;
        attr.ctime = now;
        attr.parent = dir;
        let kind = attr.kind();
        self.add_name(dir, name, object, kind).await
    }

    /// Moves a name, replacing an existing one.
    pub(super) async fn rename(
        &mut self,
        (from_dir, from): (ObjectId, &[u8]),
        (to_dir, to): (ObjectId, &[u8]),
        fold: bool,
    ) -> Result<()> {
        let source = self.entry(from_dir, from, fold).await?;
        let target = self.find(to_dir, to, fold).await?;
        if let Some(target) = &target {
            // If both names lead to one file nothing happens, unless the name only changes its case.
            if target.object == source.object && target.name != source.name {
                return Ok(());
            }
        }
        self.drop_name(from_dir, &source).await?;
        if let Some(target) = target.filter(|target| target.object != source.object) {
            self.drop_name(to_dir, &target).await?;
            self.drop_link(target.object).await?;
        }
        self.relink(to_dir, to, &source).await
    }

    pub(super) async fn exchange(
        &mut self,
        (from_dir, from): (ObjectId, &[u8]),
        (to_dir, to): (ObjectId, &[u8]),
        fold: bool,
    ) -> Result<()> {
        let source = self.entry(from_dir, from, fold).await?;
        let target = self.entry(to_dir, to, fold).await?;
        self.drop_name(from_dir, &source).await?;
        self.drop_name(to_dir, &target).await?;
        self.relink(to_dir, to, &source).await?;
        self.relink(from_dir, from, &target).await
    }

    /// Gives another name to a file that just lost one.
    async fn relink(&mut self, dir: ObjectId, name: &[u8], entry: &DirEntry) -> Result<()> {
        let now = self.now;
        let attr = self.attr_mut(entry.object).await?;
        attr.parent = dir;
        attr.ctime = now;
        let kind = attr.kind();
        self.add_name(dir, name, entry.object, kind).await
    }

    async fn add_name(&mut self, dir: ObjectId, name: &[u8], object: ObjectId, kind: FileKind) -> Result<()> {
        let now = self.now;
        let node = self.node_mut(dir).await?;
        let entry = DirEntry { name: Bytes::copy_from_slice(name), object, kind: Some(kind) };
        node.names.insert(entry.name.clone(), Some(entry));
        if let Some(attr) = &mut node.attr {
            attr.size += 1;
            attr.links += u64::from(kind == FileKind::Directory);
            (attr.mtime, attr.ctime) = (now, now);
        }
        Ok(())
    }

    async fn drop_name(&mut self, dir: ObjectId, entry: &DirEntry) -> Result<()> {
        let now = self.now;
        let is_dir = self.fs.attr(entry.object).await?.is_dir();
        let node = self.node_mut(dir).await?;
        node.names.insert(entry.name.clone(), None);
        if let Some(attr) = &mut node.attr {
            attr.size = attr.size.saturating_sub(1);
            attr.links = attr.links.saturating_sub(u64::from(is_dir));
            (attr.mtime, attr.ctime) = (now, now);
        }
        Ok(())
    }

    async fn drop_link(&mut self, object: ObjectId) -> Result<()> {
        let now = self.now;
        let attr = self.attr_mut(object).await?;
        attr.links = attr.links.saturating_sub(1);
        attr.ctime = now;
        let is_gone = attr.links <= u64::from(attr.is_dir());
        if is_gone {
            self.overlay().free(object);
        }
        Ok(())
    }

    async fn entry(&self, dir: ObjectId, name: &[u8], fold: bool) -> Result<DirEntry> {
        self.find(dir, name, fold).await?.ok_or_else(|| {
            self.contradiction(
                "names a file that does not \
            exist",
            )
        })
    }

    async fn find(&self, dir: ObjectId, name: &[u8], fold: bool) -> Result<Option<DirEntry>> {
        let fold = fold || self.fs.master().case == CaseSensitivity::Insensitive;
        self.fs.lookup_folding(dir, name, fold).await
    }
}
