//! The interface of a file system, [`Vfs`], and its values.
//!
//! Idea: one async method for each operation, named after its system call. An unimplemented one answers
//! `ENOSYS`, and the kernel does not ask again, or the POSIX error for an unsupported operation.
//!
//! Concurrency: many tasks call at once. The kernel serialises changes to the names of one directory and
//! writes to one file, but not reads against writes, nor operations on different nodes. While the session
//! lives, a future is never dropped before its end.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

pub use rustix::io::Errno;

/// Result of a file system's operation.
pub type Result<T, E = Errno> = std::result::Result<T, E>;

/// A node's number. The root is [`Node::ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

impl Node {
    /// `FUSE_ROOT_ID`.
    pub const ROOT: Node = Node(1);
}

/// The calling process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// 0 in another PID namespace.
    pub pid: u32,
}

/// A point in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Numbered as in `d_type` and the upper bits of `st_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // as POSIX names them
pub enum FileType {
    Fifo = 1,
    CharDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    Regular = 8,
    Symlink = 10,
    Socket = 12,
}

/// The attributes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// `st_ino`; may differ from the node's number.
    pub ino: u64,
    /// Bytes of content.
    pub size_bytes: u64,
    /// Sectors of 512 bytes in use.
    pub sectors: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Creation, shown by `statx`.
    pub btime: Time,
    /// As `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number.
    pub device: (u32, u32),
    /// Preferred size of I/O.
    pub block_bytes: u32,
    /// Out of [`Attr::STATX_BITS`].
    pub statx: u64,
    /// How long the kernel may cache them. Zero: nor does it cache the node's names.
    pub valid: Duration,
}

impl Attr {
    /// Compressed, immutable, append-only, nodump, encrypted.
    pub const STATX_BITS: u64 = 0x4 | 0x10 | 0x20 | 0x40 | 0x800;
}

/// A node, found under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Each entry passed to the kernel is one reference: see [`Vfs::forget`].
    pub node: Node,
    /// Differs for successive nodes with the same number.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// Attributes to set; `None`: unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of content.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub atime: Option<TimeOrNow>,
    /// Last change of content.
    pub mtime: Option<TimeOrNow>,
    /// Last change of anything, from a kernel with write-back cache.
    pub ctime: Option<Time>,
    /// Clear set-user-id, and set-group-id where the group may execute.
    pub kill_suid_sgid: bool,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOrNow {
    /// This one.
    Time(Time),
    /// The file system's clock.
    Now,
}

/// The result of `statfs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes per block in these counts.
    pub block_bytes: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free for unprivileged users.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Longest name.
    pub name_bytes: u32,
}

/// The type and mode of a new node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// As `st_mode`, before the umask.
    pub mode: u32,
    /// The caller's.
    pub umask: u32,
    /// A device's major and minor number.
    pub device: (u32, u32),
}

/// The kernel's buffer for a listing.
pub trait DirSink: Send {
    /// Adds a name; `cookie` continues *behind* it. If it does not fit, returns false: the kernel asks again.
    fn add(&mut self, name: &[u8], ino: u64, kind: Option<FileType>, cookie: u64) -> bool;

    /// The same with attributes: one reference ([`Vfs::forget`]), except for `.` and `..`.
    fn add_entry(&mut self, name: &[u8], entry: &Entry, cookie: u64) -> bool;

    /// Whether the kernel wants attributes.
    fn wants_entries(&self) -> bool;

    /// The number of the next names that fit, by their lengths.
    fn room_for(&self, names_bytes: &mut dyn Iterator<Item = usize>) -> usize;
}

/// Condition for setting an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// None.
    Any,
    /// It must be new.
    Create,
    /// It must exist.
    Replace,
}

/// If the new name of a `rename` exists:
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameFlags {
    /// Replaces it.
    Replace,
    /// Refuses.
    NoReplace,
    /// Exchanges both.
    Exchange,
    /// Leaves a whiteout (device 0:0) under the old name.
    Whiteout {
        /// The new name must be free.
        no_replace: bool,
    },
}

/// Options of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadFlags {
    /// `O_NOATIME`: the access time stays.
    pub keeps_atime: bool,
}

/// Options of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// See [`SetAttr::kill_suid_sgid`].
    pub kill_suid_sgid: bool,
    /// Write-back of mapped pages, which the kernel keeps even if refused, until notified.
    pub from_cache: bool,
}

/// A file system.
#[allow(unused_variables)]
pub trait Vfs: Send + Sync + 'static {
    /// How long the kernel may cache a directory's names and their absence.
    fn valid_for(&self, dir: Node) -> Duration {
        Duration::ZERO
    }

    /// The kernel drops its cache at each open, so every reader reaches [`Vfs::read`] and [`Vfs::readdir`].
    /// Costs a round trip per open.
    fn reads_anew(&self) -> bool {
        false
    }

    /// Returns when operations may never end; those of killed processes are then dropped.
    fn stuck(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// `Ok(None)`: absent, which the kernel may cache.
    fn lookup(
        &self,
        caller: Caller,
        dir: Node,
        name: &[u8],
    ) -> impl Future<Output = Result<Option<Entry>>> + Send;

    /// The kernel drops `references`. After the last one, a node without names can be freed.
    fn forget(&self, node: Node, references: u64) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// `stat`.
    fn getattr(&self, node: Node) -> impl Future<Output = Result<Attr>> + Send;

    /// `chmod`, `chown`, `truncate`, `utimensat`.
    fn setattr(&self, caller: Caller, node: Node, set: SetAttr) -> impl Future<Output = Result<Attr>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// The target of a symbolic link.
    fn readlink(&self, node: Node) -> impl Future<Output = Result<Bytes>> + Send {
        async { Err(Errno::INVAL) }
    }

    /// Makes a file, directory, pipe, socket or device.
    fn mknod(
        &self,
        caller: Caller,
        dir: Node,
        name: &[u8],
        new: NewNode,
    ) -> impl Future<Output = Result<Entry>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// Makes a symbolic link.
    fn symlink(
        &self,
        caller: Caller,
        dir: Node,
        name: &[u8],
        target: &[u8],
    ) -> impl Future<Output = Result<Entry>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// `O_TMPFILE`.
    fn tmpfile(&self, caller: Caller, dir: Node, new: NewNode) -> impl Future<Output = Result<Entry>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// Removes a name, except a directory's.
    fn unlink(&self, caller: Caller, dir: Node, name: &[u8]) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// Removes an empty directory.
    fn rmdir(&self, caller: Caller, dir: Node, name: &[u8]) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// Renames.
    fn rename(
        &self,
        caller: Caller,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        flags: RenameFlags,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// Makes another name.
    fn link(
        &self,
        caller: Caller,
        node: Node,
        dir: Node,
        name: &[u8],
    ) -> impl Future<Output = Result<Entry>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// Reads up to `len_bytes`; fewer only at the end of the file. The parts are sent in order.
    fn read(
        &self,
        node: Node,
        offset_bytes: u64,
        len_bytes: u32,
        flags: ReadFlags,
    ) -> impl Future<Output = Result<Vec<Bytes>>> + Send;

    /// Writes all of `data`.
    fn write(
        &self,
        caller: Caller,
        node: Node,
        offset_bytes: u64,
        data: Bytes,
        flags: WriteFlags,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::ROFS) }
    }

    /// Makes earlier changes of the node durable.
    fn fsync(&self, node: Node, data_only: bool) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Makes all earlier changes durable.
    fn syncfs(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Continues a listing behind `cookie` (0: the start), with `.` and `..`.
    fn readdir(
        &self,
        dir: Node,
        cookie: u64,
        flags: ReadFlags,
        sink: &mut dyn DirSink,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Space and files, as seen at `node`.
    fn statfs(&self, node: Node) -> impl Future<Output = Result<Statfs>> + Send;

    /// The value of an extended attribute.
    fn getxattr(
        &self,
        caller: Caller,
        node: Node,
        name: &[u8],
    ) -> impl Future<Output = Result<Bytes>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// The names of extended attributes, each followed by a NUL.
    fn listxattr(&self, caller: Caller, node: Node) -> impl Future<Output = Result<Bytes>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// `kill_sgid`: the caller set a POSIX ACL and may not keep set-group-id.
    fn setxattr(
        &self,
        caller: Caller,
        node: Node,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
        kill_sgid: bool,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// Removes an extended attribute.
    fn removexattr(
        &self,
        caller: Caller,
        node: Node,
        name: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// `fallocate`, with the `FALLOC_FL_*` bits of `mode`.
    fn fallocate(
        &self,
        caller: Caller,
        node: Node,
        offset_bytes: u64,
        len_bytes: u64,
        mode: u32,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// The start of the next data (`SEEK_DATA`, `hole` is false) or hole (`SEEK_HOLE`).
    fn seek(&self, node: Node, offset_bytes: u64, hole: bool) -> impl Future<Output = Result<u64>> + Send {
        async { Err(Errno::NOSYS) }
    }

    /// Copies within the file system; returns the bytes copied.
    fn copy_file_range(
        &self,
        caller: Caller,
        from: (Node, u64),
        to: (Node, u64),
        len_bytes: u64,
    ) -> impl Future<Output = Result<u64>> + Send {
        async { Err(Errno::NOSYS) }
    }

    /// For numbers that encode direction and size (`_IOR`, `_IOW`, `_IOWR`). Returns the bytes to copy back.
    fn ioctl(
        &self,
        caller: Caller,
        node: Node,
        command: u32,
        input: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>>> + Send {
        async { Err(Errno::NOTTY) }
    }
}
