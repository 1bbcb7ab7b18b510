//! Recording: everything of a kind that happens, for whoever asked for it, in the order in which it happens.
//!
//! Idea: a recording is a bounded list that those append to who do things, and that its owner empties. When
//! it is full, what happens is counted instead of kept: nobody waits for a slow disk. While nobody records,
//! it costs a look at a flag. A recording ends when its owner drops it.
//!
//! Locking: a mutex for who records, and one for the list; both are held for an append or a look, the second
//! within the first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// What a recording holds until it is taken: some 20 MiB.
const MOST_HELD: usize = 1 << 18;

/// Where things happen that can be recorded.
#[derive(Debug)]
pub struct Recorder<T> {
    is_on: AtomicBool,
    recording: Mutex<Weak<Recording<T>>>,
}

/// What happened.
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
    /// Records from now on, in place of an earlier recording, until what this answers is dropped.
    pub fn record(&self) -> Arc<Recording<T>> {
        let recording = Arc::new(Recording { held: Mutex::default(), lost: AtomicU64::new(0) });
        *self.recording.lock() = Arc::downgrade(&recording);
        self.is_on.store(true, Ordering::Relaxed);
        recording
    }

    /// Something happened; what, is only asked if somebody records.
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

    /// Whether somebody records, as far as is known.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

impl<T> Recording<T> {
    /// What happened since this was asked last.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.held.lock())
    }

    /// What was not kept, because nobody took what came before.
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
