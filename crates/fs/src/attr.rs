//! A file's attributes, decoded straight from its dnode: everything in `stat`, and ZFS's own.
//!
//! Idea: nearly every file's attributes are in the bonus of its dnode, so decoding needs neither I/O nor
//! allocation: a scan passes in millions of dnodes and gets millions of plain values. The bonus type selects
//! one of two forms, not the file system's version, since an upgraded file system contains both:
//!
//! ```text
//!   bonus type SA (ZPL 5)         header + values in the order of a layout, see `cenote_format::sa`
//!   bonus type ZNODE (ZPL 1-4)    znode_phys_t, all fields fixed, see `cenote_format::znode`
//! ```
//!
//! In the SA form, attributes added later (device number, project, xattr directory) may be in the spill
//! block. `Attr::decode` reports this where the missing one matters ([`Decoded::NeedsSpill`]); the caller
//! reads the spill block and calls [`Attr::decode_with_spill`].
//!
//! Values are as stored on disk. Methods convert them to Linux's forms (`st_blocks`, device numbers,
//! FS_IOC_GETFLAGS, 32-bit owners). Source: OpenZFS `zfs_znode.h`, `zfs_sa.h`, `zfs_znode_os.c`
//! (`zfs_znode_alloc`), `zfs_vnops_os.c` (`zfs_getattr_fast`).

use cenote_format::dnode::{Dnode, ObjectType};
use cenote_format::sa::{SaReader, SaRegistry, ZplAttr};
use cenote_format::units::ObjectId;
pub use cenote_format::znode::FileKind;
use cenote_format::znode::{ZfsTime, ZnodeFields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{FsError, Result};

/// Bits of `z_pflags`, named as in `zfs_znode.h` without `ZFS_`.
pub mod pflags {
    pub use cenote_format::znode::{
        ZFS_ACL_AUTO_INHERIT as ACL_AUTO_INHERIT, ZFS_ACL_DEFAULTED as ACL_DEFAULTED,
        ZFS_ACL_OBJ_ACE as ACL_OBJ_ACE, ZFS_ACL_PROTECTED as ACL_PROTECTED, ZFS_ACL_TRIVIAL as ACL_TRIVIAL,
        ZFS_APPENDONLY as APPENDONLY, ZFS_ARCHIVE as ARCHIVE, ZFS_AV_MODIFIED as AV_MODIFIED,
        ZFS_AV_QUARANTINED as AV_QUARANTINED, ZFS_BONUS_SCANSTAMP as BONUS_SCANSTAMP, ZFS_HIDDEN as HIDDEN,
        ZFS_IMMUTABLE as IMMUTABLE, ZFS_INHERIT_ACE as INHERIT_ACE, ZFS_NO_EXECS_DENIED as NO_EXECS_DENIED,
        ZFS_NODUMP as NODUMP, ZFS_NOUNLINK as NOUNLINK, ZFS_OFFLINE as OFFLINE, ZFS_OPAQUE as OPAQUE,
        ZFS_PROJID as PROJID, ZFS_PROJINHERIT as PROJINHERIT, ZFS_READONLY as READONLY,
        ZFS_REPARSE as REPARSE, ZFS_SPARSE as SPARSE, ZFS_SYSTEM as SYSTEM, ZFS_XATTR as XATTR,
    };
}

/// A time as stored on disk; the nanoseconds count forward from the seconds even before 1970. As JSON it is a
/// list of both.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(from = "(i64, u32)", into = "(i64, u32)")]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// 0 to 999,999,999, unless the disk is corrupt.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// A time in nanoseconds since 1970, as clocks give it.
    pub fn of_unix_ns(unix_ns: u64) -> Timestamp {
        let (seconds, nanoseconds) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
        Timestamp { seconds: seconds.cast_signed(), nanoseconds: nanoseconds as u32 }
    }
}

impl From<(i64, u32)> for Timestamp {
    fn from((seconds, nanoseconds): (i64, u32)) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }
}

impl From<Timestamp> for (i64, u32) {
    fn from(time: Timestamp) -> (i64, u32) {
        (time.seconds, time.nanoseconds)
    }
}

impl From<ZfsTime> for Timestamp {
    fn from(time: ZfsTime) -> Timestamp {
        Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds as u32 }
    }
}

impl std::fmt::Display for Timestamp {
    /// Seconds, a dot, nine digits: the golden pools' notation.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

/// The attributes of one object. As JSON it lacks how attributes are stored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attr {
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Owner, a FUID: domain index in the upper half, id in the lower.
    pub uid: u64,
    /// Group, a FUID.
    pub gid: u64,
    /// The size of a file or of a link's target in bytes; for a directory, its entries + 2.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Hard links; for a directory, 2 + its subdirectories.
    pub links: u64,
    /// The txg in which the object was created.
    #[serde(rename = "created_txg")]
    pub generation: u64,
    /// The directory that contains it (for hard links, the one linked last). For an xattr directory, the
    /// file.
    pub parent: ObjectId,
    /// [`pflags`] bits.
    pub flags: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Device number as stored; see [`Attr::device`].
    pub rdev: u64,
    /// Project, 0 unless set.
    pub project: u64,
    /// The directory of extended attributes, if any (unless recorded only in the spill block).
    #[serde(skip)]
    pub xattr_dir: Option<ObjectId>,
    /// Whether the bonus is in the SA form and may also contain extended attributes.
    #[serde(skip)]
    pub is_sa: bool,
    /// Whether a spill block has more attributes.
    #[serde(skip)]
    pub has_spill: bool,
    /// Bytes allocated on disk for content, without the dnode.
    pub used_bytes: u64,
    /// 512-byte slots occupied by the dnode.
    pub dnode_slots: u8,
    /// Block size of the content.
    pub block_bytes: u32,
}

/// The result of [`Attr::decode`], which does no I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// All attributes.
    Done(Attr),
    /// An attribute required for this type of file is in the spill block.
    NeedsSpill,
}

impl Attr {
    /// Decodes the dnode's bonus, without I/O or allocation.
    ///
    /// # Errors
    /// The object does not belong to the POSIX layer, or its bonus contradicts itself.
    pub fn decode(registry: &SaRegistry, dnode: &Dnode) -> Result<Decoded> {
        match dnode.bonus_type {
            ObjectType::SA => Attr::from_sa(dnode, SaReader::new(registry, dnode.bonus())?, None),
            ObjectType::ZNODE => Attr::from_znode(dnode).map(Decoded::Done),
            _ => Err(FsError::Attributes { why: "are missing: the object is not a file" }),
        }
    }

    /// Decodes bonus and spill block together.
    ///
    /// # Errors
    /// Those of [`Attr::decode`]; also if an attribute is missing from both.
    pub fn decode_with_spill(registry: &SaRegistry, dnode: &Dnode, spill: &[u8]) -> Result<Attr> {
        let (bonus, spill) = (SaReader::new(registry, dnode.bonus())?, SaReader::new(registry, spill)?);
        match Attr::from_sa(dnode, bonus, Some(spill))? {
            Decoded::Done(attr) => Ok(attr),
            Decoded::NeedsSpill => Err(FsError::Attributes { why: "lack a mandatory one" }),
        }
    }

    fn from_sa(dnode: &Dnode, bonus: SaReader<'_>, spill: Option<SaReader<'_>>) -> Result<Decoded> {
        let number = |attr| bonus.u64(attr).or_else(|| spill?.u64(attr));
        let time = |attr| {
            let (seconds, nanoseconds) = bonus.time(attr).or_else(|| spill?.time(attr))?;
            Some(Timestamp::from(ZfsTime { seconds, nanoseconds }))
        };
        let has_spill = dnode.spill().is_some();
        let complete = || -> Option<Attr> {
            let mode = number(ZplAttr::Mode)? as u32;
            let flags = number(ZplAttr::Flags)?;
            let kind = FileKind::from_mode(mode.into());
            let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
            Some(Attr {
                mode,
                flags,
                uid: number(ZplAttr::Uid)?,
                gid: number(ZplAttr::Gid)?,
                size: number(ZplAttr::Size)?,
                links: number(ZplAttr::Links)?,
                generation: number(ZplAttr::Gen)?,
                parent: ObjectId(number(ZplAttr::Parent)?),
                atime: time(ZplAttr::Atime)?,
                mtime: time(ZplAttr::Mtime)?,
                ctime: time(ZplAttr::Ctime)?,
                crtime: time(ZplAttr::Crtime)?,
                rdev: if is_device { number(ZplAttr::Rdev)? } else { 0 },
                project: if flags & pflags::PROJID != 0 { number(ZplAttr::Projid)? } else { 0 },
                xattr_dir: number(ZplAttr::Xattr).filter(|&id| id != 0).map(ObjectId),
                is_sa: true,
                has_spill,
                used_bytes: dnode.used_bytes,
                dnode_slots: dnode.slots,
                block_bytes: dnode.data_block_bytes,
            })
        };
        match complete() {
            Some(attr) => Ok(Decoded::Done(attr)),
            None if has_spill => Ok(Decoded::NeedsSpill),
            None => Err(FsError::Attributes { why: "lack a mandatory one" }),
        }
    }

    fn from_znode(dnode: &Dnode) -> Result<Attr> {
        let znode = ZnodeFields::decode(dnode.bonus(), dnode.endian())
            .map_err(|_| FsError::Attributes { why: "are shorter than a znode" })?;
        Ok(Attr {
            mode: znode.mode as u32,
            uid: znode.uid.0,
            gid: znode.gid.0,
            size: znode.size,
            links: znode.links,
            generation: znode.generation.0,
            parent: znode.parent,
            flags: znode.flags,
            atime: znode.atime.into(),
            mtime: znode.mtime.into(),
            ctime: znode.ctime.into(),
            crtime: znode.crtime.into(),
            rdev: znode.rdev,
            project: 0,
            xattr_dir: Some(znode.xattr).filter(|id| id.0 != 0),
            is_sa: false,
            has_spill: false,
            used_bytes: dnode.used_bytes,
            dnode_slots: dnode.slots,
            block_bytes: dnode.data_block_bytes,
        })
    }

    /// The type of the file.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode.into())
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Permission bits with set-id and sticky bits.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Owner and group as Linux shows them: the lower halves of the FUIDs.
    pub fn owner(&self) -> (u32, u32) {
        (self.uid as u32, self.gid as u32)
    }

    /// Major and minor number of a device, as Linux splits the stored number: 12 and 20 bits of the lower
    /// half.
    pub fn device(&self) -> (u32, u32) {
        let device = self.rdev as u32;
        (device >> 20, device & 0xf_ffff)
    }

    /// `st_blocks`: allocated 512-byte sectors, including the dnode's own.
    pub fn sectors(&self) -> u64 {
        self.used_bytes.saturating_add(256) / 512 + u64::from(self.dnode_slots)
    }

    /// Allocated bytes, including the dnode's own: 512 times [`Attr::sectors`].
    pub fn allocated_bytes(&self) -> u64 {
        self.sectors().saturating_mul(512)
    }

    /// FS_IOC_GETFLAGS: 0x10 immutable, 0x20 append-only, 0x40 nodump, 0x20000000 project inherited.
    pub fn linux_flags(&self) -> u32 {
        let map = [
            (pflags::IMMUTABLE, 0x10),
            (pflags::APPENDONLY, 0x20),
            (pflags::NODUMP, 0x40),
            (pflags::PROJINHERIT, 0x2000_0000),
        ];
        map.iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, linux)| linux).sum()
    }

    /// Whether the object is an extended attribute or a directory of them, outside the tree of names.
    pub fn is_xattr(&self) -> bool {
        self.flags & pflags::XATTR != 0
    }
}

#[cfg(test)]
mod tests;
