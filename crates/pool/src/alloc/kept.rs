//! Space that is freed stays as it is for readers of an older state of the pool.
//!
//! Idea: every txg on disk is a tree. A reader of a tree holds a [`KeptSpace`], and space that a later txg
//! frees is not allocated again before that is dropped. So holding it costs one reference, a reader of a
//! recent state holds nothing back that one of an older state does not, and readers that follow one another
//! hold nothing back for long.
//!
//! ```text
//!   tree of txg     7      8         9      10       newest
//!   held by         -      verify    -      cat, ls
//!   freed in        <=8: allocatable 9, 10: waits for verify, if it was there in 8
//! ```
//!
//! A block waits only for states that it was in: it was written before them, and freed after them. So a
//! reader that takes hours keeps no more than what there was when it began, however often that is written
//! over.
//!
//! A pool that is short of space gives up what is kept ([`Keeper::give_up`]), because clients' writes come
//! first. A reader then finds that it is so, and that what it met may be no damage. Only what writes to the
//! blocks that it has found (scrubs, resilvers) keeps space come what may; it holds it for seconds.
//!
//! Locking: a lock guards the list of states; it is held for a clone or for one look, and no other is taken
//! meanwhile. A state is given up before any of its space is: a reader that was overtaken sees the mark.

use cenote_format::units::{PhysicalBirth, Txg};
use parking_lot::RwLock;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Txgs for which freed space is kept even if nobody reads it, `TXG_DEFER_SIZE`.
pub const TXG_DEFER_SIZE: usize = 2;

/// Keeps all that the tree of a txg refers to from being allocated again, until dropped.
pub struct KeptSpace {
    state: Arc<State>,
    is_firm: bool,
}

/// The tree of a txg, and for those who look while the next one is written, that one's.
#[derive(Debug, Default)]
struct State {
    txg: Txg,
    /// The next one on disk, once it is.
    next: AtomicU64,
    /// Holders that it can't be taken from.
    firm: AtomicUsize,
    is_given_up: AtomicBool,
}

impl KeptSpace {
    fn of(state: &Arc<State>, is_firm: bool) -> KeptSpace {
        if is_firm {
            state.firm.fetch_add(1, Ordering::AcqRel);
        }
        KeptSpace { state: state.clone(), is_firm }
    }

    /// Whether space of this state may have been allocated again by now, although this is held.
    pub fn is_given_up(&self) -> bool {
        self.state.is_given_up.load(Ordering::Acquire)
    }
}

impl Clone for KeptSpace {
    fn clone(&self) -> KeptSpace {
        KeptSpace::of(&self.state, self.is_firm)
    }
}

impl Drop for KeptSpace {
    fn drop(&mut self) {
        if self.is_firm {
            self.state.firm.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl std::fmt::Debug for KeptSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptSpace(txg {})", self.state.txg)
    }
}

/// The states of a pool that readers hold.
#[derive(Debug, Default)]
pub(crate) struct Keeper(RwLock<States>);

#[derive(Debug, Default)]
struct States {
    /// Of the last txg on disk.
    newest: Arc<State>,
    /// The two on disk before, the later one first.
    before: [Txg; TXG_DEFER_SIZE],
    /// Those before, as far as somebody holds them; ascending.
    older: Vec<Arc<State>>,
}

/// Txgs whose trees are held.
#[derive(Debug)]
pub(crate) struct Held {
    /// The one on disk before, held or not.
    pub(super) latest: Txg,
    /// What was freed up to this txg has waited long enough.
    pub(super) settled: Txg,
    txgs: Vec<Txg>,
}

impl Held {
    /// Whether one of these is held.
    pub(super) fn has_any_of(&self, txgs: &Range<u64>) -> bool {
        self.txgs.iter().any(|txg| txgs.contains(&txg.0))
    }
}

impl Keeper {
    /// The state of the last txg on disk is kept from now on.
    pub(crate) fn keep(&self, is_firm: bool) -> KeptSpace {
        KeptSpace::of(&self.0.read().newest, is_firm)
    }

    /// A txg is on disk. Answers the states before it that are held.
    pub(crate) fn finish(&self, txg: Txg) -> Held {
        let mut states = self.0.write();
        let newest = Arc::new(State { txg, ..State::default() });
        let before = std::mem::replace(&mut states.newest, newest);
        let settled = states.before[0];
        states.before = [before.txg, settled];
        before.next.store(txg.0, Ordering::Release);
        states.older.push(before);
        states.older.retain(is_held);
        let txgs = states.older.iter().map(|state| state.txg).collect();
        Held { latest: states.before[0], settled, txgs }
    }

    /// The states that are held now, the newest one included.
    pub(super) fn held(&self) -> Held {
        let states = self.0.read();
        let all = states.older.iter().chain([&states.newest]).filter(|state| is_held(state));
        let txgs = all.map(|state| state.txg).collect();
        Held { latest: states.newest.txg, settled: states.newest.txg, txgs }
    }

    /// Whether a state before the newest one is held that may have a block which lies there since txg
    /// `birth`.
    pub(super) fn holds_since(&self, birth: PhysicalBirth) -> bool {
        self.0.read().older.last().is_some_and(|latest| birth.0 <= latest.next.load(Ordering::Acquire))
    }

    /// Whether nothing that the tree of a txg refers to has been allocated again, though nobody holds it.
    pub(crate) fn is_recent(&self, txg: Txg) -> bool {
        self.0.read().before[TXG_DEFER_SIZE - 1] <= txg
    }

    /// Whether somebody holds a state before that of a txg.
    pub(super) fn holds_before(&self, txg: Txg) -> bool {
        let states = self.0.read();
        states.older.iter().chain([&states.newest]).any(|state| state.txg < txg && is_held(state))
    }

    /// Takes all that is kept of older states from their holders, but for those who keep it firmly. It
    /// becomes allocatable with the next txg.
    pub(super) fn give_up(&self) {
        let states = self.0.read();
        for state in states.older.iter().filter(|state| state.firm.load(Ordering::Acquire) == 0) {
            state.is_given_up.store(true, Ordering::Release);
        }
    }
}

/// Only clones of what is held can add holders to an older state.
fn is_held(state: &Arc<State>) -> bool {
    Arc::strong_count(state) > 1 && !state.is_given_up.load(Ordering::Acquire)
}
