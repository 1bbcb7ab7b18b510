//! The machine's power, which may fail at a chosen write.
//!
//! Idea: from that write on, operations of all disks end no more. Nobody learns of the failure, as in a real
//! one, and nothing that happens later reaches a disk.
//!
//! Locking: one mutex, held for one look or change.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Power for all disks of a machine.
#[derive(Default)]
pub struct Power {
    state: Mutex<State>,
    failed: Notify,
}

#[derive(Default)]
struct State {
    writes: u64,
    /// The first write that is not made.
    fails_at: Option<u64>,
    is_off: bool,
}

impl Power {
    /// Switches it on, until this write (counted from 0) if one is given.
    pub fn switch_on(&self, fails_at: Option<u64>) {
        *self.state.lock() = State { fails_at, ..State::default() };
    }

    /// Writes since it was switched on.
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// The first write that is not made.
    pub fn fails_at(&self) -> Option<u64> {
        self.state.lock().fails_at
    }

    /// Waits until it fails.
    pub async fn failed(&self) {
        let mut failed = std::pin::pin!(self.failed.notified());
        failed.as_mut().enable();
        if !self.state.lock().is_off {
            failed.await;
        }
    }

    /// Counts a write. Returns whether it is made.
    pub(super) fn write(&self) -> bool {
        let state = &mut *self.state.lock();
        if state.fails_at == Some(state.writes) {
            state.is_off = true;
            self.failed.notify_waiters();
        }
        state.writes += u64::from(!state.is_off);
        !state.is_off
    }

    /// Waits for ever once it has failed.
    pub(super) async fn on(&self) {
        if self.state.lock().is_off {
            std::future::pending().await
        }
    }
}
