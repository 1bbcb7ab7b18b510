//! Implements the kernel's calls.

use std::time::Duration;

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::{FileKind, Filesystem, SpaceBy};
use cenote_fuse::vfs::{NewNode, ReadFlags, RenameFlags, WriteFlags, XattrMode};
use cenote_fuse::{Attr, Caller, DirSink, Entry, Errno, FileType, Node, Result, SetAttr, Statfs, Vfs};
use cenote_object::{Cursor, Wait};

use super::control::SNAPDIR;
use super::errno::{errno, errno_below};
use super::node::{Control, Named, TreeId, generation_in};
use super::tree::Tree;
use super::{Atime, Files, attr};

/// How long the kernel may cache names: it makes all changes itself, or is notified.
const NAMES_VALID: Duration = Duration::from_secs(3600);

/// Positions in a listing: after `.`, after `..`, after `.zfs`, then in the directory's table.
const COOKIE_DOT: u64 = 1;
const COOKIE_DOTDOT: u64 = 2;
const COOKIE_NAMES: u64 = 4;

/// Unit of the counts of `statfs`.
const STATFS_BLOCK_BYTES: u64 = 4096;
const DNODE_BYTES: u64 = 512;
/// Attributes that the kernel interprets, too.
const POSIX_ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Attributes that `ls` asks for each file, until told once that the file system does not support them.
const LABELS: [&[u8]; 2] = [b"security.selinux", b"security.capability"];
/// `DN_MAX_OBJECT`.
const MAX_OBJECTS: u64 = 1 << 48;

impl Vfs for Files {
    fn reads_anew(&self) -> bool {
        self.options().atime == Atime::On && self.writer().is_ok()
    }

    async fn stuck(&self) {
        match self.head() {
            Tree::Live(engine, _) => _ = engine.pool().suspension().suspended_or_not(true).await,
            Tree::Fixed(_) | Tree::Snapshot(..) => std::future::pending().await,
        }
    }

    fn valid_for(&self, dir: Node) -> Duration {
        // Commands also change snapshots.
        let is_control = matches!(self.named(dir), Some(Named::Control(_)));
        if is_control || self.folds_names() { Duration::ZERO } else { NAMES_VALID }
    }

    async fn lookup(&self, _: Caller, dir: Node, name: &[u8]) -> Result<Option<Entry>> {
        let Some(Named::File(id, object)) = self.named(dir) else {
            return self.lookup_control(dir, name).await;
        };
        if name.len() > self.options().longest_name_bytes as usize {
            return Err(Errno::NAMETOOLONG);
        }
        let tree = self.tree(id).await?;
        let found = match name {
            b"." => object,
            b".." if object == tree.root() => object,
            b".." => tree.view().attr(object).await.map_err(|e| errno(&e))?.parent,
            SNAPDIR if id == TreeId::Head && object == tree.root() && self.has_snapdir() => {
                return self.control_entry(Control::Zfs).await.map(Some);
            }
            name => match tree.lookup(object, name).await.map_err(|e| errno(&e))? {
                Some(entry) => entry.object,
                None => return Ok(None),
            },
        };
        let entry = self.entry(id, &tree, found).await?;
        if entry.attr.valid.is_zero() && self.0.references.is_known(entry.node) {
            self.drop_refused(entry.node).await;
        }
        Ok(Some(entry))
    }

    async fn forget(&self, node: Node, references: u64) {
        self.take_back(node, references);
    }

    async fn getattr(&self, node: Node) -> Result<Attr> {
        match self.named(node) {
            Some(Named::Control(control)) => self.control_attr(control).await,
            _ => {
                let (id, tree, object) = self.file(node).await?;
                self.attr(id, &tree, object).await
            }
        }
    }

    async fn setattr(&self, _: Caller, node: Node, set: SetAttr) -> Result<Attr> {
        let object = self.set_attr(node, set).await?;
        self.attr(TreeId::Head, &self.head(), object).await
    }

    async fn readlink(&self, node: Node) -> Result<Bytes> {
        let (id, tree, object) = self.file(node).await?;
        let target = tree.view().read_link(object).await.map_err(|e| errno(&e))?;
        self.was_read(id, object).await;
        Ok(target.into())
    }

    async fn mknod(&self, caller: Caller, dir: Node, name: &[u8], new: NewNode) -> Result<Entry> {
        if let Some(Named::Control(control)) = self.named(dir) {
            return self.make_in_control(caller, control, name, new).await;
        }
        let object = self.make(caller, dir, Some(name), new, None).await?;
        self.entry(TreeId::Head, &self.head(), object).await
    }

    async fn symlink(&self, caller: Caller, dir: Node, name: &[u8], target: &[u8]) -> Result<Entry> {
        let new = NewNode { mode: (FileType::Symlink as u32) << 12 | 0o777, umask: 0, device: (0, 0) };
        let object = self.make(caller, dir, Some(name), new, Some(target)).await?;
        self.entry(TreeId::Head, &self.head(), object).await
    }

    async fn tmpfile(&self, caller: Caller, dir: Node, new: NewNode) -> Result<Entry> {
        let object = self.make(caller, dir, None, new, None).await?;
        let entry = self.entry(TreeId::Head, &self.head(), object).await;
        if !self.0.references.keep(object) {
            self.free_unlinked(object).await;
        }
        entry
    }

    async fn unlink(&self, _: Caller, dir: Node, name: &[u8]) -> Result<()> {
        self.remove(dir, name, false).await
    }

    async fn rmdir(&self, caller: Caller, dir: Node, name: &[u8]) -> Result<()> {
        if let Some(Named::Control(control)) = self.named(dir) {
            return self.remove_from_control(caller, control, name).await;
        }
        self.remove(dir, name, true).await
    }

    async fn rename(
        &self,
        caller: Caller,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        if let (Some(Named::Control(one)), Some(Named::Control(other))) =
            (self.named(from.0), self.named(to.0))
        {
            return self.rename_in_control(caller, (one, from.1), (other, to.1)).await;
        }
        self.move_name(caller, from, to, flags).await
    }

    async fn link(&self, _: Caller, node: Node, dir: Node, name: &[u8]) -> Result<Entry> {
        let object = self.add_name(node, dir, name).await?;
        self.entry(TreeId::Head, &self.head(), object).await
    }

    async fn read(
        &self,
        node: Node,
        offset_bytes: u64,
        len_bytes: u32,
        flags: ReadFlags,
    ) -> Result<Vec<Bytes>> {
        let (id, tree, object) = self.file(node).await?;
        let data = tree.read(object, offset_bytes, len_bytes.into()).await.map_err(|e| errno(&e))?;
        if !flags.keeps_atime {
            self.was_read(id, object).await;
        }
        Ok(data)
    }

    async fn write(
        &self,
        _: Caller,
        node: Node,
        offset_bytes: u64,
        data: Bytes,
        flags: WriteFlags,
    ) -> Result<()> {
        let tree = self.head();
        tree.timed(Wait::Write, self.write_at(node, offset_bytes, data, flags)).await
    }

    async fn fsync(&self, node: Node, _data_only: bool) -> Result<()> {
        match self.file(node).await? {
            (TreeId::Head, _, object) => self.head().commit(Some(object)).await.map_err(|e| errno(&e)),
            _ => Ok(()),
        }
    }

    async fn syncfs(&self) -> Result<()> {
        self.head().commit_all().await.map_err(|e| errno(&e))
    }

    async fn readdir(&self, dir: Node, cookie: u64, flags: ReadFlags, sink: &mut dyn DirSink) -> Result<()> {
        let Some(Named::File(id, object)) = self.named(dir) else {
            return self.list_control(dir, cookie, sink).await;
        };
        let tree = self.tree(id).await?;
        if cookie == 0 && !flags.keeps_atime {
            self.was_read(id, object).await;
        }
        if cookie < COOKIE_DOT
            && !sink.add(b".", attr::ino(id, object), Some(FileType::Directory), COOKIE_DOT)
        {
            return Ok(());
        }
        if cookie < COOKIE_DOTDOT {
            let parent = match object == tree.root() {
                true => object,
                false => tree.view().attr(object).await.map_err(|e| errno(&e))?.parent,
            };
            if !sink.add(b"..", attr::ino(id, parent), Some(FileType::Directory), COOKIE_DOTDOT) {
                return Ok(());
            }
        }
        let lists_zfs = id == TreeId::Head && object == tree.root() && self.options().lists_snapdir;
        if cookie < COOKIE_NAMES
            && lists_zfs
            && !sink.add(SNAPDIR, Control::Zfs.ino(), Some(FileType::Directory), COOKIE_NAMES)
        {
            return Ok(());
        }
        self.list_names((id, &tree, object), Cursor(cookie.saturating_sub(COOKIE_NAMES)), sink).await
    }

    async fn statfs(&self, node: Node) -> Result<Statfs> {
        let whole = self.room().await?;
        match self.named(node) {
            Some(Named::File(TreeId::Head, object)) => self.room_of_project(whole, object).await,
            _ => Ok(whole),
        }
    }

    async fn getxattr(&self, _: Caller, node: Node, name: &[u8]) -> Result<Bytes> {
        if !self.has_xattr(name)? {
            return Err(Errno::NODATA);
        }
        if let Some(Named::Control(_)) = self.named(node) {
            return Err(Errno::NODATA);
        }
        if LABELS.contains(&name) && self.lacks_xattrs() {
            return Err(Errno::OPNOTSUPP);
        }
        let (_, tree, object) = self.file(node).await?;
        let value = tree.view().xattr(object, name).await.map_err(|e| errno(&e))?;
        value.ok_or(Errno::NODATA)
    }

    async fn listxattr(&self, caller: Caller, node: Node) -> Result<Bytes> {
        if let Some(Named::Control(_)) = self.named(node) {
            return Ok(Bytes::new());
        }
        let (_, tree, object) = self.file(node).await?;
        let mut names = Vec::new();
        for xattr in tree.view().xattrs(object).await.map_err(|e| errno(&e))? {
            // xattr(7): unreadable names are not listed.
            let is_told = caller.uid == 0 || !xattr.name.starts_with(b"trusted.");
            if is_told && self.has_xattr(&xattr.name).unwrap_or(false) {
                names.extend(xattr.name);
                names.push(0);
            }
        }
        Ok(names.into())
    }

    async fn setxattr(
        &self,
        _: Caller,
        node: Node,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
        kill_sgid: bool,
    ) -> Result<()> {
        self.set_xattr(node, name, Some(value), mode, kill_sgid).await
    }

    async fn removexattr(&self, _: Caller, node: Node, name: &[u8]) -> Result<()> {
        self.set_xattr(node, name, None, XattrMode::Replace, false).await
    }

    async fn fallocate(
        &self,
        caller: Caller,
        node: Node,
        offset_bytes: u64,
        len_bytes: u64,
        mode: u32,
    ) -> Result<()> {
        self.allocate(caller, node, (offset_bytes, len_bytes), mode).await
    }

    async fn seek(&self, node: Node, offset_bytes: u64, hole: bool) -> Result<u64> {
        match hole {
            true => self.next_hole(node, offset_bytes).await,
            false => self.next_data(node, offset_bytes).await,
        }
    }

    async fn copy_file_range(
        &self,
        caller: Caller,
        from: (Node, u64),
        to: (Node, u64),
        len_bytes: u64,
    ) -> Result<u64> {
        self.share_blocks(caller, from, to, len_bytes).await
    }

    async fn ioctl(&self, caller: Caller, node: Node, command: u32, input: &[u8]) -> Result<Vec<u8>> {
        self.do_ioctl(caller, node, command, input).await
    }
}

impl Files {
    pub(super) async fn room(&self) -> Result<Statfs> {
        let mos = self.0.pool.mos().await.map_err(|e| errno_below(&e))?;
        let dataset = mos.dataset(&self.name()).await.map_err(|e| errno_below(&e))?;
        let referenced = dataset.phys().referenced_bytes;
        let available = dataset.property("available").await.map_err(|e| errno_below(&e))?;
        let available = available.and_then(|available| available.number()).unwrap_or(0);
        let used_objects = dataset.phys().bp.fill();
        let free_files = (MAX_OBJECTS - used_objects.min(MAX_OBJECTS)).min(available / DNODE_BYTES);
        let free = available / STATFS_BLOCK_BYTES;
        Ok(Statfs {
            block_bytes: STATFS_BLOCK_BYTES as u32,
            blocks: (referenced.saturating_add(available)) / STATFS_BLOCK_BYTES,
            free,
            available: free,
            files: used_objects.saturating_add(free_files),
            free_files,
            name_bytes: self.options().longest_name_bytes,
        })
    }

    /// Space for a directory whose new files belong to a project with a quota (`zfs_statvfs_project`).
    async fn room_of_project(&self, whole: Statfs, object: ObjectId) -> Result<Statfs> {
        let view = self.head().view();
        let attr = view.attr(object).await.map_err(|e| errno(&e))?;
        if attr.flags & pflags::PROJINHERIT == 0 || attr.project == 0 {
            return Ok(whole);
        }
        let space = view.space_of(SpaceBy::Project, attr.project).await.map_err(|e| errno(&e))?;
        let mut room = whole;
        if space.quota_bytes > 0 {
            room.blocks = space.quota_bytes / STATFS_BLOCK_BYTES;
            room.free = space.quota_bytes.saturating_sub(space.used_bytes) / STATFS_BLOCK_BYTES;
            room.available = room.free;
        }
        if space.quota_objects > 0 {
            room.files = space.quota_objects;
            room.free_files = space.quota_objects.saturating_sub(space.used_objects);
        }
        Ok(room)
    }

    /// Whether an extended attribute of that name can exist: mount options govern `user.`, `acltype` ACLs.
    /// The kernel always asks for ACLs, so that `acltype` can change while mounted; disabled ones are hidden.
    ///
    /// # Errors
    /// Its namespace is unknown or disabled.
    pub(super) fn has_xattr(&self, name: &[u8]) -> Result<bool> {
        const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        if POSIX_ACLS.contains(&name) {
            return Ok(self.options().posix_acl);
        }
        match NAMESPACES.into_iter().find(|namespace| name.starts_with(namespace)) {
            None => Err(Errno::OPNOTSUPP),
            Some(b"user.") if !self.options().user_xattrs => Err(Errno::OPNOTSUPP),
            Some(namespace) if namespace.len() == name.len() => Err(Errno::INVAL),
            Some(_) => Ok(true),
        }
    }

    /// Whether no file of the mount has extended attributes. Every snapshot is an earlier state of the head,
    /// whose layouts are never removed.
    fn lacks_xattrs(&self) -> bool {
        self.head().view().lacks_xattrs()
    }

    pub(super) async fn attr(&self, id: TreeId, tree: &Tree, object: ObjectId) -> Result<Attr> {
        Ok(self.look(id, tree, object).await?.attr)
    }

    /// An object's entry for the kernel; counts as a reference.
    pub(super) async fn entry(&self, id: TreeId, tree: &Tree, object: ObjectId) -> Result<Entry> {
        let changes = self.0.telling.changes();
        let Looked { generation, mut attr } = self.look(id, tree, object).await?;
        let node = self.0.references.give(id, object, generation);
        if self.0.telling.changes() != changes {
            // An external change came before the kernel held this node: look again.
            match self.look(id, tree, object).await {
                Ok(now) if now.generation == generation => attr = now.attr,
                now => {
                    self.take_back(node, 1);
                    return Err(now.err().unwrap_or(Errno::STALE));
                }
            }
        }
        Ok(Entry { node, generation, attr })
    }

    /// The entries of several objects, in the order given; each counts as a reference. `None`: its attributes
    /// can't be read.
    async fn entries(&self, id: TreeId, tree: &Tree, objects: &[ObjectId]) -> Vec<Option<Entry>> {
        let changes = self.0.telling.changes();
        let mut entries = Vec::with_capacity(objects.len());
        for (&object, looked) in objects.iter().zip(self.look_at(id, tree, objects).await) {
            entries.push(looked.map(|Looked { generation, attr }| {
                let node = self.0.references.give(id, object, generation);
                Entry { node, generation, attr }
            }));
        }
        if self.0.telling.changes() != changes {
            // As for one entry. Many files may be freed meanwhile, so all are looked at together.
            for (entry, now) in entries.iter_mut().zip(self.look_at(id, tree, objects).await) {
                let Some(known) = entry else { continue };
                match now {
                    Some(now) if now.generation == known.generation => known.attr = now.attr,
                    _ => {
                        self.take_back(known.node, 1);
                        *entry = None;
                    }
                }
            }
        }
        entries
    }

    async fn look_at(&self, id: TreeId, tree: &Tree, objects: &[ObjectId]) -> Vec<Option<Looked>> {
        let view = tree.view();
        let are_settled: Vec<bool> = objects.iter().map(|object| is_settled(&view, *object)).collect();
        let stored = view.attrs(objects).await.into_iter().zip(objects).zip(are_settled);
        let looked = stored.map(|((stored, &object), is_settled)| {
            self.looked((id, tree, object), &stored.ok()?, is_settled).ok()
        });
        looked.collect()
    }

    fn take_back(&self, node: Node, references: u64) {
        if let Some(object) = self.0.references.drop(node, references) {
            self.free_soon(object);
        }
    }

    async fn look(&self, id: TreeId, tree: &Tree, object: ObjectId) -> Result<Looked> {
        let view = tree.view();
        let is_settled = is_settled(&view, object);
        let stored = view.attr(object).await.map_err(|e| errno(&e))?;
        self.looked((id, tree, object), &stored, is_settled)
    }

    fn looked(
        &self,
        (id, tree, object): (TreeId, &Tree, ObjectId),
        stored: &cenote_fs::Attr,
        is_settled: bool,
    ) -> Result<Looked> {
        let generation = match id {
            TreeId::Head => stored.generation,
            TreeId::Snapshot(dataset) => {
                let guid = self.0.snapshots.guid(dataset).ok_or(Errno::STALE)?;
                generation_in(guid, stored.generation)
            }
        };
        let mut attr = attr::attr(attr::ino(id, object), stored, is_settled);
        if id == TreeId::Head && object == tree.root() && self.options().lists_snapdir {
            // `.zfs` counts as a subdirectory.
            attr.links = attr.links.saturating_add(1);
        }
        Ok(Looked { generation, attr })
    }

    async fn list_names(
        &self,
        (id, tree, dir): (TreeId, &Tree, ObjectId),
        from: Cursor,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let mut from = from;
        loop {
            let batch = tree.list_from(dir, from).await.map_err(|e| errno(&e))?;
            let Some((_, behind)) = batch.last() else { return Ok(()) };
            from = *behind;
            let fitting = sink.room_for(&mut batch.iter().map(|(name, _)| name.name.len()));
            let fits = &batch[..fitting];
            let entries = match sink.wants_entries() {
                true => {
                    let objects: Vec<ObjectId> = fits.iter().map(|(name, _)| name.object).collect();
                    self.entries(id, tree, &objects).await
                }
                false => vec![None; fitting],
            };
            for ((name, behind), entry) in fits.iter().zip(entries) {
                let cookie = behind.0.saturating_add(COOKIE_NAMES);
                // Files with unreadable attributes are listed nevertheless.
                match &entry {
                    Some(entry) => sink.add_entry(&name.name, entry, cookie),
                    None => {
                        let kind = name.kind.and_then(attr::file_type);
                        sink.add(&name.name, attr::ino(id, name.object), kind, cookie)
                    }
                };
            }
            if fitting < batch.len() {
                return Ok(());
            }
        }
    }
}

/// Later changes come through the kernel, which then discards the answer, or it is notified.
fn is_settled(view: &Filesystem, object: ObjectId) -> bool {
    !view.objset().has_changed_blocks(object)
}

struct Looked {
    generation: u64,
    attr: Attr,
}

pub(super) fn kind_of(mode: u32) -> FileKind {
    FileKind::from_mode(mode.into())
}
