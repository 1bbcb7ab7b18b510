//! The progress of a verification, and how to stop one.
//!
//! Locking: [`Stop`] is a relaxed flag that any thread may set. The rest belongs to the verifying task.

use cenote_runtime::{Instant, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Asks a verification to stop early and report its partial result. Clones share one flag.
#[derive(Debug, Default, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Requests a stop at the next step.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Space verified so far, in bytes on the vdevs.
    pub done_bytes: u64,
    /// Allocated space: roughly the bytes to verify.
    pub total_bytes: u64,
    /// Bytes per second since the start.
    pub rate_bytes_per_s: u64,
    /// Time left at that rate; `None` if unknown.
    pub left: Option<Duration>,
    /// Blocks found so far.
    pub blocks: u64,
    /// Damaged blocks found so far.
    pub damaged_blocks: u64,
}

pub(super) struct Meter {
    runtime: Runtime,
    started: Instant,
    pub(super) total_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) blocks: u64,
    pub(super) damaged_blocks: u64,
}

impl Meter {
    pub(super) fn new(runtime: &Runtime, total_bytes: u64) -> Meter {
        let started = runtime.now();
        Meter { runtime: runtime.clone(), started, total_bytes, done_bytes: 0, blocks: 0, damaged_blocks: 0 }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.runtime.now().since(self.started)
    }

    pub(super) fn progress(&self) -> Progress {
        let elapsed_ns = self.elapsed().as_nanos().max(1);
        let rate = u128::from(self.done_bytes) * 1_000_000_000 / elapsed_ns;
        let left_bytes = u128::from(self.total_bytes.saturating_sub(self.done_bytes));
        let left_ms = (left_bytes * 1000).checked_div(rate);
        Progress {
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes.max(self.done_bytes),
            rate_bytes_per_s: u64::try_from(rate).unwrap_or(u64::MAX),
            left: left_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))),
            blocks: self.blocks,
            damaged_blocks: self.damaged_blocks,
        }
    }
}
