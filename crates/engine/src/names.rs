//! Names of datasets between a check of rights and the change that it permits.
//!
//! Idea: a delegated user's command checks its rights on the datasets that its names mean in the last txg on
//! disk. Its tasks look the names up again, later. If a rename came between, a name could mean a dataset on
//! which the user has no rights. The engine therefore counts renames, and a txg on disk knows its count.
//! Changes of a delegated user are refused once another has renamed a dataset since the check.
//!
//! New datasets do not count: their names meant nothing at the check, so no right was found for them.
//!
//! Locking: the counters are atomic. Only the writer of a txg counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_dataset::Credentials;
use cenote_object::{DatasetError, Result};

use crate::context::SyncContext;
use crate::engine::{Engine, Shared};

/// The names of a pool's datasets at a check of rights. Renames by the command itself do not change it.
#[derive(Debug, Clone)]
pub struct Names(Arc<AtomicU64>);

/// A user with delegated permissions, and the names that were checked.
#[derive(Debug, Clone)]
pub(crate) struct Delegated {
    pub(crate) who: Credentials,
    names: Names,
}

impl Delegated {
    pub(crate) fn new(who: Credentials, names: Names) -> Delegated {
        Delegated { who, names }
    }

    /// # Errors
    /// A dataset was renamed since the check.
    pub(crate) fn check_names(&self, engine: &Shared) -> Result<()> {
        match self.names.0.load(Ordering::Acquire) == engine.renames.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(renamed(engine)),
        }
    }

    /// After its own task.
    pub(crate) fn follow_names(&self, engine: &Shared) {
        self.names.0.store(engine.renames.load(Ordering::Acquire), Ordering::Release);
    }
}

fn renamed(engine: &Shared) -> DatasetError {
    DatasetError::Renamed { pool: engine.on_disk.read().pool.name().into() }
}

impl Engine {
    /// The names on disk. A caller that checks rights asks for them before it reads the datasets.
    pub fn names(&self) -> Names {
        Names(Arc::new(AtomicU64::new(self.0.on_disk.read().renames)))
    }

    /// For a reader that has looked datasets up again.
    ///
    /// # Errors
    /// On disk, a dataset was renamed since the check.
    pub fn check_names(&self, names: &Names) -> Result<()> {
        let on_disk = self.0.on_disk.read().renames;
        match names.0.load(Ordering::Acquire) == on_disk {
            true => Ok(()),
            false => Err(renamed(&self.0)),
        }
    }
}

impl SyncContext {
    /// Counts a rename of a dataset, and so of all below it.
    pub fn note_renamed(&self) {
        self.engine.renames.fetch_add(1, Ordering::AcqRel);
    }
}
