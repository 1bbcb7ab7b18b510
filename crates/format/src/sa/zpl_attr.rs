//! Attributes that the ZPL knows by name.

/// A file attribute, `zpl_attr_t`. Its number may differ between file systems; its name does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ZplAttr {
    /// Last access.
    Atime,
    /// Last content change.
    Mtime,
    /// Last attribute change.
    Ctime,
    /// Creation time.
    Crtime,
    /// Creation txg; distinguishes files that reuse an object number.
    Gen,
    /// Type and permissions.
    Mode,
    /// Content bytes; for a directory, entries including `.` and `..`.
    Size,
    /// Parent directory.
    Parent,
    /// Names.
    Links,
    /// Xattr directory; 0 for none.
    Xattr,
    /// Device number.
    Rdev,
    /// `ZFS_*` flags.
    Flags,
    /// Owner, a FUID.
    Uid,
    /// Group, a FUID.
    Gid,
    /// Unused padding of old znodes.
    Pad,
    /// ACL of old znodes.
    ZnodeAcl,
    /// ACL entry count.
    DaclCount,
    /// Link target.
    Symlink,
    /// Virus scanner state.
    Scanstamp,
    /// Packed ACL entries.
    DaclAces,
    /// Xattrs, a packed nvlist.
    Dxattr,
    /// Project, if flag `ZFS_PROJID` is set.
    Projid,
}

/// Name, registered length (0: variable) and byte-swap class.
const TABLE: [(ZplAttr, &str, u16, u8); ZplAttr::COUNT] = [
    (ZplAttr::Atime, "ZPL_ATIME", 16, 0),
    (ZplAttr::Mtime, "ZPL_MTIME", 16, 0),
    (ZplAttr::Ctime, "ZPL_CTIME", 16, 0),
    (ZplAttr::Crtime, "ZPL_CRTIME", 16, 0),
    (ZplAttr::Gen, "ZPL_GEN", 8, 0),
    (ZplAttr::Mode, "ZPL_MODE", 8, 0),
    (ZplAttr::Size, "ZPL_SIZE", 8, 0),
    (ZplAttr::Parent, "ZPL_PARENT", 8, 0),
    (ZplAttr::Links, "ZPL_LINKS", 8, 0),
    (ZplAttr::Xattr, "ZPL_XATTR", 8, 0),
    (ZplAttr::Rdev, "ZPL_RDEV", 8, 0),
    (ZplAttr::Flags, "ZPL_FLAGS", 8, 0),
    (ZplAttr::Uid, "ZPL_UID", 8, 0),
    (ZplAttr::Gid, "ZPL_GID", 8, 0),
    (ZplAttr::Pad, "ZPL_PAD", 32, 0),
    (ZplAttr::ZnodeAcl, "ZPL_ZNODE_ACL", 88, 3),
    (ZplAttr::DaclCount, "ZPL_DACL_COUNT", 8, 0),
    (ZplAttr::Symlink, "ZPL_SYMLINK", 0, 3),
    (ZplAttr::Scanstamp, "ZPL_SCANSTAMP", 32, 3),
    (ZplAttr::DaclAces, "ZPL_DACL_ACES", 0, 4),
    (ZplAttr::Dxattr, "ZPL_DXATTR", 0, 3),
    (ZplAttr::Projid, "ZPL_PROJID", 8, 0),
];

impl ZplAttr {
    /// Attribute count.
    pub const COUNT: usize = 22;
    /// Leading attributes, shared with old znodes, have the same number everywhere.
    pub(super) const LEGACY_COUNT: usize = 16;

    /// Attributes in the order of `zpl_attr_t`.
    pub fn all() -> impl Iterator<Item = ZplAttr> {
        TABLE.iter().map(|(attr, ..)| *attr)
    }

    /// Registry name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Registry word for a number.
    pub fn registration(self, number: u16) -> u64 {
        u64::from(number) | u64::from(self.byteswap()) << 16 | u64::from(self.registered_bytes()) << 24
    }

    /// OpenZFS's registered length; 0 if variable.
    pub fn registered_bytes(self) -> u16 {
        TABLE[self as usize].2
    }

    /// Byte-swap class, `sa_bswap_type_t`.
    pub fn byteswap(self) -> u8 {
        TABLE[self as usize].3
    }
}
