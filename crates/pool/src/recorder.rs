//! Records every event of a kind, in order, for one consumer.
//!
//! Idea: events are appended to a bounded list, which its owner drains. When full, events are counted
//! instead, so no I/O waits for a slow consumer. Without a recording, an event costs one atomic load.
//!
//! Locking: a mutex for the current recording, and one for its list, taken within the first; both for one
//! access.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Some 20 MiB.
const MOST_HELD: usize = 1 << 18;

/// A source of events that can be recorded.
#[derive(Debug)]
pub struct Recorder<T> {
    is_on: AtomicBool,
    recording: Mutex<Weak<Recording<T>>>,
}

/// The recorded events.
#[derive(Debug)]
pub struct Recording<T> {
    held: Mutex<Vec<T>>,
    lost: AtomicU64,
}

impl<T> Default for Recorder<T> {
    fn default() -> Recorder<T> {
        Recorder { is_on: AtomicBool::new(false), recording: Mutex::default() }
    }
}

impl<T> Recorder<T> {
    /// Starts recording, in place of an earlier recording, until the result is dropped.
    pub fn record(&self) -> Arc<Recording<T>> {
        let recording = Arc::new(Recording { held: Mutex::default(), lost: AtomicU64::new(0) });
        *self.recording.lock() = Arc::downgrade(&recording);
        self.is_on.store(true, Ordering::Relaxed);
        recording
    }

    /// Records an event. The closure runs only if a recording is active.
    pub fn note(&self, what: impl FnOnce() -> T) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let mut recording = self.recording.lock();
        match recording.upgrade() {
            Some(recording) => recording.note(what()),
            None => {
                *recording = Weak::new();
                self.is_on.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Whether a recording is active; may be stale.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

impl<T> Recording<T> {
    /// Takes the events since the last call.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.held.lock())
    }

    /// Events lost because the list was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn note(&self, what: T) {
        let mut held = self.held.lock();
        match held.len() < MOST_HELD {
            true => held.push(what),
            false => _ = self.lost.fetch_add(1, Ordering::Relaxed),
        }
    }
}
