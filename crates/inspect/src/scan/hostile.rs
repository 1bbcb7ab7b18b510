//! The guard against directories that a damaged or hostile pool names more than once.

use std::collections::HashSet;

use cenote_format::units::ObjectId;

/// Directories met so far. Unguarded, one that names an ancestor would be walked forever, and one that names
/// a sibling twice would double the work at every level.
#[derive(Debug, Default)]
pub(super) struct Met(HashSet<ObjectId>);

impl Met {
    /// Whether this directory is met for the first time.
    pub fn first(&mut self, directory: ObjectId) -> bool {
        self.0.insert(directory)
    }
}
