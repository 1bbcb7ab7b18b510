//! Leaves: devices with counters; and slots: leaves that hold the same bytes.

use crate::health::ErrorCounts;
use bytes::Bytes;
use cenote_device::{Device, DeviceError};
use cenote_format::units::Guid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device as a vdev.
pub(crate) struct Leaf {
    pub(crate) guid: Guid,
    pub(crate) device: Arc<dyn Device>,
    /// Known to lack some of what its slot should hold: to be read last.
    pub(crate) lagging: bool,
    read_errors: AtomicU64,
    checksum_errors: AtomicU64,
}

impl Leaf {
    pub(crate) fn new(guid: Guid, device: Arc<dyn Device>, lagging: bool) -> Leaf {
        Leaf { guid, device, lagging, read_errors: AtomicU64::new(0), checksum_errors: AtomicU64::new(0) }
    }

    /// Reads a range of the device, labels included; a failure is counted.
    pub(crate) async fn read(&self, offset_bytes: u64, len: usize) -> Result<Bytes, DeviceError> {
        let result = self.device.read_at(offset_bytes, len).await;
        if result.is_err() {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Counts a range that was not what was written.
    pub(crate) fn blame(&self) {
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn errors(&self) -> ErrorCounts {
        ErrorCounts {
            read: self.read_errors.load(Ordering::Relaxed),
            write: 0,
            checksum: self.checksum_errors.load(Ordering::Relaxed),
        }
    }
}

/// Leaves that hold the same bytes at the same offsets. Missing ones are not in it.
#[derive(Default)]
pub(crate) struct Slot {
    /// Those that lag behind come last.
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// Distributed spares of the dRAID around it that stand in here.
    pub(crate) spares: Vec<u64>,
    /// Leaves configured, present or not: what the slot should have.
    pub(crate) configured: usize,
}
