//! What the protocols of network disks (NBD, iSCSI) share: the disk, connections, and limits on clients.
//!
//! Read in this order: [`Disk`] (what is served), [`stream`] (what clients talk through), [`Limits`] (what
//! they may take).
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

/// An error that a client is told: its kind, and words for a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of error.
    pub errno: Errno,
    /// What happened, in words.
    pub message: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(errno: Errno, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into() }
    }
}

/// Kinds of errors, with NBD's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // they are those of errno(3)
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

/// A disk that is served. Ranges were checked: they are not empty and lie within it.
///
/// What [`Disk::write`], [`Disk::zero`] and [`Disk::trim`] have answered is durable after a later
/// [`Disk::flush`], whichever connection asked for either.
pub trait Disk: Send + Sync {
    /// Its size now.
    fn size_bytes(&self) -> u64;
    /// The size of requests that it prefers: that of its blocks.
    fn block_bytes(&self) -> u32;
    /// Whether it can't be changed.
    fn is_read_only(&self) -> bool;

    /// Reads a range.
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<Bytes, Failure>>;
    /// Writes at an offset.
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Makes a range read as zeros.
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// What a range holds is not needed any more.
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Makes durable what was written.
    fn flush(&self) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// A range will be read soon.
    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(), Failure>>;
    /// Whether there is data at the start of a range, and where that ends: at the latest with the range.
    fn extent(&self, range: Range<u64>) -> BoxFuture<'_, std::result::Result<(bool, u64), Failure>>;
}
