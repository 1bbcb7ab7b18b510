//! The common part of network disk protocols (NBD, iSCSI): disks, connections, limits.
//!
//! Read in this order: [`Disk`], [`stream`], [`Limits`].
#![forbid(unsafe_code)]

mod limits;
mod origin;
pub mod stream;

pub use limits::{Limits, Permits, Share};
pub use origin::Origin;
pub use stream::{Ended, Result, Stream};

use std::ops::Range;

use bytes::Bytes;
use futures::future::BoxFuture;

/// An error for a client and the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Kind of error.
    pub errno: Errno,
    /// Human-readable message.
    pub message: String,
}

impl Failure {
    /// Creates a failure.
    pub fn new(errno: Errno, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into() }
    }
}

/// Error kinds, with NBD's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // names of errno(3)
pub enum Errno {
    Perm = 1,
    Io = 5,
    NoMemory = 12,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
    Shutdown = 108,
}

/// A served disk. Ranges are checked: not empty, and within the disk.
///
/// A [`Disk::flush`] makes durable all [`Disk::write`], [`Disk::zero`] and [`Disk::trim`] calls answered
/// before it, on any connection.
pub trait Disk: Send + Sync {
    /// Current size.
    fn size_bytes(&self) -> u64;
    /// Preferred request size.
    fn block_bytes(&self) -> u32;
    /// Whether it refuses changes.
    fn is_read_only(&self) -> bool;

    /// Reads a range.
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<Bytes, Failure>>;
    /// Writes at an offset.
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Zeroes a range.
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Frees a range.
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Makes changes durable.
    fn flush(&self) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Reads ahead.
    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Whether data begins the range, and where that extent ends within it.
    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(bool, u64), Failure>>;
}
