//! An object store, as far as a disk needs one.
//!
//! Idea: five requests suffice, and a simulated store answers them as a real one does ([`crate::SimStore`]).
//! Objects are created once and never changed, so a repeated request does no harm, however late it arrives.
//!
//! Trust in the store: a create of a name succeeds once at most (it is atomic, also among machines), a
//! list shows every object created before it began, and a deleted object is gone. `probe` checks the first.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

/// A request under way. Dropping it may leave it undone, done, or to be done later.
pub type Call<T> = BoxFuture<'static, Result<T, StoreError>>;

/// The content of a new object, in consecutive pieces.
pub type Body = Vec<Bytes>;

/// An object store.
pub trait Store: Send + Sync {
    /// Creates an object if there is none of this name.
    fn create(&self, key: &str, body: Body) -> Call<Created>;

    /// Replaces an object if it still has this tag. For registers (leases of pools); disks have none.
    fn replace(&self, key: &str, tag: &str, body: Body) -> Call<Created>;

    /// Reads an object with its tag.
    fn read_tagged(&self, key: &str) -> Call<(Bytes, String)>;

    /// Reads an object, or a range of it that lies within it.
    fn read(&self, key: &str, range: Option<Range<u64>>) -> Call<Bytes>;

    /// Names that begin with `prefix` and come after `after`, in order.
    fn list(&self, prefix: &str, after: &str) -> Call<Page>;

    /// Deletes an object, if it exists.
    fn delete(&self, key: &str) -> Call<()>;
}

/// The answer to a conditional request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It was carried out; the object has this tag.
    New {
        /// Differs from those of other contents.
        tag: String,
    },
    /// The condition does not hold; nothing was done.
    Refused,
}

/// Part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Names, in order.
    pub keys: Vec<String>,
    /// There are more.
    pub has_more: bool,
}

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No such object.
    #[error("the object '{0}' does not exist")]
    Missing(Arc<str>),
    /// The store is overloaded and did nothing.
    #[error("the store is busy: {0}")]
    Busy(Arc<str>),
    /// No answer: the request may have been carried out, or will be.
    #[error("no answer: {0}")]
    Unknown(Arc<str>),
    /// The store refuses; another try would not help.
    #[error("the store refuses: {0}")]
    Refused(Arc<str>),
    /// The answer makes no sense.
    #[error("the store's answer is malformed: {0}")]
    Malformed(Arc<str>),
}

impl StoreError {
    /// Whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, StoreError::Busy(_) | StoreError::Unknown(_))
    }
}
