//! File attributes in the form of `stat`.

use std::time::Duration;

use cenote_format::units::ObjectId;
use cenote_fs::attr::pflags;
use cenote_fs::{FileKind, Timestamp};
use cenote_fuse::{Attr, FileType, Time};

use super::node::{TreeId, number};

/// How long the kernel may cache attributes: it makes all changes itself, or is notified.
const LONG: Duration = Duration::from_secs(3600);
/// Block counts are only known once the txg is on disk: attributes of written files are cached briefly.
const SHORT: Duration = Duration::from_secs(1);

const STATX_ATTR_IMMUTABLE: u64 = 0x10;
const STATX_ATTR_APPEND: u64 = 0x20;
const STATX_ATTR_NODUMP: u64 = 0x40;

/// Flags of immutable and append-only files. The kernel does not know them on FUSE, so it lets such files be
/// opened and mapped for writing, and caches mapped writes finally refused. Nothing else may be cached: each
/// lookup comes here, and drops content that the kernel may have changed.
pub const FIXED: u64 = pflags::IMMUTABLE | pflags::APPENDONLY;

/// An object's attributes under inode number `ino`. `is_settled`: the last txg on disk has its blocks.
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
        valid: match is_settled {
            _ if attr.flags & FIXED != 0 && attr.kind() == FileKind::Regular => Duration::ZERO,
            true => LONG,
            false => SHORT,
        },
    }
}

/// A directory of `.zfs`. The kernel checks its `permissions`.
pub fn control(ino: u64, entries: u64, made: Timestamp, permissions: u32) -> Attr {
    let made = time(made);
    Attr {
        ino,
        size_bytes: entries + 2,
        sectors: 1,
        atime: made,
        mtime: made,
        ctime: made,
        btime: made,
        mode: u32::from(FileKind::Directory.number()) << 12 | permissions,
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

/// The type in directory listings.
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

/// An object's inode number: its own in the mounted dataset, its usual node number in snapshots, so that
/// inode numbers are unique in a mount.
pub fn ino(tree: TreeId, object: ObjectId) -> u64 {
    match tree {
        TreeId::Head => object.0,
        tree => number(tree, object, ObjectId(0)).map_or(object.0, |node| node.0),
    }
}
