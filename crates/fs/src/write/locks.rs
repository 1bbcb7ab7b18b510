//! Locks on objects.
//!
//! Idea: a fixed number of locks, each for all objects whose numbers fall on it; an operation takes all it needs at once and in
//! their order, so that no two wait for each other. Unrelated objects seldom share one, and if so only wait.

use cenote_format::units::ObjectId;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks: a power of two, many more than operations run at a time.
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

    /// Holds an object still, beside others that only look at it.
    pub(super) async fn shared(&self, object: ObjectId) -> RwLockReadGuard<'_, ()> {
        self.0[index(object)].read().await
    }

    /// Holds objects to change them. Whoever holds any must not ask for more.
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
    // Objects made together have neighbouring numbers: those fall on different locks.
    object.0 as usize % LOCKS
}
