//! Keeps freed space from reuse while readers of older trees need it.
//!
//! Idea: every txg on disk is a tree. A reader of a tree holds a [`KeptSpace`], a reference. Space freed by a
//! later txg is not reused before that is dropped.
//!
//! ```text
//!   tree of txg     7      8         9      10       newest
//!   held by         -      verify    -      cat, ls
//!   freed in        <=8: allocatable 9, 10: waits for verify, if the block was in tree 8
//! ```
//!
//! A freed block waits only for trees that contain it, those after its birth and before its free. So a reader
//! of hours keeps at most the blocks that existed when it began.
//!
//! If a pool runs short of space, it revokes the kept space ([`Keeper::give_up`]), because clients' writes
//! come first. The reader then knows that a mismatch may not be damage. Only scrubs and resilvers, which
//! write to the blocks they find, keep space firmly, for seconds.
//!
//! Locking: a lock guards the list of states, held for a clone or one read; no other lock is taken under it.
//! A state is marked as given up before any of its space is reused, so an overtaken reader sees the mark.

use cenote_format::units::{PhysicalBirth, Txg};
use parking_lot::RwLock;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Txgs for which freed space is kept even without readers, `TXG_DEFER_SIZE`.
pub const TXG_DEFER_SIZE: usize = 2;

/// Keeps every block of a txg's tree from reuse, until dropped.
pub struct KeptSpace {
    state: Arc<State>,
    is_firm: bool,
}

/// A txg's tree and the next one's, for readers during its sync.
#[derive(Debug, Default)]
struct State {
    txg: Txg,
    /// The next txg on disk, once known.
    next: AtomicU64,
    /// Holders from which it cannot be revoked.
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

    /// Whether this state's space may have been reused although this is held.
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

#[derive(Debug, Default)]
pub(crate) struct Keeper(RwLock<States>);

#[derive(Debug, Default)]
struct States {
    newest: Arc<State>,
    /// The two txgs on disk before it, later first.
    before: [Txg; TXG_DEFER_SIZE],
    /// Held earlier states, ascending.
    older: Vec<Arc<State>>,
}

/// Held txgs.
#[derive(Debug)]
pub(crate) struct Held {
    /// The previous txg on disk.
    pub(super) latest: Txg,
    /// Frees up to this txg have waited long enough.
    pub(super) settled: Txg,
    txgs: Vec<Txg>,
}

impl Held {
    pub(super) fn has_any_of(&self, txgs: &Range<u64>) -> bool {
        self.txgs.iter().any(|txg| txgs.contains(&txg.0))
    }
}

impl Keeper {
    pub(crate) fn keep(&self, is_firm: bool) -> KeptSpace {
        KeptSpace::of(&self.0.read().newest, is_firm)
    }

    /// Returns the held earlier states.
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

    pub(super) fn held(&self) -> Held {
        let states = self.0.read();
        let all = states.older.iter().chain([&states.newest]).filter(|state| is_held(state));
        let txgs = all.map(|state| state.txg).collect();
        Held { latest: states.newest.txg, settled: states.newest.txg, txgs }
    }

    /// Whether an older state is held that may contain a block born in `birth`.
    pub(super) fn holds_since(&self, birth: PhysicalBirth) -> bool {
        self.0.read().older.last().is_some_and(|latest| birth.0 <= latest.next.load(Ordering::Acquire))
    }

    /// Whether a txg's tree is whole even without holders.
    pub(crate) fn is_recent(&self, txg: Txg) -> bool {
        self.0.read().before[TXG_DEFER_SIZE - 1] <= txg
    }

    pub(super) fn holds_before(&self, txg: Txg) -> bool {
        let states = self.0.read();
        states.older.iter().chain([&states.newest]).any(|state| state.txg < txg && is_held(state))
    }

    /// Revokes older states not firm; their space becomes allocatable with the next txg.
    pub(super) fn give_up(&self) {
        let states = self.0.read();
        for state in states.older.iter().filter(|state| state.firm.load(Ordering::Acquire) == 0) {
            state.is_given_up.store(true, Ordering::Release);
        }
    }
}

/// Only clones of a held state can add holders to an older state.
fn is_held(state: &Arc<State>) -> bool {
    Arc::strong_count(state) > 1 && !state.is_given_up.load(Ordering::Acquire)
}
