//! Waits for room for a change: in memory, and on the pool.
//!
//! The engine throttles changes to the speed of the disks, and refuses those that exceed the pool or a quota.
//! Copying stops on a full pool; removing continues.

use cenote_engine::Need;
use cenote_object::DatasetError;

use super::Putter;
use crate::error::{InspectError, Result};

/// The space estimated for a file, besides its content.
pub(super) const FILE_BYTES: u64 = 8 << 10;

impl Putter {
    /// Waits, before a file is created, until there is room for it.
    ///
    /// # Errors
    /// There is no room, or a txg could not be synced.
    pub(super) async fn make_room(&self) -> Result<()> {
        let nothing = |_| std::future::ready(Ok::<_, DatasetError>(()));
        match self.engine.change(self.fs.live(), Need::Write(FILE_BYTES), nothing).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.full(&error).unwrap_or_else(|| error.into())),
        }
    }

    /// The error that ends the copy because nothing more fits: the pool is full, or a quota is exhausted.
    pub(super) fn full(&self, error: &DatasetError) -> Option<InspectError> {
        let name = &self.dataset;
        let pool = name.split('/').next().unwrap_or_default();
        let (why, refusal) = match error {
            DatasetError::NoSpace { .. } => (
                format!(
                    "the pool is full (remove files or snapshots, or add devices; `zfs list -r -o space \
                     {pool}` shows the usage)"
                ),
                cenote_fs::Refusal::NoSpace,
            ),
            DatasetError::OverQuota { .. } => (
                format!(
                    "its quota or one above it is exhausted (remove files or snapshots, or raise it: \
                     `zfs get quota,refquota {name}`)"
                ),
                cenote_fs::Refusal::Quota,
            ),
            _ => return None,
        };
        let source = std::io::Error::from_raw_os_error(refusal.errno());
        Some(InspectError::io(format!("{name}: {why}"))(source))
    }
}
