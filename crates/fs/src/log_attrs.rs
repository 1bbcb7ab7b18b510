//! Attribute bits in log records, as written by Linux.
//!
//! Source: Linux `fs.h` (`ATTR_*`), OpenZFS `zil.h` (`XAT0_*`), `xvattr.h`.

use crate::attr::pflags;

/// `ATTR_*` in `lr_mask`.
pub(crate) mod mask {
    pub(crate) const MODE: u64 = 1;
    pub(crate) const UID: u64 = 1 << 1;
    pub(crate) const GID: u64 = 1 << 2;
    pub(crate) const SIZE: u64 = 1 << 3;
    pub(crate) const ATIME: u64 = 1 << 4;
    pub(crate) const MTIME: u64 = 1 << 5;
}

/// `ATTR_XVATTR`: non-POSIX attributes follow.
pub(crate) const ATTR_XVATTR: u64 = 1 << 31;
/// `XAT0_CREATETIME`.
pub(crate) const XAT0_CREATETIME: u64 = 0x1;
/// `XAT0_PROJID`.
pub(crate) const XAT0_PROJID: u64 = 0x4_0000;
/// `XAT0_*` bits and the flags that they set.
pub(crate) const XAT0_FLAGS: [(u64, u64); 14] = [
    (0x2, pflags::ARCHIVE),
    (0x4, pflags::SYSTEM),
    (0x8, pflags::READONLY),
    (0x10, pflags::HIDDEN),
    (0x20, pflags::NOUNLINK),
    (0x40, pflags::IMMUTABLE),
    (0x80, pflags::APPENDONLY),
    (0x100, pflags::NODUMP),
    (0x200, pflags::OPAQUE),
    (0x400, pflags::AV_QUARANTINED),
    (0x800, pflags::AV_MODIFIED),
    (0x8000, pflags::OFFLINE),
    (0x1_0000, pflags::SPARSE),
    (0x2_0000, pflags::PROJINHERIT),
];
