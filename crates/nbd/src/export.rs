//! Exports, found by name.

use std::ops::Range;
use std::sync::Arc;

use cenote_disk::{Disk, Failure};
use futures::future::BoxFuture;

/// A range with one status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its length.
    pub len_bytes: u64,
    /// Flags, defined by the context.
    pub flags: u32,
}

impl Extent {
    /// `NBD_STATE_HOLE` of `base:allocation`: unallocated.
    pub const HOLE: u32 = 1;
    /// `NBD_STATE_ZERO` of `base:allocation`: reads as zeros.
    pub const ZERO: u32 = 2;
}

/// `base:allocation`, supported by every export.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// An entry in the list of exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Description for people.
    pub description: String,
}

/// Exports visible to a client.
pub trait Exports: Send + Sync {
    /// Lists the exports.
    fn list(&self) -> BoxFuture<'_, Vec<Listed>>;

    /// Opens an export; the empty name is the default export.
    ///
    /// # Errors
    /// The export does not exist, or is denied to this client.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Export>, Failure>>;
}

/// A disk with the operations that only NBD needs.
pub trait Export: Disk {
    /// Description for people.
    fn description(&self) -> String;
    /// Requests must be multiples of it, a power of two.
    fn least_bytes(&self) -> u32 {
        1
    }
    /// Whether zeros are written faster than data.
    fn has_fast_zero(&self) -> bool {
        true
    }
    /// Contexts that match a query, besides [`BASE_ALLOCATION`].
    fn contexts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>>;
    /// Extents of a range in a context, in order from its start: at least one, at most `most`. They may end
    /// before the range does.
    fn extents<'a>(
        &'a self,
        context: &'a str,
        range: Range<u64>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Extent>, Failure>>;
}
