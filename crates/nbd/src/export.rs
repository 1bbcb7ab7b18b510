//! What is served: exports, found by name.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

/// An error that a client is told: its number, and words for a log.
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

/// The errors that the protocol knows.
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

/// A run of bytes that share a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its length.
    pub len_bytes: u64,
    /// What holds for it; each context has its own bits.
    pub flags: u32,
}

impl Extent {
    /// `NBD_STATE_HOLE` of `base:allocation`: takes no space.
    pub const HOLE: u32 = 1;
    /// `NBD_STATE_ZERO` of `base:allocation`: reads as zeros.
    pub const ZERO: u32 = 2;
}

/// `base:allocation`, which every export has.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// An export, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub description: String,
}

/// All that is served.
pub trait Exports: Send + Sync {
    /// What a client may see.
    fn list(&self) -> BoxFuture<'_, Vec<Listed>>;

    /// The export of a name; the empty name is the default export.
    ///
    /// # Errors
    /// There is none, or this client may not have it.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Export>, Failure>>;
}

/// A device that is served. Ranges were checked: they are not empty and lie within it.
///
/// What [`Export::write`], [`Export::zero`] and [`Export::trim`] have answered is durable after a later
/// [`Export::flush`], whichever connection asked for either.
pub trait Export: Send + Sync {
    /// Its size now.
    fn size_bytes(&self) -> u64;
    /// The size of requests that it prefers: that of its blocks.
    fn block_bytes(&self) -> u32;
    /// Whether it can't be changed.
    fn is_read_only(&self) -> bool;
    /// What it is, for people.
    fn description(&self) -> String;

    /// Reads a range.
    fn read(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, Failure>>;
    /// Writes at an offset.
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<'_, Result<(), Failure>>;
    /// Makes a range read as zeros.
    fn zero(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>>;
    /// What a range holds is not needed any more.
    fn trim(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>>;
    /// Makes durable what was written.
    fn flush(&self) -> BoxFuture<'_, Result<(), Failure>>;
    /// A range will be read soon.
    fn prefetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<(), Failure>>;

    /// The contexts that a query means, besides [`BASE_ALLOCATION`].
    fn contexts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>>;
    /// The extents of a range in a context, from its start, at least one, at most `most`. They may end before
    /// the range does.
    fn extents<'a>(
        &'a self,
        context: &'a str,
        range: Range<u64>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Extent>, Failure>>;
}
