//! Cancellation requests.

use cenote_boxed::boxed;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A shared cancellation flag; all methods are thread-safe.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_cancelled: AtomicBool,
    /// Number of tasks that clean up before they end.
    heeding: AtomicUsize,
    changed: Notify,
}

/// A task ends in order by itself while this lives.
#[derive(Debug)]
pub struct Heeding<'a>(&'a Inner);

impl Drop for Heeding<'_> {
    fn drop(&mut self) {
        self.0.heeding.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Cancel {
    /// Requests cancellation.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Waits for the request.
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

    /// Registers a task that ends in order by itself.
    pub fn heed(&self) -> Heeding<'_> {
        self.0.heeding.fetch_add(1, Ordering::AcqRel);
        Heeding(&self.0)
    }

    /// Number of such tasks.
    pub fn heeding(&self) -> usize {
        self.0.heeding.load(Ordering::Acquire)
    }
}
