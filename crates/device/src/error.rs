//! Errors of a device: one flat enum. Each message says where the error happened and how to go on.

use std::io;
use std::sync::Arc;

/// The result of an operation on a device.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// An operation, as named by errors and traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the operations of `Device`
pub enum Op {
    Read,
    Write,
    Flush,
    Discard,
}

impl Op {
    /// Every operation, in the order of the discriminants.
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Flush, Op::Discard];
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
        })
    }
}

/// An error of a device. Cheap to clone: several readers may wait for one transfer.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs)] // path: the device as the user named it; offset, len, size in bytes
pub enum DeviceError {
    #[error(
        "{path}: no such file or device; check the path, or name the folder that holds the disks with -d"
    )]
    NotFound { path: Arc<str> },
    #[error("{path}: permission denied; run as a user who may {access} it")]
    PermissionDenied { path: Arc<str>, access: &'static str },
    #[error("{path}: is a folder, not a disk or an image; to search it for disks use -d")]
    IsDirectory { path: Arc<str> },
    #[error("{path}: is a {kind}, not a block device or a regular file")]
    NotADevice { path: Arc<str>, kind: &'static str },
    #[error(
        "{path}: is in use by {}; export its pool there, unmount it, or stop that program",
        holder.as_deref().unwrap_or("another program, or by the system")
    )]
    InUse { path: Arc<str>, holder: Option<Arc<str>> },
    #[error("{path}: cannot open: {source}")]
    Open { path: Arc<str>, source: Arc<io::Error> },
    #[error(
        "{path}: {op} of {len} bytes at offset {offset} goes beyond its end at {size_bytes}; is it truncated?"
    )]
    OutOfRange { path: Arc<str>, op: Op, offset: u64, len: u64, size_bytes: u64 },
    #[error(
        "{path}: {op} of {len} bytes at offset {offset} stopped after {done}; has it shrunk since it was \
         opened?"
    )]
    Short { path: Arc<str>, op: Op, offset: u64, len: u64, done: u64 },
    #[error("{path}: direct {op} of {len} bytes at offset {offset} is not a multiple of {align} bytes")]
    Misaligned { path: Arc<str>, op: Op, offset: u64, len: u64, align: u64 },
    #[error("{path}: {op} refused: opened read-only")]
    ReadOnly { path: Arc<str>, op: Op },
    #[error(
        "{path}: {op} refused: no multihost heartbeat of this machine has landed in time, so another machine \
         may have the pool; export it with -f and import it again"
    )]
    Fenced { path: Arc<str>, op: Op },
    #[error("{path}: {op} refused: another machine has taken over this disk")]
    Taken { path: Arc<str>, op: Op },
    #[error("{path}: {op} is not supported by this device")]
    Unsupported { path: Arc<str>, op: Op },
    #[error("{path}: {op} of {len} bytes at offset {offset} failed: {source}")]
    Io { path: Arc<str>, op: Op, offset: u64, len: u64, source: Arc<io::Error> },
}

impl DeviceError {
    /// Whether another machine may have the disk. It says nothing about the disk's health.
    pub fn is_fence(&self) -> bool {
        matches!(self, DeviceError::Fenced { .. } | DeviceError::Taken { .. })
    }
}
