//! Room for what is about to be changed: in memory, and on the pool.
//!
//! The engine knows both: it slows down who changes more than the disks take, and refuses what the pool, or a quota, has no room for. A pool that
//! is full takes no more files, so copying ends there; removing goes on.

use cenote_dataset::DatasetError;
use cenote_dataset::engine::Need;

use super::Putter;
use crate::error::{InspectError, Result};

/// What a file is counted with, beside its content.
const FILE_BYTES: u64 = 8 << 10;

impl Putter {
    /// Before a file is changed with so much content: waits until there is room for it.
    ///
    /// # Errors
    /// There is none; a group could not be written.
    pub(super) async fn make_room(&self, bytes: u64) -> Result<()> {
        self.wait_for(Need::Write(bytes + FILE_BYTES)).await
    }

    /// Before something is removed.
    ///
    /// # Errors
    /// A group could not be written.
    pub(super) async fn make_room_to_remove(&self) -> Result<()> {
        self.wait_for(Need::Free).await
    }

    async fn wait_for(&self, need: Need) -> Result<()> {
        match self.engine.hold_for(self.fs.live(), need).await {
            Ok(_) => Ok(()),
            Err(DatasetError::NoSpace { .. }) => {
                Err(self.full("the pool is full", cenote_fs::Refusal::NoSpace))
            }
            Err(DatasetError::OverQuota { .. }) => {
                Err(self.full("its quota is used up", cenote_fs::Refusal::Quota))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn full(&self, why: &str, refusal: cenote_fs::Refusal) -> InspectError {
        let source = std::io::Error::from_raw_os_error(refusal.errno());
        InspectError::io(format!("{}: {why}", self.dataset))(source)
    }
}
