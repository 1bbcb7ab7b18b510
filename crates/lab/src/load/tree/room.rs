//! Space that a step with a time limit may fill: half of the free space.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::{LabError, Result};

/// Minimum size of a folder or of a file's tail on most file systems, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Remaining space. An estimate from sizes: compression, padding and metadata are unknown.
#[derive(Debug)]
pub struct Room {
    bytes: AtomicI64,
    inodes: AtomicI64,
}

impl Room {
    /// Half of the free space at `place`.
    ///
    /// # Errors
    /// The file system does not report it.
    pub fn half_of_free(place: &Path) -> Result<Room> {
        let said = rustix::fs::statvfs(place).map_err(std::io::Error::from);
        let said = said.map_err(LabError::io(place.display().to_string()))?;
        let bytes = said.f_bavail.saturating_mul(said.f_frsize) / 2;
        // File systems that allocate inodes on demand report 0.
        let inodes = if said.f_files == 0 { u64::MAX } else { said.f_favail / 2 };
        let limit = |value: u64| AtomicI64::new(i64::try_from(value).unwrap_or(i64::MAX));
        Ok(Room { bytes: limit(bytes), inodes: limit(inodes) })
    }

    /// Takes space for a file or folder of this size.
    pub fn take(&self, bytes: u64) {
        let bytes = i64::try_from(bytes.next_multiple_of(BLOCK_BYTES)).unwrap_or(i64::MAX);
        self.bytes.fetch_sub(bytes, Relaxed);
        self.inodes.fetch_sub(1, Relaxed);
    }

    pub fn is_left(&self) -> bool {
        self.bytes.load(Relaxed) > 0 && self.inodes.load(Relaxed) > 0
    }
}
