//! Locks on objects.
//!
//! Idea: a fixed number of locks, each shared by all objects whose numbers map to it. Unrelated objects
//! seldom share a lock, and if so one merely waits.
//!
//! Locking: an operation takes all its locks in one call, which sorts them by index and takes each once, so
//! no two operations can deadlock. A holder must release its locks before it asks for others.

use cenote_format::units::ObjectId;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of locks: a power of two, many more than concurrent operations.
const LOCKS: usize = 1024;

pub(super) struct Locks(Box<[RwLock<()>]>);

/// Locks held until dropped.
pub(super) struct Held<'a> {
    #[allow(dead_code, reason = "held for being dropped")]
    guards: Vec<RwLockWriteGuard<'a, ()>>,
}

impl Locks {
    pub(super) fn new() -> Locks {
        Locks((0..LOCKS).map(|_| RwLock::new(())).collect())
    }

    /// Locks an object against changes; others may read it concurrently.
    pub(super) async fn shared(&self, object: ObjectId) -> RwLockReadGuard<'_, ()> {
        self.0[index(object)].read().await
    }

    /// Locks objects for changes. The caller must not hold any other.
    pub(super) async fn exclusive(&self, objects: &[ObjectId]) -> Held<'_> {
        let mut order: Vec<usize> = objects.iter().copied().map(index).collect();
        order.sort_unstable();
        order.dedup();
        let mut guards = Vec::with_capacity(order.len());
        for index in order {
            guards.push(self.0[index].write().await);
        }
        Held { guards }
    }
}

fn index(object: ObjectId) -> usize {
    // Objects created together have adjacent numbers, which map to different locks.
    object.0 as usize % LOCKS
}
