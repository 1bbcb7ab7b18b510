//! Znode: a file's attributes and the values of directory entries.
//!
//! Idea: ZPL versions 1 to 4 keep a fixed structure in the bonus (type `ZNODE`), decoded here; version 5
//! keeps system attributes (`sa`). The submodules hold the shared parts.
//!
//! Layout of the bonus, in words of 8 bytes:
//!
//! ```text
//!   0 atime (s, ns)  2 mtime  4 ctime  6 crtime  8 gen  9 mode  10 size  11 parent  12 links  13 xattr
//!   14 rdev  15 flags  16 uid  17 gid  18 zap  19 zeros (3)  22 ACL (88 bytes)
//!   byte 264: a symbolic link's target, if it fits (else it is in block 0); or a virus scanner's 32 bytes
//! ```
//!
//! Source: OpenZFS `zfs_sa.h` (`znode_phys_t`), `zfs_znode.h`, `zfs_sa.c`.

mod acl;
mod dirent;
mod flags;
mod fuid;
#[cfg(test)]
mod tests;

pub use acl::{
    Ace, AceWho, AclForm, AclPhys, INLINE_BYTES as ZFS_ACE_SPACE, decode_aces, encode_aces, encode_log_aces,
};
pub use dirent::{Dirent, FileKind};
pub use flags::*;
pub use fuid::{Fuid, FuidTable};

use crate::bytes::{Endian, Reader, Writer};
use crate::error::Result;
use crate::units::{ObjectId, Txg};

/// Old znode without its tail, `ZFS_OLD_ZNODE_PHYS_SIZE`.
pub const ZFS_OLD_ZNODE_PHYS_SIZE: usize = 264;
/// Scanner stamp, `AV_SCANSTAMP_SZ`.
const SCANSTAMP_BYTES: usize = 32;
const FIELDS_BYTES: usize = 4 * 16 + 14 * 8;

const _: () = assert!(FIELDS_BYTES + acl::ACL_BYTES == ZFS_OLD_ZNODE_PHYS_SIZE);
const WHAT: &str = "znode";

/// On-disk time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZfsTime {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds in the second.
    pub nanoseconds: u64,
}

/// Fields common to all old znodes, without ACL and tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZnodeFields {
    /// Last access.
    pub atime: ZfsTime,
    /// Last change of content.
    pub mtime: ZfsTime,
    /// Last change of attributes.
    pub ctime: ZfsTime,
    /// Creation.
    pub crtime: ZfsTime,
    /// Creation txg.
    pub generation: Txg,
    /// Type and permissions.
    pub mode: u64,
    /// Content bytes; for a directory, entries including `.` and `..`.
    pub size: u64,
    /// Parent directory.
    pub parent: ObjectId,
    /// Names.
    pub links: u64,
    /// Xattr directory; 0 for none.
    pub xattr: ObjectId,
    /// Device number.
    pub rdev: u64,
    /// `ZFS_*` flags.
    pub flags: u64,
    /// Owner.
    pub uid: Fuid,
    /// Group.
    pub gid: Fuid,
    /// Reserved, never used.
    pub zap: ObjectId,
}

/// Old znode, `znode_phys_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZnodePhys {
    /// Common fields.
    pub fields: ZnodeFields,
    /// ACL or its location.
    pub acl: AclPhys,
    /// Following bytes; their meaning depends on the file.
    tail: Vec<u8>,
}

impl ZnodeFields {
    /// Decodes the fields of a `ZNODE` bonus without allocation.
    ///
    /// # Errors
    /// A truncated bonus.
    pub fn decode(bonus: &[u8], endian: Endian) -> Result<ZnodeFields> {
        Self::read(&mut Reader::new(WHAT, bonus, endian))
    }

    fn read(r: &mut Reader<'_>) -> Result<ZnodeFields> {
        let mut time = || -> Result<_> { Ok(ZfsTime { seconds: r.i64()?, nanoseconds: r.u64()? }) };
        let (atime, mtime, ctime, crtime) = (time()?, time()?, time()?, time()?);
        let [generation, mode, size, parent, links, xattr, rdev, flags, uid, gid, zap, ..] =
            r.words::<14>()?;
        Ok(ZnodeFields {
            atime,
            mtime,
            ctime,
            crtime,
            generation: Txg(generation),
            mode,
            size,
            parent: ObjectId(parent),
            links,
            xattr: ObjectId(xattr),
            rdev,
            flags,
            uid: Fuid(uid),
            gid: Fuid(gid),
            zap: ObjectId(zap),
        })
    }
}

impl ZnodePhys {
    /// Decodes a `ZNODE` bonus.
    ///
    /// # Errors
    /// A truncated bonus.
    pub fn decode(bonus: &[u8], endian: Endian) -> Result<ZnodePhys> {
        let mut r = Reader::new(WHAT, bonus, endian);
        let fields = ZnodeFields::read(&mut r)?;
        debug_assert_eq!(r.position(), FIELDS_BYTES);
        let acl = AclPhys::read(&mut r)?;
        debug_assert_eq!(r.position(), ZFS_OLD_ZNODE_PHYS_SIZE);
        Ok(ZnodePhys { fields, acl, tail: r.bytes(r.remaining())?.to_vec() })
    }

    /// An old znode with its `tail`: a short link target or scanner stamp.
    pub fn new(fields: ZnodeFields, acl: AclPhys, tail: &[u8]) -> ZnodePhys {
        ZnodePhys { fields, acl, tail: tail.to_vec() }
    }

    /// Encodes the bonus.
    pub fn encode(&self, endian: Endian) -> Vec<u8> {
        let mut w = Writer::new(endian);
        let fields = &self.fields;
        for time in [fields.atime, fields.mtime, fields.ctime, fields.crtime] {
            w.u64(time.seconds.cast_unsigned()).u64(time.nanoseconds);
        }
        w.words(&[
            fields.generation.0,
            fields.mode,
            fields.size,
            fields.parent.0,
            fields.links,
            fields.xattr.0,
            fields.rdev,
        ]);
        w.words(&[fields.flags, fields.uid.0, fields.gid.0, fields.zap.0, 0, 0, 0]);
        assert_eq!(w.position(), FIELDS_BYTES);
        self.acl.write(&mut w);
        assert_eq!(w.position(), ZFS_OLD_ZNODE_PHYS_SIZE);
        w.bytes(&self.tail);
        w.finish()
    }

    /// File kind.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.fields.mode)
    }

    /// Link target in the bonus. Longer targets are the first `size` bytes of block 0.
    pub fn inline_link(&self) -> Option<&[u8]> {
        if self.kind() != FileKind::Symlink {
            return None;
        }
        self.tail.get(..usize::try_from(self.fields.size).ok()?)
    }

    /// Virus scanner's stamp.
    pub fn scanstamp(&self) -> Option<&[u8]> {
        if self.fields.flags & ZFS_BONUS_SCANSTAMP == 0 { None } else { self.tail.get(..SCANSTAMP_BYTES) }
    }
}
