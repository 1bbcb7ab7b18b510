//! Waits for a device's answers, but not for ever.
//!
//! A device that does not answer an operation within [`DEADMAN`] is out of use until its errors are cleared:
//! a pool waits for a hung disk once, then continues as if the disk had failed. Whatever the disk still
//! writes does no harm, because it misses all txgs from then on.
//!
//! Locking: none; one relaxed flag.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote_device::{Device, DeviceError, Io, Op};
use cenote_runtime::Runtime;

/// The longest time for one operation: `zfs_deadman_ziotime_ms`.
const DEADMAN: Duration = Duration::from_secs(300);

/// A device, and whether it still answers.
pub(crate) struct Patience {
    pub(crate) device: Arc<dyn Device>,
    runtime: Runtime,
    hung: AtomicBool,
}

impl Patience {
    pub(crate) fn new(runtime: &Runtime, device: Arc<dyn Device>) -> Patience {
        Patience { device, runtime: runtime.clone(), hung: AtomicBool::new(false) }
    }

    /// It failed to answer an operation.
    pub(crate) fn is_hung(&self) -> bool {
        self.hung.load(Ordering::Relaxed)
    }

    /// It gets another chance.
    pub(crate) fn forgive(&self) {
        self.hung.store(false, Ordering::Relaxed);
    }

    /// The device's answer, or that there is none.
    pub(crate) async fn answer<T>(
        &self,
        io: Io<'_, T>,
        op: Op,
        offset_bytes: u64,
        len: u64,
    ) -> Result<T, DeviceError> {
        if io.is_done() {
            return io.await;
        }
        if self.is_hung() {
            return Err(self.no_answer(op, offset_bytes, len));
        }
        self.runtime.timeout(DEADMAN, io).await.unwrap_or_else(|_| {
            self.hung.store(true, Ordering::Relaxed);
            Err(self.no_answer(op, offset_bytes, len))
        })
    }

    fn no_answer(&self, op: Op, offset_bytes: u64, len: u64) -> DeviceError {
        let why = Error::new(ErrorKind::TimedOut, "the device does not answer and is out of use");
        self.device.info().io_error(op, offset_bytes, len, why)
    }
}
