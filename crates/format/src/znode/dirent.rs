//! Directory entries and file kinds.
//!
//! A directory is a ZAP from names to words: object in bits 0..48, kind in bits 60..64. The kind is the upper
//! half of the mode's type; ZPL version 1 leaves it zero.
//!
//! Source: OpenZFS `zfs_znode.h` (`ZFS_DIRENT_OBJ`, `ZFS_DIRENT_TYPE`).

use crate::units::ObjectId;

/// File kind: bits 12..16 of a mode, also `DT_*` of a directory entry.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
pub enum FileKind {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// File.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
    /// Not in POSIX: 0 in a directory of ZPL version 1, which does not record kinds; 13 for a Solaris door,
    /// 14 for an event port.
    Other(u8),
}

impl FileKind {
    /// Kind of a 4-bit number.
    pub fn from_number(number: u8) -> FileKind {
        match number {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            other => FileKind::Other(other),
        }
    }

    /// Kind in a mode.
    pub fn from_mode(mode: u64) -> FileKind {
        Self::from_number((mode >> 12 & 0xf) as u8)
    }

    /// 4-bit number.
    pub fn number(self) -> u8 {
        match self {
            FileKind::Fifo => 1,
            FileKind::CharDevice => 2,
            FileKind::Directory => 4,
            FileKind::BlockDevice => 6,
            FileKind::Regular => 8,
            FileKind::Symlink => 10,
            FileKind::Socket => 12,
            FileKind::Other(number) => number,
        }
    }

    /// Letter of `find -type`. Kinds outside POSIX count as devices.
    pub fn letter(self) -> char {
        match self {
            FileKind::Fifo => 'p',
            FileKind::CharDevice | FileKind::Other(_) => 'c',
            FileKind::Directory => 'd',
            FileKind::BlockDevice => 'b',
            FileKind::Regular => 'f',
            FileKind::Symlink => 'l',
            FileKind::Socket => 's',
        }
    }
}

/// Decoded directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent {
    /// File.
    pub object: ObjectId,
    /// Kind; `None` if not recorded (ZPL version 1).
    pub kind: Option<FileKind>,
}

impl Dirent {
    /// Decodes a ZAP word.
    pub fn from_word(word: u64) -> Dirent {
        let kind = Some((word >> 60) as u8).filter(|&number| number != 0).map(FileKind::from_number);
        Dirent { object: ObjectId(word & ((1 << 48) - 1)), kind }
    }

    /// Encodes a ZAP word.
    pub fn to_word(self) -> u64 {
        u64::from(self.kind.map_or(0, FileKind::number)) << 60 | self.object.0
    }
}
