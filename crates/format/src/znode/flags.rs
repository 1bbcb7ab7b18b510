//! File flags, `zp_flags` and attribute `ZPL_FLAGS`.
//!
//! The lower half is internal to the file system; the upper half holds DOS, macOS and BSD attributes.
//!
//! Source: OpenZFS `zfs_znode.h`.

/// Extended attribute, or directory of them.
pub const ZFS_XATTR: u64 = 0x1;
/// ACL with inheritable entries.
pub const ZFS_INHERIT_ACE: u64 = 0x2;
/// ACL equivalent to the mode.
pub const ZFS_ACL_TRIVIAL: u64 = 0x4;
/// ACL with object types.
pub const ZFS_ACL_OBJ_ACE: u64 = 0x8;
/// ACL that does not inherit.
pub const ZFS_ACL_PROTECTED: u64 = 0x10;
/// ACL made by default.
pub const ZFS_ACL_DEFAULTED: u64 = 0x20;
/// Inherited ACL.
pub const ZFS_ACL_AUTO_INHERIT: u64 = 0x40;
/// Scanner stamp after the old znode.
pub const ZFS_BONUS_SCANSTAMP: u64 = 0x80;
/// Everyone may execute.
pub const ZFS_NO_EXECS_DENIED: u64 = 0x100;
/// DOS: read only.
pub const ZFS_READONLY: u64 = 0x1_0000_0000;
/// DOS: hidden.
pub const ZFS_HIDDEN: u64 = 0x2_0000_0000;
/// DOS: system.
pub const ZFS_SYSTEM: u64 = 0x4_0000_0000;
/// DOS: to be archived.
pub const ZFS_ARCHIVE: u64 = 0x8_0000_0000;
/// Immutable.
pub const ZFS_IMMUTABLE: u64 = 0x10_0000_0000;
/// Neither removable nor renamable.
pub const ZFS_NOUNLINK: u64 = 0x20_0000_0000;
/// Append-only.
pub const ZFS_APPENDONLY: u64 = 0x40_0000_0000;
/// Excluded from backups.
pub const ZFS_NODUMP: u64 = 0x80_0000_0000;
/// Opaque in a union mount.
pub const ZFS_OPAQUE: u64 = 0x100_0000_0000;
/// Quarantined by a virus scanner.
pub const ZFS_AV_QUARANTINED: u64 = 0x200_0000_0000;
/// Changed since the last scan.
pub const ZFS_AV_MODIFIED: u64 = 0x400_0000_0000;
/// Reparse point.
pub const ZFS_REPARSE: u64 = 0x800_0000_0000;
/// DOS: off line.
pub const ZFS_OFFLINE: u64 = 0x1000_0000_0000;
/// DOS: sparse.
pub const ZFS_SPARSE: u64 = 0x2000_0000_0000;
/// New files inherit the project.
pub const ZFS_PROJINHERIT: u64 = 0x4000_0000_0000;
/// Has attribute `ZPL_PROJID`.
pub const ZFS_PROJID: u64 = 0x8000_0000_0000;

const NAMES: [(u64, &str); 25] = [
    (ZFS_XATTR, "xattr"),
    (ZFS_INHERIT_ACE, "inherit_ace"),
    (ZFS_ACL_TRIVIAL, "acl_trivial"),
    (ZFS_ACL_OBJ_ACE, "acl_obj_ace"),
    (ZFS_ACL_PROTECTED, "acl_protected"),
    (ZFS_ACL_DEFAULTED, "acl_defaulted"),
    (ZFS_ACL_AUTO_INHERIT, "acl_auto_inherit"),
    (ZFS_BONUS_SCANSTAMP, "bonus_scanstamp"),
    (ZFS_NO_EXECS_DENIED, "no_execs_denied"),
    (ZFS_READONLY, "readonly"),
    (ZFS_HIDDEN, "hidden"),
    (ZFS_SYSTEM, "system"),
    (ZFS_ARCHIVE, "archive"),
    (ZFS_IMMUTABLE, "immutable"),
    (ZFS_NOUNLINK, "nounlink"),
    (ZFS_APPENDONLY, "appendonly"),
    (ZFS_NODUMP, "nodump"),
    (ZFS_OPAQUE, "opaque"),
    (ZFS_AV_QUARANTINED, "av_quarantined"),
    (ZFS_AV_MODIFIED, "av_modified"),
    (ZFS_REPARSE, "reparse"),
    (ZFS_OFFLINE, "offline"),
    (ZFS_SPARSE, "sparse"),
    (ZFS_PROJINHERIT, "projinherit"),
    (ZFS_PROJID, "projid"),
];

/// Names of the set flags, as in OpenZFS, without prefix.
pub fn znode_flag_names(flags: u64) -> impl Iterator<Item = &'static str> {
    NAMES.iter().filter(move |(flag, _)| flags & flag != 0).map(|(_, name)| *name)
}
