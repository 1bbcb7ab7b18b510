//! Requests and replies of FUSE, from the kernel's side.
//!
//! Source: Linux `include/uapi/linux/fuse.h`; the daemon's side is `cenote-fuse`'s `request` and `reply`.

use std::time::Duration;

use bytes::Bytes;
use cenote_fuse::{Errno, Result};

/// `enum fuse_opcode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Link = 13,
    Read = 15,
    Write = 16,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Readdirplus = 44,
    Rename2 = 45,
    CopyFileRange = 47,
}

/// `enum fuse_notify_code`.
pub const INVAL_INODE: i32 = 2;
pub const INVAL_ENTRY: i32 = 3;

/// `FATTR_*`.
pub const FATTR_MODE: u32 = 1 << 0;
pub const FATTR_SIZE: u32 = 1 << 3;

/// Length of `fuse_in_header`.
const HEADER_BYTES: usize = 40;

/// A request under construction.
pub struct Request(Vec<u8>);

impl Request {
    pub fn new(opcode: Opcode, unique: u64, node: u64) -> Request {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..8].copy_from_slice(&(opcode as u32).to_ne_bytes());
        bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        bytes[16..24].copy_from_slice(&node.to_ne_bytes());
        Request(bytes)
    }

    pub fn u32(mut self, value: u32) -> Request {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Request {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn name(mut self, name: &[u8]) -> Request {
        self.0.extend(name);
        self.0.push(0);
        self
    }

    pub fn data(mut self, data: &[u8]) -> Request {
        self.0.extend(data);
        self
    }

    /// `fuse_setattr_in`, with these fields valid.
    pub fn setattr(self, valid: u32, size_bytes: u64, mode: u32) -> Request {
        let head = self.u32(valid).u32(0).u64(0).u64(size_bytes).u64(0);
        let times = head.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        times.u32(mode).u32(0).u32(0).u32(0).u32(0)
    }

    pub fn finish(mut self) -> Bytes {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0.into()
    }
}

/// Reads a reply from front to back. A reply too short is `EIO`.
pub struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Errno::IO)?;
        self.0 = rest;
        Ok(*field)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub fn slice(&mut self, len: usize) -> Result<&'a [u8]> {
        let (slice, rest) = self.0.split_at_checked(len).ok_or(Errno::IO)?;
        self.0 = rest;
        Ok(slice)
    }
}

/// The attributes that the world looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Bytes of content.
    pub size_bytes: u64,
    /// As `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
}

const S_IFMT: u32 = 0o170000;
const S_IFDIR: u32 = 0o040000;
const S_IFLNK: u32 = 0o120000;

impl Attr {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }

    /// Permission, set-id and sticky bits.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether both are the same kind of file.
    pub fn is_kin(&self, other: &Attr) -> bool {
        (self.mode ^ other.mode) & S_IFMT == 0
    }

    /// `fuse_attr`.
    fn read(body: &mut Body<'_>) -> Result<Attr> {
        let (_ino, size_bytes, _blocks) = (body.u64()?, body.u64()?, body.u64()?);
        body.slice(3 * 8 + 3 * 4)?;
        let (mode, links) = (body.u32()?, body.u32()?);
        body.slice(5 * 4)?;
        Ok(Attr { size_bytes, mode, links })
    }
}

/// `fuse_attr_out`.
pub fn attr(reply: &[u8]) -> Result<(Attr, Duration)> {
    let mut body = Body(reply);
    let valid = Duration::new(body.u64()?, body.u32()?);
    body.u32()?;
    Ok((Attr::read(&mut body)?, valid))
}

/// A name's node, and how long name and attributes may be cached.
pub struct Entry {
    /// 0: the name is absent.
    pub node: u64,
    pub generation: u64,
    pub attr: Attr,
    pub entry_valid: Duration,
    pub attr_valid: Duration,
}

/// `fuse_entry_out`.
pub fn entry(body: &mut Body<'_>) -> Result<Entry> {
    let (node, generation) = (body.u64()?, body.u64()?);
    let (entry_seconds, attr_seconds) = (body.u64()?, body.u64()?);
    let (entry_nanoseconds, attr_nanoseconds) = (body.u32()?, body.u32()?);
    Ok(Entry {
        node,
        generation,
        attr: Attr::read(body)?,
        entry_valid: Duration::new(entry_seconds, entry_nanoseconds),
        attr_valid: Duration::new(attr_seconds, attr_nanoseconds),
    })
}

/// A name in a listing. Node 0: it comes without attributes.
pub struct Listed {
    pub name: Vec<u8>,
    pub entry: Entry,
}

/// Names of a `fuse_direntplus` list, without `.` and `..`; and the cookie behind the last.
pub fn listing(reply: &[u8]) -> Result<(Vec<Listed>, Option<u64>)> {
    let (mut body, mut names, mut last) = (Body(reply), Vec::new(), None);
    while !body.0.is_empty() {
        let entry = entry(&mut body)?;
        let (_ino, cookie, len, _kind) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
        let name = body.slice(len as usize)?;
        body.slice(len.next_multiple_of(8) as usize - len as usize).ok();
        last = Some(cookie);
        if name != b"." && name != b".." {
            names.push(Listed { name: name.to_vec(), entry });
        }
    }
    Ok((names, last))
}
