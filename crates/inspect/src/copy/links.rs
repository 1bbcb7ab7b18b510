//! Files with several names: the first one met is copied, the others become links to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cenote_format::units::ObjectId;
use tokio::sync::OnceCell;

use super::folder::Name;
use super::loss::Loss;

/// The copy of a file under the first of its names. `None`: it could not be copied.
pub(super) type FirstName = Option<FirstCopy>;

/// Where it lies, and what its other names lack with it.
#[derive(Debug)]
pub(super) struct FirstCopy {
    /// Names from the root of the copy.
    pub names: Vec<Name>,
    /// Content that could not be read.
    pub lost: Option<Loss>,
}

/// The files with several names that were met.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashMap<ObjectId, Arc<OnceCell<FirstName>>>>);

impl Links {
    /// The place of a file's first name. Whoever comes first fills it by copying the file; the others wait for that.
    pub fn of(&self, object: ObjectId) -> Arc<OnceCell<FirstName>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(object).or_default().clone()
    }
}
