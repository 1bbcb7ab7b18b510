//! Options of a rescue.

use cenote_dataset::ImportOptions;

/// Scope and method of a rescue.
#[derive(Debug, Clone)]
pub struct RescueOptions {
    /// How the pool is opened: keys, cache.
    pub import: ImportOptions,
    /// Include snapshots.
    pub snapshots: bool,
    /// Only these datasets and those below; all if empty.
    pub datasets: Vec<String>,
    /// How many older transaction groups to try.
    pub back: usize,
    /// Restore owners, modes, times and so on.
    pub metadata: bool,
}
