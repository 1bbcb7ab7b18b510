//! Asking something to end.

use cenote_boxed::boxed;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A wish for an end, shared by who has it and who heeds it. Any thread may use any of its methods at any
/// time.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_cancelled: AtomicBool,
    /// How many heed it, and clean up before they end.
    heeding: AtomicUsize,
    changed: Notify,
}

/// Somebody heeds the wish, as long as this lives.
#[derive(Debug)]
pub struct Heeding<'a>(&'a Inner);

impl Drop for Heeding<'_> {
    fn drop(&mut self) {
        self.0.heeding.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Cancel {
    /// Asks for the end.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// Whether it was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Waits until it is asked for.
    #[boxed]
    pub async fn cancelled(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.is_cancelled() {
                return;
            }
            changed.await;
        }
    }

    /// Says that whoever holds the answer ends in order by itself.
    pub fn heed(&self) -> Heeding<'_> {
        self.0.heeding.fetch_add(1, Ordering::AcqRel);
        Heeding(&self.0)
    }

    /// How many end in order by themselves.
    pub fn heeding(&self) -> usize {
        self.0.heeding.load(Ordering::Acquire)
    }
}
