//! What a file system answers: [`Vfs`], and the values it answers with.
//!
//! Idea: one async method an operation, named as the system call that causes it. A method that is left out
//! answers `ENOSYS`, after which the kernel does not ask again, or what POSIX has for an operation that is
//! not supported.
//!
//! Concurrency: calls come from many tasks at once. The kernel serialises changes to the names of one
//! directory and writes to one file, but not reads against writes, nor operations on different nodes. A
//! future is never dropped before its end while the session lives.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

pub use rustix::io::Errno;

/// Result of a file system's operation.
pub type Result<T, E = Errno> = std::result::Result<T, E>;

/// The number by which kernel and file system name a node. The root is [`Node::ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

impl Node {
    /// `FUSE_ROOT_ID`.
    pub const ROOT: Node = Node(1);
}

/// Who asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Process, 0 if it is in another PID namespace.
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

/// What kind of file a node is; the numbers are those of `d_type` and of the upper bits of `st_mode`.
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
    /// `st_ino`: what users see. Not necessarily the node's number.
    pub ino: u64,
    /// Bytes of content.
    pub size_bytes: u64,
    /// Sectors of 512 bytes that it takes.
    pub sectors: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Creation: `statx` shows it.
    pub btime: Time,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number: major and minor.
    pub device: (u32, u32),
    /// Preferred size of I/O.
    pub block_bytes: u32,
    /// `STATX_ATTR_*` bits, of those in [`Attr::STATX_BITS`].
    pub statx: u64,
    /// How long the kernel may keep them without asking again. Zero: it does not keep names of the node,
    /// either, and looks it up each time that it is opened.
    pub valid: Duration,
}

impl Attr {
    /// The bits of [`Attr::statx`] that a file system may set: compressed, immutable, append-only, nodump,
    /// encrypted.
    pub const STATX_BITS: u64 = 0x4 | 0x10 | 0x20 | 0x40 | 0x800;
}

/// A node, found under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The node. Each entry that the kernel is given counts as one reference: see [`Vfs::forget`].
    pub node: Node,
    /// Tells nodes apart that had the same number one after the other.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// Attributes to set; those left out stay.
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
    /// Last change of anything; only a kernel with write-back cache sets it.
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

/// What `statfs` tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Unit of the block counts, in bytes.
    pub block_bytes: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Free ones that unprivileged users may take.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free ones.
    pub free_files: u64,
    /// Longest name.
    pub name_bytes: u32,
}

/// What a new node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits, as `st_mode`; the umask has not been applied.
    pub mode: u32,
    /// The caller's.
    pub umask: u32,
    /// Of a device: major and minor number.
    pub device: (u32, u32),
}

/// Where `readdir` puts names: into the kernel's buffer, until that is full.
pub trait DirSink: Send {
    /// Adds a name. `cookie` is where the listing goes on *behind* it. Answers whether it still fitted; a
    /// name that did not fit is asked for again.
    fn add(&mut self, name: &[u8], ino: u64, kind: Option<FileType>, cookie: u64) -> bool;

    /// The same with attributes. An entry added counts as a reference, see [`Vfs::forget`], except `.` and
    /// `..`.
    fn add_entry(&mut self, name: &[u8], entry: &Entry, cookie: u64) -> bool;

    /// Whether the kernel wants attributes too.
    fn wants_entries(&self) -> bool;
}

/// How an extended attribute is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Whether it is there or not.
    Any,
    /// It must be new.
    Create,
    /// It must be there.
    Replace,
}

/// What `rename` does with the other name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameFlags {
    /// Takes its place.
    Replace,
    /// Refuses if it is there.
    NoReplace,
    /// Changes places with it.
    Exchange,
    /// Leaves a whiteout (a character device 0:0) under the old name.
    Whiteout {
        /// The new name must be free.
        no_replace: bool,
    },
}

/// How something is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadFlags {
    /// It was opened with `O_NOATIME`: the access time stays.
    pub keeps_atime: bool,
}

/// How a write comes about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Clear set-user-id, and set-group-id where the group may execute.
    pub kill_suid_sgid: bool,
    /// The kernel writes pages back that were changed through a mapping. If it is refused, the kernel keeps
    /// them all the same, until it is told that they are out of date.
    pub from_cache: bool,
}

/// A file system.
#[allow(unused_variables)]
pub trait Vfs: Send + Sync + 'static {
    /// How long the kernel may keep the names in a directory, and that there are none, without asking again.
    fn valid_for(&self, dir: Node) -> Duration {
        Duration::ZERO
    }

    /// Whether the kernel forgets content and listings at each open, so that [`Vfs::read`] and
    /// [`Vfs::readdir`] are told of every reader. It costs a round trip an open, and the kernel's cache.
    fn reads_anew(&self) -> bool {
        false
    }

    /// Returns when operations under way may take for ever: those whose processes were killed meanwhile are
    /// dropped then.
    fn stuck(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Finds a name. `Ok(None)`: there is none, and the kernel may remember that.
    fn lookup(
        &self,
        caller: Caller,
        dir: Node,
        name: &[u8],
    ) -> impl Future<Output = Result<Option<Entry>>> + Send;

    /// The kernel drops `references` of those that it was given in [`Entry`]s. With the last one, a node
    /// without names can be freed.
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

    /// Makes a file without a name (`O_TMPFILE`).
    fn tmpfile(&self, caller: Caller, dir: Node, new: NewNode) -> impl Future<Output = Result<Entry>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// Removes a name of anything but a directory.
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

    /// Reads up to `len_bytes`; fewer only at the end of the file. The parts are sent as they are, in order.
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

    /// Returns when everything that was done to the node before is on stable storage.
    fn fsync(&self, node: Node, data_only: bool) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Returns when everything that was done before is on stable storage.
    fn syncfs(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Lists a directory from behind `cookie` (0: from the start), `.` and `..` included.
    fn readdir(
        &self,
        dir: Node,
        cookie: u64,
        flags: ReadFlags,
        sink: &mut dyn DirSink,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Space and files, as somebody at `node` sees them.
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

    /// The names of extended attributes, each with a NUL behind it.
    fn listxattr(&self, caller: Caller, node: Node) -> impl Future<Output = Result<Bytes>> + Send {
        async { Err(Errno::OPNOTSUPP) }
    }

    /// Sets an extended attribute. `kill_sgid`: the new POSIX ACL was set by someone who may not keep
    /// set-group-id.
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

    /// `SEEK_DATA` (`hole` is false) or `SEEK_HOLE`: where the next one begins.
    fn seek(&self, node: Node, offset_bytes: u64, hole: bool) -> impl Future<Output = Result<u64>> + Send {
        async { Err(Errno::NOSYS) }
    }

    /// Copies within the file system; answers the bytes copied.
    fn copy_file_range(
        &self,
        caller: Caller,
        from: (Node, u64),
        to: (Node, u64),
        len_bytes: u64,
    ) -> impl Future<Output = Result<u64>> + Send {
        async { Err(Errno::NOSYS) }
    }

    /// An `ioctl` whose number says direction and size (`_IOR`, `_IOW`, `_IOWR`). Answers what is copied
    /// back.
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
