//! Creates objects with the attributes that `mknod` gives them.
//!
//! Source: OpenZFS `zfs_znode_os.c` (`zfs_mknode`), whose order of attributes is the layout of all files.

use bytes::Bytes;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::sa::{SaValues, ZplAttr};
use cenote_format::units::ObjectId;
use cenote_format::znode::{FileKind, encode_aces};
use cenote_object::{NewObject, NewZap};

use super::replay::AsLogged;
use super::znode::{Packed, Znode, old, put, time_bytes};
use super::{Change, FsWriter};
use crate::acl::rules::{Acl, mode_of};
use crate::attr::pflags;
use crate::error::{Refusal, Result};

const S_ISGID: u32 = 0o2000;
/// The longest target of a symbolic link, `MAXPATHLEN - 1`.
const MAX_TARGET_BYTES: usize = 4095;

/// The type of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// An empty file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device, by major and minor number.
    CharDevice(u32, u32),
    /// A block device, by major and minor number.
    BlockDevice(u32, u32),
}

impl NewKind<'_> {
    fn kind(self) -> FileKind {
        match self {
            NewKind::Regular => FileKind::Regular,
            NewKind::Directory => FileKind::Directory,
            NewKind::Symlink(_) => FileKind::Symlink,
            NewKind::Fifo => FileKind::Fifo,
            NewKind::Socket => FileKind::Socket,
            NewKind::CharDevice(..) => FileKind::CharDevice,
            NewKind::BlockDevice(..) => FileKind::BlockDevice,
        }
    }

    /// The device number in Linux's encoding.
    fn device(self) -> Option<u64> {
        match self {
            NewKind::CharDevice(major, minor) | NewKind::BlockDevice(major, minor) => {
                Some(u64::from(major) << 20 | u64::from(minor & 0xf_ffff))
            }
            _ => None,
        }
    }
}

/// The properties of a new file.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// Its type.
    pub kind: NewKind<'a>,
    /// Permissions, set-id and sticky bits.
    pub mode: u32,
    /// Permissions to remove, unless the directory has a default ACL.
    pub umask: u32,
    /// Owner.
    pub uid: u64,
    /// Group, unless the directory has the set-group-id bit: then the directory's group.
    pub gid: u64,
}

/// Everything that determines a new object's attributes.
pub(super) struct Making<'a> {
    pub kind: NewKind<'a>,
    /// Including the file type bits.
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub parent: ObjectId,
    /// Flags and project inherited from its directory.
    pub flags: u64,
    pub project: u64,
    pub acl: Acl,
    /// Set if being recreated from a log.
    pub as_logged: Option<AsLogged>,
}

impl<'a> Making<'a> {
    pub(super) fn child(fs: &FsWriter, parent: &Znode, new: &NewFile<'a>) -> Result<Making<'a>> {
        let kind = new.kind.kind();
        if let NewKind::Symlink(target) = new.kind
            && (target.is_empty() || target.len() > MAX_TARGET_BYTES)
        {
            return Err(if target.is_empty() { Refusal::Invalid } else { Refusal::NameTooLong }.of(parent.id));
        }
        let mut mode = u32::from(kind.number()) << 12 | new.mode & 0o7777;
        let mut gid = new.gid;
        if parent.mode()? & S_ISGID != 0 {
            gid = parent.u64(ZplAttr::Gid)?;
            mode |= if kind == FileKind::Directory { S_ISGID } else { 0 };
        }
        let inherits = parent.has_flag(pflags::INHERIT_ACE)? && !parent.has_flag(pflags::XATTR)?;
        let inherited = if inherits { Some(parent.acl()?) } else { None };
        let acl = fs.acl_rules().for_new(mode, inherited.as_deref());
        let has_project = matches!(kind, FileKind::Regular | FileKind::Directory);
        let passes_project = has_project && parent.has_flag(pflags::PROJINHERIT)?;
        Ok(Making {
            kind: new.kind,
            mode,
            uid: new.uid,
            gid,
            parent: parent.id,
            flags: parent.flags()? & pflags::XATTR | if passes_project { pflags::PROJINHERIT } else { 0 },
            project: if passes_project { parent.project() } else { 0 },
            acl,
            as_logged: None,
        })
    }

    /// A directory without a parent entry: the root, or one of extended attributes.
    pub(super) fn apart(fs: &FsWriter, parent: ObjectId, mode: u32, (uid, gid): (u64, u64)) -> Making<'a> {
        let mode = u32::from(FileKind::Directory.number()) << 12 | mode;
        let acl = fs.acl_rules().for_new(mode, None);
        Making {
            kind: NewKind::Directory,
            mode,
            uid,
            gid,
            parent,
            flags: 0,
            project: 0,
            acl,
            as_logged: None,
        }
    }
}

impl FsWriter {
    /// Creates an object without a name yet.
    ///
    /// # Errors
    /// Its owners have exhausted a quota; damage.
    pub(super) async fn make(&self, change: Change<'_>, new: &Making<'_>) -> Result<ObjectId> {
        self.check_new((new.uid, new.gid, new.project), new.parent).await?;
        let options = self.options();
        let slots = new.as_logged.map_or(options.dnode_slots, |logged| logged.slots).clamp(1, 32);
        let values = self.first_values(change, new);
        let Packed { bonus_type, bonus, spill } =
            self.0.znodes.pack_first(change.edit, new.parent, &values, slots).await?;
        let object = |kind| NewObject::of(kind).bonus(bonus_type, bonus.clone()).slots(slots);
        let table = NewZap::in_object(object(ObjectType::DIRECTORY_CONTENTS)).normalized(self.table_flags());
        let file = object(ObjectType::PLAIN_FILE_CONTENTS);
        let is_dir = new.kind == NewKind::Directory;
        let id = match new.as_logged.map(|logged| logged.object) {
            None if is_dir => table.create(change.edit).await?,
            None => change.edit.create(&file).await?,
            Some(id) => {
                let made = match is_dir {
                    true => table.create_at(change.edit, id).await,
                    false => change.edit.create_at(id, &file).await,
                };
                made.map(|()| id)?
            }
        };
        if spill.is_some() {
            change.edit.set_spill(id, spill).await?;
        }
        if let NewKind::Symlink(target) = new.kind
            && self.0.znodes.are_old()
            && !old::fits_behind(target)
        {
            change.edit.set_block_bytes(id, old::block_for(target)).await?;
            change.edit.write(id, 0, Bytes::copy_from_slice(target)).await?;
        }
        Ok(id)
    }

    fn first_values(&self, change: Change<'_>, new: &Making<'_>) -> SaValues {
        let registry = self.0.znodes.registry();
        let mut values = SaValues::new();
        let mut set = |attr, value: &[u8]| put(&registry, &mut values, attr, value);
        let kind = new.kind.kind();
        let has_project = self.options().projects && matches!(kind, FileKind::Regular | FileKind::Directory);
        let (mode, all_execute) = mode_of(&new.acl.entries, new.mode, new.uid, new.gid);
        let flags = pflags::ARCHIVE
            | pflags::AV_MODIFIED
            | new.flags
            | new.acl.flags
            | if has_project { pflags::PROJID } else { 0 }
            | if all_execute { pflags::NO_EXECS_DENIED } else { 0 };
        let (size, links): (u64, u64) = match new.kind {
            NewKind::Directory => (2, 2),
            NewKind::Symlink(target) => (target.len() as u64, 1),
            _ => (0, 1),
        };
        let now = time_bytes(change.now);
        set(ZplAttr::Mode, &u64::from(mode).to_ne_bytes());
        set(ZplAttr::Size, &size.to_ne_bytes());
        let generation = new.as_logged.map_or(change.edit.txg().0, |logged| logged.generation);
        set(ZplAttr::Gen, &generation.to_ne_bytes());
        set(ZplAttr::Uid, &new.uid.to_ne_bytes());
        set(ZplAttr::Gid, &new.gid.to_ne_bytes());
        set(ZplAttr::Parent, &new.parent.0.to_ne_bytes());
        set(ZplAttr::Flags, &flags.to_ne_bytes());
        for attr in [ZplAttr::Atime, ZplAttr::Mtime, ZplAttr::Ctime, ZplAttr::Crtime] {
            set(attr, &now);
        }
        set(ZplAttr::Links, &links.to_ne_bytes());
        if has_project {
            set(ZplAttr::Projid, &new.project.to_ne_bytes());
        }
        if let Some(device) = new.kind.device() {
            set(ZplAttr::Rdev, &device.to_ne_bytes());
        }
        set(ZplAttr::DaclCount, &(new.acl.entries.len() as u64).to_ne_bytes());
        set(ZplAttr::DaclAces, &encode_aces(&new.acl.entries, Endian::NATIVE));
        if let NewKind::Symlink(target) = new.kind {
            set(ZplAttr::Symlink, target);
        }
        values
    }
}
