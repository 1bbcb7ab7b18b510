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
    /// Taken out of use: nothing is written to it, and only what nobody else has is read.
    pub(crate) out_of_use: bool,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
}

impl Leaf {
    pub(crate) fn new(guid: Guid, device: Arc<dyn Device>, lagging: bool, out_of_use: bool) -> Leaf {
        Leaf {
            guid,
            device,
            lagging,
            out_of_use,
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            checksum_errors: AtomicU64::new(0),
        }
    }

    /// Reads a range of the device, labels included; a failure is counted.
    pub(crate) async fn read(&self, offset_bytes: u64, len: usize) -> Result<Bytes, DeviceError> {
        let result = self.device.read_at(offset_bytes, len).await;
        if result.is_err() {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Writes a range of the device, labels included; a failure is counted.
    pub(crate) async fn write(&self, offset_bytes: u64, data: Bytes) -> Result<(), DeviceError> {
        self.counting_writes(self.device.write_at(offset_bytes, data).await)
    }

    /// Makes durable what was written; a failure is counted.
    pub(crate) async fn flush(&self) -> Result<(), DeviceError> {
        self.counting_writes(self.device.flush().await)
    }

    fn counting_writes(&self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        if result.is_err() {
            self.write_errors.fetch_add(1, Ordering::Relaxed);
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
            write: self.write_errors.load(Ordering::Relaxed),
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
    /// Leaves that it should have and that have no device here.
    pub(crate) absent: Vec<Guid>,
}
