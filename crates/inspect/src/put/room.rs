//! Room for what is about to be changed: in memory, and on the pool.
//!
//! The engine knows both: it slows down who changes more than the disks take, and refuses what the pool, or a quota, has no room for. A pool that
//! is full takes no more files, so copying ends there; removing goes on.

use cenote_dataset::DatasetError;
use cenote_dataset::engine::Need;

use super::Putter;
use crate::error::{InspectError, Result};

/// What a file is counted with, beside its content.
pub(super) const FILE_BYTES: u64 = 8 << 10;

impl Putter {
    /// Before a file is made: waits until there is room for it.
    ///
    /// # Errors
    /// There is none; a group could not be written.
    pub(super) async fn make_room(&self) -> Result<()> {
        match self.engine.hold_for(self.fs.live(), Need::Write(FILE_BYTES)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.full(&error).unwrap_or_else(|| error.into())),
        }
    }

    /// What ends the work, as nothing more would fit: the pool is full, or a quota of the dataset used up.
    pub(super) fn full(&self, error: &DatasetError) -> Option<InspectError> {
        let name = &self.dataset;
        let pool = name.split('/').next().unwrap_or_default();
        let (why, refusal) = match error {
            DatasetError::NoSpace { .. } => (
                format!(
                    "the pool is full (remove files or snapshots: `zfs list -r -o space {pool}` shows what has the space; or add devices)"
                ),
                cenote_fs::Refusal::NoSpace,
            ),
            DatasetError::OverQuota { .. } => (
                format!(
                    "its quota or one above it is used up (remove files or snapshots, or raise it: `zfs get quota,refquota {name}`)"
                ),
                cenote_fs::Refusal::Quota,
            ),
            _ => return None,
        };
        let source = std::io::Error::from_raw_os_error(refusal.errno());
        Some(InspectError::io(format!("{name}: {why}"))(source))
    }
}
