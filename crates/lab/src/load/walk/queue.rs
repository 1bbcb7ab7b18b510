//! Pending work: each worker has a stack, and gives part of it away while another is idle.
//!
//! The lock is taken only to give and to get. A worker gives away the older half of its stack: the folders
//! nearest to the root, with most below them. The walk is over when all workers are idle and nothing is
//! shared, or one failed.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::folder::{Folder, Root};

pub enum Pending {
    /// A folder by its name in its parent, which is kept open for it.
    Below(Arc<Folder>, CString),
    /// A folder by its path from the root, because too many were open when found.
    Far(Arc<Root>, Vec<u8>),
    /// Rest of an open folder's listing.
    Rest(Arc<Folder>),
}

impl Pending {
    pub fn below(folder: &Arc<Folder>, name: &CStr) -> Pending {
        match folder.far(name) {
            Some((root, path)) => Pending::Far(root, path),
            None => Pending::Below(Arc::clone(folder), name.to_owned()),
        }
    }
}

pub struct Queue {
    threads: usize,
    /// Read without the lock: whether it is worth giving work away.
    idle: AtomicUsize,
    /// Read without the lock: whether to continue at all.
    over: AtomicBool,
    shared: Mutex<VecDeque<Pending>>,
    changed: Condvar,
}

impl Queue {
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

    /// Whether a worker waits for work.
    pub fn is_wanted(&self) -> bool {
        self.idle.load(Relaxed) > 0
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub fn give(&self, piece: Pending) {
        self.lock().push_back(piece);
        self.changed.notify_one();
    }

    /// Gives away the older half of a worker's stack.
    pub fn give_half(&self, stack: &mut Vec<Pending>) {
        let half = stack.len() / 2;
        if half > 0 {
            self.lock().extend(stack.drain(..half));
            self.changed.notify_all();
        }
    }

    /// Waits for a unit of work; None when the walk is over.
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

    /// Ends the walk: workers get no more work.
    pub fn end(&self) {
        // Under the lock, so that no worker starts to wait between the change and the notification.
        let _shared = self.lock();
        self.over.store(true, Relaxed);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.shared.lock().unwrap_or_else(|e| e.into_inner())
    }
}
