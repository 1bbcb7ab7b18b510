//! Directory entries and kinds of files.
//!
//! A directory is a ZAP from names to words: the object in bits 0..48, its kind in bits 60..64. The kind is the
//! upper half of the mode's type; ZPL version 1 left it zero.
//!
//! Source: OpenZFS `zfs_znode.h` (`ZFS_DIRENT_OBJ`, `ZFS_DIRENT_TYPE`).

use crate::units::ObjectId;

/// What a file is: bits 12..16 of a mode, also `DT_*` of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// Not said: look at the file's mode.
    Unknown,
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// Solaris: a door.
    Door,
    /// Solaris: an event port; BSD: a whiteout.
    Port,
    /// Any other number.
    Other(u8),
}

impl FileKind {
    /// The kind of a number of 4 bits.
    pub fn from_number(number: u8) -> FileKind {
        match number {
            0 => FileKind::Unknown,
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            13 => FileKind::Door,
            14 => FileKind::Port,
            other => FileKind::Other(other),
        }
    }

    /// The kind in a mode.
    pub fn from_mode(mode: u64) -> FileKind {
        Self::from_number((mode >> 12 & 0xf) as u8)
    }

    /// The number of 4 bits.
    pub fn number(self) -> u8 {
        match self {
            FileKind::Unknown => 0,
            FileKind::Fifo => 1,
            FileKind::CharDevice => 2,
            FileKind::Directory => 4,
            FileKind::BlockDevice => 6,
            FileKind::Regular => 8,
            FileKind::Symlink => 10,
            FileKind::Socket => 12,
            FileKind::Door => 13,
            FileKind::Port => 14,
            FileKind::Other(number) => number,
        }
    }
}

/// The value of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry {
    /// The file.
    pub object: ObjectId,
    /// What it is, if the entry says.
    pub kind: FileKind,
}

impl DirEntry {
    /// From the word in the ZAP.
    pub fn from_word(word: u64) -> DirEntry {
        DirEntry { object: ObjectId(word & ((1 << 48) - 1)), kind: FileKind::from_number((word >> 60) as u8) }
    }

    /// The word in the ZAP.
    pub fn to_word(self) -> u64 {
        u64::from(self.kind.number()) << 60 | self.object.0
    }
}
