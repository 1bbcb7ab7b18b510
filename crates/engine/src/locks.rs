//! Locks shared by parts of the engine, and their order.
//!
//! ```text
//!   turn, names    await: one txg is written at a time; nobody opens what its tasks change
//!     Datasets     datasets open for writing; within it, a log's own locks and a live object set's
//!       Tasks      tasks queued for the open txg
//!       Config     the pool's configuration
//!       Carried    state carried from one txg to the next
//!       OnDisk     the pool as of the last txg; within it, the allocator's own locks
//! ```
//!
//! Idea: a holder only takes locks further down, so there is no deadlock. None is held across an await, so
//! debug builds track each thread's locks and panic when one is taken out of order.
//!
//! Source: our own; compare Linux's `lockdep`.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};

/// Locks, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Datasets,
    Tasks,
    Config,
    Carried,
    OnDisk,
}

pub(crate) struct Ranked<L> {
    rank: Rank,
    lock: L,
}

pub(crate) struct Held<G> {
    guard: G,
    // Dropped after the guard.
    _note: Note,
}

impl<L> Ranked<L> {
    pub(crate) fn new<T>(rank: Rank, value: T) -> Ranked<L>
    where
        L: From<T>,
    {
        Ranked { rank, lock: value.into() }
    }
}

impl<T> Ranked<Mutex<T>> {
    #[track_caller]
    pub(crate) fn lock(&self) -> Held<MutexGuard<'_, T>> {
        let note = Note::of(self.rank);
        Held { guard: self.lock.lock(), _note: note }
    }
}

impl<T> Ranked<RwLock<T>> {
    #[track_caller]
    pub(crate) fn read(&self) -> Held<RwLockReadGuard<'_, T>> {
        let note = Note::of(self.rank);
        Held { guard: self.lock.read(), _note: note }
    }

    #[track_caller]
    pub(crate) fn write(&self) -> Held<RwLockWriteGuard<'_, T>> {
        let note = Note::of(self.rank);
        Held { guard: self.lock.write(), _note: note }
    }
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(not(debug_assertions))]
struct Note;

#[cfg(not(debug_assertions))]
impl Note {
    fn of(_rank: Rank) -> Note {
        Note
    }
}

#[cfg(debug_assertions)]
struct Note(Rank);

#[cfg(debug_assertions)]
thread_local! {
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(debug_assertions)]
impl Note {
    #[track_caller]
    fn of(rank: Rank) -> Note {
        let last = HELD.with_borrow(|held| held.iter().copied().max());
        assert!(last.is_none_or(|last| last < rank), "{rank:?} is locked while {last:?} is held");
        HELD.with_borrow_mut(|held| held.push(rank));
        Note(rank)
    }
}

#[cfg(debug_assertions)]
impl Drop for Note {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            if let Some(at) = held.iter().rposition(|rank| *rank == self.0) {
                held.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks() -> (Ranked<RwLock<u8>>, Ranked<Mutex<u8>>) {
        (Ranked::new(Rank::Datasets, 1), Ranked::new(Rank::Config, 2))
    }

    #[test]
    fn locks_are_taken_in_order_and_given_back_in_any() {
        let (first, second) = locks();
        let outer = first.write();
        let inner = second.lock();
        drop(outer);
        assert_eq!(*inner, 2);
        drop(inner);
        assert_eq!(*first.read(), 1);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Datasets is locked while Some(Config) is held")]
    fn a_lock_out_of_order_is_found_though_nobody_waits_for_it() {
        let (first, second) = locks();
        let _inner = second.lock();
        drop(first.read());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Config is locked while Some(Config) is held")]
    fn a_lock_that_is_held_is_not_taken_again() {
        let (_, lock) = locks();
        let _first = lock.lock();
        drop(lock.lock());
    }
}
