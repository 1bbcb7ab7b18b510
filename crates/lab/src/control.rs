//! How a run is told to stop, and tells how far it is.
//!
//! One [`Control`] goes with everything that takes time. Workers ask [`Control::stopped`] between operations and add what they did to
//! [`Control::count`]; whoever shows progress looks at [`Control::seen`] as often as it likes. Relaxed atomics: a
//! worker pays a few nanoseconds, and batches them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{LabError, Result};

/// Shared between those who work, who watch and who interrupt.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    operations: AtomicU64,
    bytes: AtomicU64,
    /// Parts of 1000 of the present step, or 0.
    done_permille: AtomicU64,
    doing: Mutex<String>,
}

/// What there is to see of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What is being done now.
    pub doing: String,
    /// Operations since the run began.
    pub operations: u64,
    /// Bytes since the run began.
    pub bytes: u64,
    /// How much of the present step is done, in parts of 1000, as far as that is known.
    pub done_permille: u64,
}

impl Control {
    /// Asks all to stop soon.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// [`LabError::Interrupted`] if it is time to stop.
    ///
    /// # Errors
    /// Only that.
    pub fn check(&self) -> Result<()> {
        if self.stopped() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Says what is done from now on.
    pub fn doing(&self, what: impl Into<String>) {
        self.done_permille.store(0, Relaxed);
        *self.doing.lock().unwrap_or_else(|e| e.into_inner()) = what.into();
    }

    /// Adds what was done.
    pub fn count(&self, operations: u64, bytes: u64) {
        self.operations.fetch_add(operations, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Says how much of the present step is done.
    pub fn done(&self, part: u64, whole: u64) {
        self.done_permille
            .store((part.saturating_mul(1000)).checked_div(whole).unwrap_or(0).min(1000), Relaxed);
    }

    /// What there is to see.
    pub fn seen(&self) -> Seen {
        Seen {
            doing: self.doing.lock().unwrap_or_else(|e| e.into_inner()).clone(),
            operations: self.operations.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            done_permille: self.done_permille.load(Relaxed),
        }
    }
}
