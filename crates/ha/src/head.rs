//! A pool as its keeper sees it: one of the daemon, or a model in tests.

use std::collections::BTreeSet;

use cenote_device::Tenure;
use futures::future::BoxFuture;

/// The circumstances in which a pool is taken.
#[derive(Clone)]
pub struct Taking {
    /// Writes pass while it lasts; it learns of leaves that lack data.
    pub tenure: Tenure,
    /// Guids of leaves that lack data of earlier tenures: they must not be needed, nor believed.
    pub lacking: BTreeSet<u64>,
    /// An earlier owner is recorded, so a pool that was not exported may be taken.
    pub is_known: bool,
}

/// The state of a pool that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// It works.
    Works,
    /// It waits for its devices.
    Suspended(String),
    /// It can't be used any more: another machine has it, or may have it.
    Lost(String),
    /// An administrator has exported it.
    Gone,
}

/// How a pool is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// All is written. Fails if that is impossible.
    Whole,
    /// Without waiting for its devices.
    AtAnyCost,
}

/// Takes one pool, and lets it go. Calls come from its keeper, one at a time, except [`Head::lacking`].
pub trait Head: Send + Sync + 'static {
    /// Opens the pool for clients. Returns whether locks in the storage fence all other machines, so that no
    /// lease is needed.
    ///
    /// # Errors
    /// The pool is not open.
    fn take(&self, taking: Taking) -> BoxFuture<'static, Result<bool, String>>;

    /// The state of the open pool.
    fn held(&self) -> Held;

    /// Guids of leaves that lack data; `None`: it is not open. Must not block.
    fn lacking(&self) -> Option<BTreeSet<u64>>;

    /// Stops all reads and writes at once. Must not block.
    fn lose(&self, why: &str);

    /// Closes the pool.
    ///
    /// # Errors
    /// It is still open.
    fn leave(&self, how: Leave) -> BoxFuture<'static, Result<(), String>>;
}
