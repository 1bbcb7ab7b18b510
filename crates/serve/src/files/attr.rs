//! Attributes as `stat` shows them.

use std::time::Duration;

use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::{FileKind, Timestamp};
use cenote_fuse::{Attr, FileType, Time};

/// How long the kernel keeps attributes: all changes come through it, or it is told.
const LONG: Duration = Duration::from_secs(3600);
/// But blocks are counted when a txg is on disk: those of what has changed it keeps only for a moment.
const SHORT: Duration = Duration::from_secs(1);

const STATX_ATTR_IMMUTABLE: u64 = 0x10;
const STATX_ATTR_APPEND: u64 = 0x20;
const STATX_ATTR_NODUMP: u64 = 0x40;

/// The attributes of an object under the inode number `ino`; whether the last txg on disk has them so.
pub fn attr(ino: u64, attr: &cenote_fs::Attr, is_settled: bool) -> Attr {
    let (uid, gid) = attr.owner();
    let statx = [
        (pflags::IMMUTABLE, STATX_ATTR_IMMUTABLE),
        (pflags::APPENDONLY, STATX_ATTR_APPEND),
        (pflags::NODUMP, STATX_ATTR_NODUMP),
    ];
    Attr {
        ino,
        size_bytes: attr.size,
        sectors: attr.sectors(),
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        btime: time(attr.crtime),
        mode: attr.mode,
        links: u32::try_from(attr.links).unwrap_or(u32::MAX),
        uid,
        gid,
        device: attr.device(),
        block_bytes: attr.block_bytes,
        statx: statx.iter().filter(|(flag, _)| attr.flags & flag != 0).map(|(_, bit)| bit).sum(),
        valid: if is_settled { LONG } else { SHORT },
    }
}

/// A directory that is not on disk.
pub fn control(ino: u64, entries: u64, made: Timestamp) -> Attr {
    let made = time(made);
    Attr {
        ino,
        size_bytes: entries + 2,
        sectors: 1,
        atime: made,
        mtime: made,
        ctime: made,
        btime: made,
        mode: u32::from(FileKind::Directory.number()) << 12 | 0o555,
        links: 2,
        uid: 0,
        gid: 0,
        device: (0, 0),
        block_bytes: 512,
        statx: 0,
        valid: SHORT,
    }
}

pub fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// As `readdir` tells it.
pub fn file_type(kind: FileKind) -> Option<FileType> {
    Some(match kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::Regular,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
        _ => return None,
    })
}

/// The inode number of an object: its own in the mounted dataset, the node's in snapshots, so that no two
/// files of a mount have the same.
pub fn ino(tree: super::node::TreeId, object: ObjectId, node: cenote_fuse::Node) -> u64 {
    if tree == super::node::TreeId::HEAD { object.0 } else { node.0 }
}
