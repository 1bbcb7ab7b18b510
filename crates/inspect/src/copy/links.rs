//! Files with several names: the first name met is copied, the others become hard links to it.
//!
//! Locking: the map's mutex is held for a look-up. The first task to use the returned cell initialises it
//! outside the lock; tasks with other names of the file wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cenote_format::units::ObjectId;
use tokio::sync::OnceCell;

use super::folder::Name;
use super::loss::Loss;

/// The copy of a file under its first name. `None` if it could not be copied.
pub(super) type FirstName = Option<FirstCopy>;

/// Its location, and the content that all its names lack.
#[derive(Debug)]
pub(super) struct FirstCopy {
    /// The names that lead to it from the root of the copy.
    pub names: Vec<Name>,
    /// Unreadable content.
    pub lost: Option<Loss>,
}

/// The files with several names met so far.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashMap<ObjectId, Arc<OnceCell<FirstName>>>>);

impl Links {
    /// The cell of a file's first name, to be initialised by copying the file.
    pub fn of(&self, object: ObjectId) -> Arc<OnceCell<FirstName>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(object).or_default().clone()
    }
}
