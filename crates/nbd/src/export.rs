//! What is served: exports, found by name.

use std::ops::Range;
use std::sync::Arc;

use cenote_disk::{Disk, Failure};
use futures::future::BoxFuture;

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

/// A disk with what only NBD asks for.
pub trait Export: Disk {
    /// What it is, for people.
    fn description(&self) -> String;
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
