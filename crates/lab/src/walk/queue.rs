//! What is still to be done: each worker has its own stack, and gives part of it away while somebody is idle.
//!
//! The lock is taken only to give and to get. A worker gives the older half of its stack: those are the folders nearest to the root, with most
//! below them. The walk is over when all workers are idle and nothing is shared, or when one of them failed.

use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::folder::{Folder, Root};

/// A piece of work.
pub enum Pending {
    /// A folder by its name in its folder, which is kept open for it.
    Below(Arc<Folder>, CString),
    /// A folder by its path from the root: too many were open when it was found.
    Far(Arc<Root>, Vec<u8>),
    /// The rest of an open folder's list.
    Rest(Arc<Folder>),
}

/// Shared by the workers of one walk.
pub struct Queue {
    threads: usize,
    /// Read without the lock: whether it is worth giving something away.
    idle: AtomicUsize,
    /// Read without the lock: whether to go on at all.
    over: AtomicBool,
    shared: Mutex<VecDeque<Pending>>,
    changed: Condvar,
}

impl Queue {
    /// For so many workers, with the first piece of work.
    pub fn new(threads: usize, first: Pending) -> Queue {
        let shared = VecDeque::from([first]);
        Queue {
            threads,
            idle: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            shared: Mutex::new(shared),
            changed: Condvar::new(),
        }
    }

    /// Whether somebody waits for work.
    pub fn is_wanted(&self) -> bool {
        self.idle.load(Relaxed) > 0
    }

    /// Whether the walk is over.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Gives one piece away.
    pub fn give(&self, piece: Pending) {
        self.lock().push_back(piece);
        self.changed.notify_one();
    }

    /// Gives the older half of a worker's stack away.
    pub fn give_half(&self, stack: &mut Vec<Pending>) {
        let half = stack.len() / 2;
        if half > 0 {
            self.lock().extend(stack.drain(..half));
            self.changed.notify_all();
        }
    }

    /// Waits for a piece of work; None when the walk is over.
    pub fn get(&self) -> Option<Pending> {
        let mut shared = self.lock();
        self.idle.fetch_add(1, Relaxed);
        loop {
            if self.is_over() {
                return None;
            }
            if let Some(piece) = shared.pop_front() {
                self.idle.fetch_sub(1, Relaxed);
                return Some(piece);
            }
            if self.idle.load(Relaxed) == self.threads {
                self.over.store(true, Relaxed);
                self.changed.notify_all();
                return None;
            }
            shared = self.changed.wait(shared).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Ends the walk: nobody gets anything any more.
    pub fn end(&self) {
        // Under the lock, so that nobody begins to wait between the change and the call.
        let _shared = self.lock();
        self.over.store(true, Relaxed);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.shared.lock().unwrap_or_else(|e| e.into_inner())
    }
}
