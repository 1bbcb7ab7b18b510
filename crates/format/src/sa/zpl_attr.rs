//! The attributes that the ZPL knows by name.

/// An attribute of a file, `zpl_attr_t`. Its number may differ between file systems; its name does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ZplAttr {
    /// Time of last access.
    Atime,
    /// Time of last change of content.
    Mtime,
    /// Time of last change of attributes.
    Ctime,
    /// Time of creation.
    Crtime,
    /// The txg of creation, which tells apart files that have had the same object number.
    Gen,
    /// Type and permissions.
    Mode,
    /// Bytes of content; for a directory, the number of its entries including `.` and `..`.
    Size,
    /// Object of its parent directory.
    Parent,
    /// Number of its names.
    Links,
    /// Object of its directory of extended attributes; 0 for none.
    Xattr,
    /// Device number.
    Rdev,
    /// `ZFS_*` flags.
    Flags,
    /// Owner, a FUID.
    Uid,
    /// Group, a FUID.
    Gid,
    /// Unused room of old znodes.
    Pad,
    /// ACL of old znodes.
    ZnodeAcl,
    /// Entries of the ACL.
    DaclCount,
    /// Target of a symbolic link.
    Symlink,
    /// State of a virus scanner.
    Scanstamp,
    /// Entries of the ACL, packed.
    DaclAces,
    /// Extended attributes, a packed nvlist.
    Dxattr,
    /// Project, if flag `ZFS_PROJID` is set.
    Projid,
}

/// Name, registered length (0: variable) and byte-swap class of each.
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
    /// The number of attributes.
    pub const COUNT: usize = 22;
    /// The first ones, which old znodes have too, have the same number everywhere.
    pub(super) const LEGACY_COUNT: usize = 16;

    /// All attributes, in the order of `zpl_attr_t`.
    pub fn all() -> impl Iterator<Item = ZplAttr> {
        TABLE.iter().map(|(attr, ..)| *attr)
    }

    /// The name in the registry.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The word that registers it under a number.
    pub fn registration(self, number: u16) -> u64 {
        u64::from(number) | u64::from(self.byteswap()) << 16 | u64::from(self.registered_bytes()) << 24
    }

    /// The length that OpenZFS registers it with; 0 if each value has its own.
    pub fn registered_bytes(self) -> u16 {
        TABLE[self as usize].2
    }

    /// How OpenZFS byte-swaps it, `sa_bswap_type_t`.
    pub fn byteswap(self) -> u8 {
        TABLE[self as usize].3
    }
}
