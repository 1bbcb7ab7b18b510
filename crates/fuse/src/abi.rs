//! The numbers of the protocol. Integers are in host order. `request` and `reply` list each structure's
//! fields where they read or write it.
//!
//! Source: Linux `include/uapi/linux/fuse.h`.

/// The newest supported version; the older of both sides' is used.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 41;
/// The oldest: Linux 4.20, with `max_pages`.
pub const LEAST_MINOR: u32 = 28;

/// `fuse_in_header`, `fuse_out_header`, `fuse_write_in`.
pub const IN_HEADER_BYTES: usize = 40;
pub const OUT_HEADER_BYTES: usize = 16;
pub const WRITE_IN_BYTES: usize = 40;

/// Most pages of a read or write: the default of the kernel's own limit, `fs.fuse.max_pages_limit`.
pub const MAX_PAGES: u16 = 256;
pub const MAX_WRITE_BYTES: usize = MAX_PAGES as usize * 4096;

pub mod opened {
    /// The access mode; 0: read-only.
    pub const ACCMODE: u32 = 3;
    pub const NOATIME: u32 = 0o1_000_000;
}

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// `enum fuse_opcode`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Opcode { $($name = $number),* }

        impl Opcode {
            pub fn from_number(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, Getattr = 3, Setattr = 4, Readlink = 5, Symlink = 6, Mknod = 8, Mkdir = 9,
    Unlink = 10, Rmdir = 11, Rename = 12, Link = 13, Open = 14, Read = 15, Write = 16, Statfs = 17,
    Release = 18, Fsync = 20,
    Setxattr = 21, Getxattr = 22, Listxattr = 23, Removexattr = 24, Flush = 25, Init = 26, Opendir = 27,
    Readdir = 28, Releasedir = 29, Fsyncdir = 30, Access = 34, Create = 35, Interrupt = 36, Destroy = 38,
    Ioctl = 39, BatchForget = 42, Fallocate = 43, Readdirplus = 44, Rename2 = 45, Lseek = 46,
    CopyFileRange = 47, Syncfs = 50, Tmpfile = 51, Statx = 52,
}

/// `FUSE_*` flags of `INIT`; `flags2` from bit 32 on.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const IOCTL_DIR: u64 = 1 << 11;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// `FATTR_*`: the valid fields of `fuse_setattr_in`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FUSE_WRITE_CACHE`.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `FOPEN_DIRECT_IO`.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;

/// `FUSE_WRITE_KILL_SUIDGID`.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `FUSE_FSYNC_FDATASYNC`.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `FUSE_IOCTL_UNRESTRICTED`: the number does not tell which memory is copied.
pub const IOCTL_UNRESTRICTED: u32 = 1 << 1;

/// `enum fuse_notify_code`.
pub mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    /// `FUSE_EXPIRE_ONLY`, of an entry. Kernels before 6.2 drop the entry.
    pub const EXPIRE_ONLY: u32 = 1 << 0;
}

/// `enum fuse_uring_cmd`.
pub mod uring {
    pub const REGISTER: u32 = 1;
    pub const COMMIT_AND_FETCH: u32 = 2;
}
