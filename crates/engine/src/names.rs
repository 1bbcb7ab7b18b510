//! Names of datasets between a check of rights and the change that it permits.
//!
//! Idea: a delegated user's command checks its rights on the datasets that its names mean in the last txg on
//! disk. After a rename, its tasks could find a dataset on which the user has no rights. So the engine counts
//! renames, a txg on disk knows its count, and a delegated user's changes are refused if another has renamed
//! a dataset since the check.
//!
//! New datasets do not count: their names meant nothing at the check, so no right was found for them.
//!
//! Locking: the counters are atomic. Only the writer of a txg counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_dataset::Credentials;
/// The names of a pool's datasets at a check of rights. Renames by the command itself do not change it.
#[derive(Debug, Clone)]
pub struct Names(Arc<AtomicU64>);

/// A user with delegated permissions, and the checked names.
#[derive(Debug, Clone)]
pub(crate) struct Delegated {
    pub(crate) who: Credentials,
    names: Names,
}

impl Delegated {
    pub(crate) fn new(who: Credentials, names: Names) -> Delegated {
        Delegated { who, names }
    }

    /// Whether nobody else has renamed a dataset since the check, given the count of renames.
    pub(crate) fn is_valid(&self, renames: u64) -> bool {
        self.names.are_of(renames)
    }

    /// After its own task.
    pub(crate) fn follow(&self, renames: u64) {
        self.names.0.store(renames, Ordering::Release);
    }
}

impl Names {
    pub(crate) fn at(renames: u64) -> Names {
        Names(Arc::new(AtomicU64::new(renames)))
    }

    pub(crate) fn are_of(&self, renames: u64) -> bool {
        self.0.load(Ordering::Acquire) == renames
    }
}
