//! Stop requests to a run, and its progress.
//!
//! Workers check [`Control::stopped`] between operations and add their work with [`Control::count`], in
//! batches; a progress display calls [`Control::seen`]. The atomics are relaxed and cost a few nanoseconds.

pub(crate) mod crew;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{LabError, Result};

/// Shared by workers, observers and the interrupt handler.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    operations: AtomicU64,
    bytes: AtomicU64,
    /// Progress of the current step in parts of 1000, or 0.
    done_permille: AtomicU64,
    doing: Mutex<String>,
}

/// Visible state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Current activity.
    pub doing: String,
    /// Operations since the start of the run.
    pub operations: u64,
    /// Bytes since the start of the run.
    pub bytes: u64,
    /// Progress of the current step in parts of 1000, as far as known.
    pub done_permille: u64,
}

impl Control {
    /// Asks all workers to stop soon.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Fails if the run should stop.
    ///
    /// # Errors
    /// [`LabError::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.stopped() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Sets the current activity.
    pub fn doing(&self, what: impl Into<String>) {
        self.done_permille.store(0, Relaxed);
        *self.doing.lock().unwrap_or_else(|e| e.into_inner()) = what.into();
    }

    /// Adds completed work.
    pub fn count(&self, operations: u64, bytes: u64) {
        self.operations.fetch_add(operations, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Sets the progress of the current step.
    pub fn done(&self, part: u64, whole: u64) {
        self.done_permille
            .store((part.saturating_mul(1000)).checked_div(whole).unwrap_or(0).min(1000), Relaxed);
    }

    /// Visible state.
    pub fn seen(&self) -> Seen {
        Seen {
            doing: self.doing.lock().unwrap_or_else(|e| e.into_inner()).clone(),
            operations: self.operations.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            done_permille: self.done_permille.load(Relaxed),
        }
    }
}
