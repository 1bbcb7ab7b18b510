//! The guard against directories that a damaged or hostile pool names more than once.

use std::collections::HashSet;

use cenote_format::units::ObjectId;

/// Directories that have been met. A sound tree meets each once; without the guard, a directory that names an ancestor
/// would be walked for ever, and one that names a sibling twice would double the work at every level.
#[derive(Debug, Default)]
pub(super) struct Met(HashSet<ObjectId>);

impl Met {
    /// Whether this is the first meeting.
    pub fn first(&mut self, directory: ObjectId) -> bool {
        self.0.insert(directory)
    }
}
