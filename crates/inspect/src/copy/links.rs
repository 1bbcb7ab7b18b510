//! Files with several names: the first one met is copied, the others become links to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cenote_format::units::ObjectId;
use tokio::sync::OnceCell;

use super::folder::Name;

/// Where the first name of a file lies: names from the root of the copy. `None`: it could not be copied.
pub(super) type FirstName = Option<Vec<Name>>;

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
