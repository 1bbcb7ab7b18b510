//! Replies: the results of operations, in the kernel's byte layout.
//!
//! Layout: `fuse_out_header` (16 bytes): len (4), error (4, negative or 0), unique (8); then the operation's
//! structure. `channel` adds the header.

use std::time::Duration;

use bytes::Bytes;

use crate::vfs::{Attr, DirSink, Entry, FileType, Statfs};

/// `fuse_entry_out`.
const ENTRY_BYTES: usize = 128;
/// `fuse_attr`.
const ATTR_BYTES: usize = 88;

/// The bytes after the header: fields built here, then data unchanged.
#[derive(Debug, Default)]
pub struct Reply {
    pub fields: Vec<u8>,
    pub data: Vec<Bytes>,
}

impl Reply {
    pub fn empty() -> Reply {
        Reply::default()
    }

    pub fn data(data: Vec<Bytes>) -> Reply {
        Reply { fields: Vec::new(), data }
    }

    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.fields[..]).chain(self.data.iter().map(|part| &part[..]))
    }

    pub fn len_bytes(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    pub fn u32(mut self, value: u32) -> Reply {
        self.fields.extend(value.to_ne_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Reply {
        self.fields.extend(value.to_ne_bytes());
        self
    }

    pub fn zeros(mut self, count: usize) -> Reply {
        self.fields.resize(self.fields.len() + count, 0);
        self
    }

    /// `fuse_attr_out`: attr_valid (8), attr_valid_nsec (4), padding (4), `fuse_attr` (88).
    pub fn attr(attr: &Attr) -> Reply {
        let reply = Reply::empty().u64(attr.valid.as_secs()).u32(attr.valid.subsec_nanos()).u32(0);
        reply.raw_attr(attr)
    }

    /// `fuse_entry_out` (128 bytes): nodeid (8), generation (8), entry_valid (8), attr_valid (8),
    /// entry_valid_nsec (4), attr_valid_nsec (4), `fuse_attr` (88).
    pub fn entry(mut self, entry: &Entry, valid: Duration) -> Reply {
        self.fields.reserve(ENTRY_BYTES);
        let of_attr = entry.attr.valid;
        let valid = if of_attr.is_zero() { Duration::ZERO } else { valid };
        let reply = self.u64(entry.node.0).u64(entry.generation).u64(valid.as_secs()).u64(of_attr.as_secs());
        reply.u32(valid.subsec_nanos()).u32(of_attr.subsec_nanos()).raw_attr(&entry.attr)
    }

    /// An absent name (node 0), and how long the kernel may cache that.
    pub fn no_entry(valid: Duration) -> Reply {
        let (seconds, nanoseconds) = (valid.as_secs(), valid.subsec_nanos());
        Reply::empty().u64(0).u64(0).u64(seconds).u64(0).u32(nanoseconds).u32(0).zeros(ATTR_BYTES)
    }

    /// `fuse_attr` (88 bytes): ino, size, blocks (8 each), atime, mtime, ctime (8 each), their nanoseconds (4
    /// each), mode, nlink, uid, gid, rdev, blksize, flags (4 each).
    fn raw_attr(mut self, attr: &Attr) -> Reply {
        self.fields.reserve(ATTR_BYTES);
        let times = [attr.atime, attr.mtime, attr.ctime];
        let mut reply = self.u64(attr.ino).u64(attr.size_bytes).u64(attr.sectors);
        for time in times {
            reply = reply.u64(time.seconds as u64);
        }
        for time in times {
            reply = reply.u32(time.nanoseconds);
        }
        let rdev = encode_device(attr.device);
        reply
            .u32(attr.mode)
            .u32(attr.links)
            .u32(attr.uid)
            .u32(attr.gid)
            .u32(rdev)
            .u32(attr.block_bytes)
            .u32(0)
    }

    /// `fuse_statx_out`: attr_valid (8), attr_valid_nsec (4), flags (4), spare (16); then `fuse_statx` (256),
    /// laid out as `struct statx`.
    pub fn statx(attr: &Attr) -> Reply {
        /// `STATX_BASIC_STATS | STATX_BTIME`.
        const MASK: u32 = 0xfff;
        let valid = attr.valid;
        let mut reply = Reply::empty().u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0).zeros(16);
        reply = reply.u32(MASK).u32(attr.block_bytes).u64(attr.statx & Attr::STATX_BITS);
        reply = reply.u32(attr.links).u32(attr.uid).u32(attr.gid).u32(attr.mode & 0xffff);
        reply = reply.u64(attr.ino).u64(attr.size_bytes).u64(attr.sectors).u64(Attr::STATX_BITS);
        for time in [attr.atime, attr.btime, attr.ctime, attr.mtime] {
            reply = reply.u64(time.seconds as u64).u32(time.nanoseconds).u32(0);
        }
        reply.u32(attr.device.0).u32(attr.device.1).u32(0).u32(0).zeros(14 * 8)
    }

    /// `fuse_kstatfs` (80 bytes): blocks, bfree, bavail, files, ffree (8 each), bsize, namelen, frsize (4
    /// each), padding and spare (28).
    pub fn statfs(stat: &Statfs) -> Reply {
        let reply = Reply::empty().u64(stat.blocks).u64(stat.free).u64(stat.available);
        let reply = reply.u64(stat.files).u64(stat.free_files).u32(stat.block_bytes);
        reply.u32(stat.name_bytes).u32(stat.block_bytes).zeros(28)
    }
}

/// `new_encode_dev`.
fn encode_device((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// `new_decode_dev`: major and minor.
pub fn decode_device(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00)
}

/// The kernel's buffer for names. `fuse_dirent`: ino (8), off (8), namelen (4), type (4), the name, padding
/// to 8; with attributes, a `fuse_entry_out` precedes it.
pub struct DirBuffer {
    filled: Vec<u8>,
    room_bytes: usize,
    plus: bool,
    valid: Duration,
}

impl DirBuffer {
    pub fn new(room_bytes: usize, plus: bool, valid: Duration) -> DirBuffer {
        DirBuffer { filled: Vec::new(), room_bytes, plus, valid }
    }

    pub fn into_reply(self) -> Reply {
        Reply { fields: self.filled, data: Vec::new() }
    }

    fn whole_bytes(&self, name_bytes: usize) -> usize {
        let head_bytes = if self.plus { ENTRY_BYTES } else { 0 };
        (head_bytes + 24 + name_bytes).next_multiple_of(8)
    }

    fn push(&mut self, entry: Option<&Entry>, name: &[u8], ino: u64, kind: u32, cookie: u64) -> bool {
        let end = self.filled.len() + self.whole_bytes(name.len());
        if end > self.room_bytes {
            return false;
        }
        let reply = Reply { fields: std::mem::take(&mut self.filled), data: Vec::new() };
        let reply = match entry {
            _ if !self.plus => reply,
            Some(entry) => reply.entry(entry, self.valid),
            // With node 0, the kernel takes the name and looks up its attributes later.
            None => reply.zeros(ENTRY_BYTES),
        };
        let reply = reply.u64(ino).u64(cookie).u32(name.len() as u32).u32(kind);
        self.filled = reply.fields;
        self.filled.extend(name);
        self.filled.resize(end, 0);
        true
    }
}

impl DirSink for DirBuffer {
    fn add(&mut self, name: &[u8], ino: u64, kind: Option<FileType>, cookie: u64) -> bool {
        self.push(None, name, ino, kind.map_or(0, |kind| kind as u32), cookie)
    }

    fn add_entry(&mut self, name: &[u8], entry: &Entry, cookie: u64) -> bool {
        self.push(Some(entry), name, entry.attr.ino, entry.attr.mode >> 12 & 0xf, cookie)
    }

    fn wants_entries(&self) -> bool {
        self.plus
    }

    fn room_for(&self, names_bytes: &mut dyn Iterator<Item = usize>) -> usize {
        let mut left_bytes = Some(self.room_bytes.saturating_sub(self.filled.len()));
        let mut fits = |name_bytes| {
            left_bytes = left_bytes.and_then(|left| left.checked_sub(self.whole_bytes(name_bytes)));
            left_bytes.is_some()
        };
        names_bytes.take_while(|name_bytes| fits(*name_bytes)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Node, Time};

    fn attr() -> Attr {
        Attr {
            ino: 7,
            size_bytes: 10,
            sectors: 1,
            atime: Time { seconds: -1, nanoseconds: 5 },
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
            mode: 0o100644,
            links: 1,
            uid: 2,
            gid: 3,
            device: (0, 0),
            block_bytes: 4096,
            statx: 0,
            valid: Duration::from_secs(1),
        }
    }

    #[test]
    fn structures_have_the_sizes_of_the_protocol() {
        let valid = Duration::from_millis(1500);
        assert_eq!(Reply::attr(&attr()).fields.len(), 16 + 88);
        let entry = Entry { node: Node(9), generation: 1, attr: attr() };
        assert_eq!(Reply::empty().entry(&entry, valid).fields.len(), 128);
        assert_eq!(Reply::no_entry(valid).fields.len(), 128);
        assert_eq!(Reply::statx(&attr()).fields.len(), 32 + 256);
        assert_eq!(Reply::statfs(&Statfs::default()).fields.len(), 80);
    }

    #[test]
    fn device_numbers_go_both_ways() {
        for device in [(0, 0), (8, 1), (259, 70_000), (4095, 0xfffff)] {
            assert_eq!(decode_device(encode_device(device)), device);
        }
    }

    #[test]
    fn a_full_buffer_takes_no_more() {
        let mut buffer = DirBuffer::new(64, false, Duration::ZERO);
        assert_eq!(buffer.room_for(&mut [1, 8, 1].into_iter()), 2);
        assert!(buffer.add(b"a", 1, None, 1));
        assert!(buffer.add(b"12345678", 2, Some(FileType::Regular), 2));
        assert!(!buffer.add(b"b", 3, None, 3));
        assert_eq!(buffer.room_for(&mut std::iter::once(1)), 0);
        assert_eq!(buffer.into_reply().fields.len(), 64);
    }
}
