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
    /// Guid of the pool that earlier tenures had: it may be taken although it was not exported. Any other may
    /// be in use by a machine that asks no witness.
    pub known: Option<u64>,
}

/// A pool that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Its guid.
    pub guid: u64,
    /// Locks in the storage fence all other machines, so no lease is needed.
    pub needs_no_lease: bool,
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
    /// Opens the pool for clients.
    ///
    /// # Errors
    /// The pool is not open.
    fn take(&self, taking: Taking) -> BoxFuture<'static, Result<Opened, String>>;

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
