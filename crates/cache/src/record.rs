//! Recording: every look-up, for whoever asked for it, in the order in which they happened.
//!
//! Idea: a recording is a bounded list that readers append to and its owner empties. When it is full,
//! look-ups are counted instead of kept: a reader never waits for a slow disk.
//!
//! Locking: the list has a mutex, held to append to it or to take all of it.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_policy::{BlockId, Class};
use cenote_pool::Zbookmark;
use parking_lot::Mutex;

/// Look-ups that a recording holds until they are taken: 20 MiB.
const MOST_HELD: usize = 1 << 18;

/// A look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookUp {
    /// When, in nanoseconds since the pool's runtime began.
    pub now_ns: u64,
    /// The block, under the number by which policies know it.
    pub id: BlockId,
    /// Bytes of the block; of one that was not cached, as many as its pointer says.
    pub bytes: u32,
    /// What it holds.
    pub class: Class,
    /// Whether it was cached.
    pub is_hit: bool,
    /// Which block of which object.
    pub place: Zbookmark,
}

/// Look-ups as they happen.
#[derive(Debug, Default)]
pub struct Recording {
    held: Mutex<Vec<LookUp>>,
    lost: AtomicU64,
}

impl Recording {
    /// What happened since this was asked last.
    pub fn take(&self) -> Vec<LookUp> {
        std::mem::take(&mut *self.held.lock())
    }

    /// Look-ups that were not kept, because nobody took those before.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, look_up: LookUp) {
        let mut held = self.held.lock();
        match held.len() < MOST_HELD {
            true => held.push(look_up),
            false => _ = self.lost.fetch_add(1, Ordering::Relaxed),
        }
    }
}
