//! Operations that change a mounted file system.
//!
//! ```text
//!   room and a hold on the open txg --> an operation of FsWriter --> hold dropped --> sync=always: commit
//! ```
//!
//! The hold keeps the txg open: nothing in between may wait for a txg to be written. Work that has to (a
//! commit, a clone of blocks not yet on disk) follows the hold. An operation runs to its end, consequences
//! such as freeing a file included, even if the caller goes away.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use cenote_engine::{Engine, Need};
use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::write::{Changing, CloneSource, NewFile, NewKind, RenameMode, SetAttr as FsSetAttr, SetXattr};
use cenote_fs::{Change, FileKind, FsError, FsWriter, Refusal};
use cenote_fuse::vfs::{NewNode, RenameFlags, TimeOrNow, WriteFlags, XattrMode};
use cenote_fuse::{Caller, Errno, Node, Result, SetAttr};

use super::attr::timestamp;
use super::errno::{errno, errno_below};
use super::node::{Named, TreeId};
use super::tell::Notice;
use super::tree::Tree;
use super::vfs::kind_of;
use super::{Atime, Files};

/// Estimated bytes of an operation on names and attributes.
const NAME_BYTES: u64 = 8 << 10;
const DAY_SECONDS: i64 = 86_400;
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;

const FALLOC_FL_KEEP_SIZE: u32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: u32 = 0x02;
const FALLOC_FL_ZERO_RANGE: u32 = 0x10;

impl Files {
    pub(super) fn writer(&self) -> Result<(Engine, FsWriter)> {
        match self.head() {
            Tree::Live(engine, fs) => Ok((engine, fs)),
            Tree::Fixed(_) | Tree::Snapshot(..) => Err(Errno::ROFS),
        }
    }

    pub(super) fn own(&self, node: Node) -> Result<ObjectId> {
        if self.0.is_abandoned.load(Ordering::Acquire) {
            return Err(Errno::IO);
        }
        match self.named(node) {
            Some(Named::File(TreeId::Head, _)) if self.0.references.is_stale(node) => Err(Errno::STALE),
            Some(Named::File(TreeId::Head, object)) => Ok(object),
            Some(Named::File(..)) => Err(Errno::ROFS),
            Some(Named::Control(_)) => Err(Errno::PERM),
            None => Err(Errno::STALE),
        }
    }

    /// Runs a change within the open txg. `sync=always` then commits `object`.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        need: Need,
        object: Option<ObjectId>,
        operation: impl for<'a> FnOnce(&'a FsWriter, Change<'a>) -> Changing<'a, T> + Send + 'static,
    ) -> Result<T> {
        let (engine, fs) = self.writer()?;
        let done = fs.change(&engine, need, operation).await.map_err(|e| errno(&e))?;
        if fs.log().is_some_and(|log| log.is_always()) {
            fs.commit(object).await.map_err(|e| errno(&e))?;
        }
        Ok(done)
    }

    pub(super) async fn make(
        &self,
        caller: Caller,
        dir: Node,
        name: Option<&[u8]>,
        new: NewNode,
        target: Option<&[u8]>,
    ) -> Result<ObjectId> {
        let dir = self.own(dir)?;
        let (major, minor) = new.device;
        let (name, target) = (name.map(<[u8]>::to_vec), target.map(<[u8]>::to_vec));
        self.change(Need::Write(NAME_BYTES), None, move |fs, change| {
            Box::pin(async move {
                let kind = match (kind_of(new.mode), &target) {
                    (FileKind::Symlink, Some(target)) => NewKind::Symlink(target),
                    // mknod(2): a mode of 0 makes a regular file.
                    (FileKind::Regular | FileKind::Other(0), _) => NewKind::Regular,
                    (FileKind::Directory, _) => NewKind::Directory,
                    (FileKind::Fifo, _) => NewKind::Fifo,
                    (FileKind::Socket, _) => NewKind::Socket,
                    (FileKind::CharDevice, _) => NewKind::CharDevice(major, minor),
                    (FileKind::BlockDevice, _) => NewKind::BlockDevice(major, minor),
                    _ => return Err(Refusal::Invalid.of(dir)),
                };
                let (uid, gid) = (caller.uid.into(), caller.gid.into());
                let new = NewFile { kind, mode: new.mode & 0o7777, umask: new.umask, uid, gid };
                match name {
                    Some(name) => fs.create(change, dir, &name, &new).await,
                    None => fs.create_unnamed(change, dir, &new).await,
                }
            })
        })
        .await
    }

    pub(super) async fn remove(&self, dir: Node, name: &[u8], is_dir: bool) -> Result<()> {
        let dir = self.own(dir)?;
        let (files, name) = (self.clone(), name.to_vec());
        self.change(Need::Free, None, move |fs, change| {
            Box::pin(async move {
                let gone = match is_dir {
                    true => Some(fs.rmdir(change, dir, &name).await?),
                    false => fs.unlink(change, dir, &name).await?,
                };
                files.gone(gone);
                Ok(())
            })
        })
        .await
    }

    /// Frees a file without names once the kernel no longer refers to it.
    fn gone(&self, object: Option<ObjectId>) {
        if let Some(object) = object.filter(|object| !self.0.references.keep(*object)) {
            self.free_soon(object);
        }
    }

    pub(super) async fn add_name(&self, node: Node, dir: Node, name: &[u8]) -> Result<ObjectId> {
        let (object, dir) = (self.own(node)?, self.own(dir)?);
        let (engine, fs) = self.writer()?;
        let is_first = fs.is_unnamed(object);
        let (files, name) = (self.clone(), name.to_vec());
        self.change(Need::Write(NAME_BYTES), None, move |fs, change| {
            Box::pin(async move {
                fs.link(change, object, dir, &name).await?;
                if is_first {
                    files.0.references.relink(object);
                }
                Ok(())
            })
        })
        .await?;
        if is_first {
            engine.sync_all().await.map_err(|e| errno_below(&e))?;
        }
        Ok(object)
    }

    pub(super) async fn move_name(
        &self,
        caller: Caller,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, from_name) = (self.own(from.0)?, from.1.to_vec());
        let (to, to_name) = (self.own(to.0)?, to.1.to_vec());
        let mode = match flags {
            RenameFlags::Replace => RenameMode::Replace,
            RenameFlags::NoReplace => RenameMode::NoReplace,
            RenameFlags::Exchange => RenameMode::Exchange,
            RenameFlags::Whiteout { no_replace } => {
                RenameMode::Whiteout { replaces: !no_replace, owner: (caller.uid.into(), caller.gid.into()) }
            }
        };
        let files = self.clone();
        self.change(Need::Write(NAME_BYTES), None, move |fs, change| {
            Box::pin(async move {
                let (from, to) = ((from, &from_name[..]), (to, &to_name[..]));
                files.gone(fs.rename(change, from, to, mode).await?);
                Ok(())
            })
        })
        .await
    }

    pub(super) async fn write_at(
        &self,
        node: Node,
        offset: u64,
        data: Bytes,
        flags: WriteFlags,
    ) -> Result<()> {
        let object = self.own(node)?;
        let need = Need::Write(data.len() as u64 + NAME_BYTES);
        let killed = self.change(need, Some(object), move |fs, change| {
            Box::pin(async move {
                let killed = flags.kill_suid_sgid && kill_set_ids(fs, change, object).await?;
                fs.write(change, object, offset, data).await?;
                Ok(killed)
            })
        });
        let killed = killed.await.inspect_err(|_| {
            if flags.from_cache {
                // The file lacks data that the kernel could not write back.
                self.0.tell([Notice::Node(node)]);
            }
        });
        self.tell_killed(node, killed?);
        Ok(())
    }

    pub(super) async fn set_attr(&self, node: Node, set: SetAttr) -> Result<ObjectId> {
        let object = self.own(node)?;
        self.check_appending(object, &set).await?;
        let need = match set.size_bytes {
            Some(_) => Need::Free,
            None => Need::Write(NAME_BYTES),
        };
        self.change(need, Some(object), move |fs, change| {
            let time = |time: Option<TimeOrNow>| {
                time.map(|time| match time {
                    TimeOrNow::Time(time) => timestamp(time),
                    TimeOrNow::Now => change.now,
                })
            };
            let wanted = FsSetAttr {
                mode: set.mode,
                uid: set.uid.map(u64::from),
                gid: set.gid.map(u64::from),
                size: set.size_bytes,
                atime: time(set.atime),
                mtime: time(set.mtime),
                ..FsSetAttr::default()
            };
            Box::pin(async move {
                if set.kill_suid_sgid && set.mode.is_none() {
                    kill_set_ids(fs, change, object).await?;
                }
                fs.set_attr(change, object, &wanted).await
            })
        })
        .await?;
        Ok(object)
    }

    /// An append-only file keeps its owner, permissions and times, but may be touched. Linux enforces this
    /// only where it knows the flag, not on FUSE.
    async fn check_appending(&self, object: ObjectId, set: &SetAttr) -> Result<()> {
        let is_time = |time: Option<TimeOrNow>| matches!(time, Some(TimeOrNow::Time(_)));
        let is_refused = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        if !is_refused && !is_time(set.atime) && !is_time(set.mtime) {
            return Ok(());
        }
        let attr = self.head().view().attr(object).await.map_err(|e| errno(&e))?;
        if attr.flags & pflags::APPENDONLY != 0 { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Updates a file's access time before the read returns: the reader may set it next. Errors are ignored.
    pub(super) async fn was_read(&self, tree: TreeId, object: ObjectId) {
        let Ok((_, fs)) = self.writer() else { return };
        if self.options().atime == Atime::Off || tree != TreeId::Head {
            return;
        }
        let Ok(attr) = fs.view().attr(object).await else { return };
        let now = self.now();
        let is_due = match self.options().atime {
            Atime::Off => false,
            // Finer than a second is not worth a txg.
            Atime::On => now.seconds != attr.atime.seconds,
            Atime::Relative => {
                attr.atime <= attr.mtime
                    || attr.atime <= attr.ctime
                    || now.seconds - attr.atime.seconds >= DAY_SECONDS
            }
        };
        if is_due {
            let need = Need::Write(NAME_BYTES);
            self.change(need, None, move |fs, change| fs.accessed(change, object)).await.ok();
        }
    }

    pub(super) async fn set_xattr(
        &self,
        node: Node,
        name: &[u8],
        value: Option<Bytes>,
        mode: XattrMode,
        kill_sgid: bool,
    ) -> Result<()> {
        self.has_xattr(name)?;
        let object = self.own(node)?;
        let how = match mode {
            XattrMode::Any => SetXattr::Any,
            XattrMode::Create => SetXattr::Create,
            XattrMode::Replace => SetXattr::Replace,
        };
        let need = Need::Write(value.as_ref().map_or(0, |value| value.len() as u64) + NAME_BYTES);
        let name = name.to_vec();
        self.change(need, Some(object), move |fs, change| {
            Box::pin(async move {
                fs.set_xattr(change, object, &name, value.as_deref(), how).await?;
                if kill_sgid {
                    let mode = fs.view().attr(object).await?.permissions();
                    let set = FsSetAttr { mode: Some(mode & !S_ISGID), ..FsSetAttr::default() };
                    fs.set_attr(change, object, &set).await?;
                }
                Ok(())
            })
        })
        .await
    }

    pub(super) async fn allocate(
        &self,
        caller: Caller,
        node: Node,
        (offset, len): (u64, u64),
        mode: u32,
    ) -> Result<()> {
        let object = self.own(node)?;
        let end = offset.checked_add(len).filter(|&end| end <= i64::MAX as u64).ok_or(Errno::FBIG)?;
        const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        const ZERO_KEEP: u32 = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
        let need = match mode {
            PUNCH | FALLOC_FL_ZERO_RANGE | ZERO_KEEP => Need::Free,
            0 | FALLOC_FL_KEEP_SIZE => Need::Write(NAME_BYTES),
            _ => return Err(Errno::OPNOTSUPP),
        };
        // Copy-on-write blocks can't be reserved for a file. Only check for room now, with OpenZFS's margin
        // (`zfs_fallocate_reserve_percent`).
        if matches!(need, Need::Write(_)) {
            let room = self.room().await?;
            if len.saturating_add(len / 10) > room.available.saturating_mul(room.block_bytes.into()) {
                return Err(Errno::NOSPC);
            }
        }
        let killed = self.change(need, Some(object), move |fs, change| {
            Box::pin(async move {
                let attr = fs.view().attr(object).await?;
                if attr.kind() != FileKind::Regular {
                    return Err(Refusal::NotSupported.of(object));
                }
                let killed = caller.uid != 0 && kill_set_ids(fs, change, object).await?;
                match mode {
                    PUNCH | ZERO_KEEP => fs.punch(change, object, offset..end).await?,
                    FALLOC_FL_ZERO_RANGE => fs.zero_range(change, object, offset..end).await?,
                    0 if end > attr.size => {
                        let set = FsSetAttr { size: Some(end), ..FsSetAttr::default() };
                        fs.set_attr(change, object, &set).await?;
                    }
                    _ => {}
                }
                Ok(killed)
            })
        });
        self.tell_killed(node, killed.await?);
        Ok(())
    }

    /// The kernel does not expect this request to clear set-id bits.
    fn tell_killed(&self, node: Node, killed: bool) {
        if killed && let Some(notifier) = self.0.notifier.get() {
            notifier.attributes_changed(node);
        }
    }

    /// Shares blocks if files and offsets allow it; otherwise the kernel copies.
    pub(super) async fn share_blocks(
        &self,
        caller: Caller,
        from: (Node, u64),
        to: (Node, u64),
        len: u64,
    ) -> Result<u64> {
        let (_, from_tree, source) = self.file(from.0).await?;
        let target = self.own(to.0)?;
        let (engine, _) = self.writer()?;
        let mut done = 0;
        let mut waited = false;
        while done < len {
            let (at, to_at) = (from.1 + done, to.1 + done);
            let (from_tree, left) = (from_tree.clone(), len - done);
            let shared = self.change(Need::Write(NAME_BYTES), Some(target), move |fs, change| {
                Box::pin(async move {
                    let origin = match &from_tree {
                        Tree::Snapshot(view, hold) => CloneSource::Snapshot(view, hold),
                        _ => CloneSource::Live(fs),
                    };
                    let shared = fs.clone_range(change, origin, (source, at), (target, to_at), left).await?;
                    let killed = shared > 0 && caller.uid != 0 && kill_set_ids(fs, change, target).await?;
                    Ok((shared, killed))
                })
            });
            match shared.await {
                Ok((0, _)) => break,
                Ok((bytes, killed)) => {
                    done += bytes;
                    self.tell_killed(to.0, killed);
                }
                Err(Errno::AGAIN) if !waited => {
                    // Blocks can be shared once their txg is on disk (`zfs_bclone_wait_dirty`).
                    waited = true;
                    engine.sync_all().await.map_err(|e| errno_below(&e))?;
                }
                Err(_) if done > 0 => break,
                Err(Errno::AGAIN | Errno::INVAL | Errno::XDEV | Errno::OPNOTSUPP) => {
                    return Err(Errno::OPNOTSUPP);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Clears set-user-id, and set-group-id if the group may execute, after a change by another user. Returns
/// whether any was set.
async fn kill_set_ids(fs: &FsWriter, change: Change<'_>, object: ObjectId) -> Result<bool, FsError> {
    let attr = fs.view().attr(object).await?;
    let mode = attr.permissions();
    let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    let killed = mode & !(S_ISUID | group);
    if attr.kind() == FileKind::Directory || killed == mode {
        return Ok(false);
    }
    fs.set_attr(change, object, &FsSetAttr { mode: Some(killed), ..FsSetAttr::default() }).await?;
    Ok(true)
}
