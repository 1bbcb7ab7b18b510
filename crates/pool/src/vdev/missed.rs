//! The txgs that leaves missed: those in which a write did not reach a leaf that should have it.
//!
//! The engine adds them to the leaves' dirty time logs (DTL), which tell a resilver what to copy.
//!
//! Locking: a mutex guards the table; each method takes it once, and no other lock is taken while it is
//! held. A poisoned mutex is used all the same: the table is complete after every step.

use cenote_format::units::{Guid, Txg};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// By leaf, runs of txgs: the first and the last of each, ascending and separate.
pub(crate) type MissedTxgs = BTreeMap<Guid, Vec<(Txg, Txg)>>;

/// Txgs that leaves missed since the pool was assembled.
#[derive(Default)]
pub(crate) struct Missed(Mutex<MissedTxgs>);

impl Missed {
    /// Records that the leaf lacks something of this txg.
    pub(crate) fn note(&self, leaf: Guid, txg: Txg) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = all.entry(leaf).or_default();
        if runs.iter().any(|&(first, last)| first <= txg && txg <= last) {
            return;
        }
        runs.push((txg, txg));
        runs.sort_unstable();
        runs.dedup_by(|later, run| {
            let joins = later.0.0 <= run.1.0 + 1;
            run.1 = if joins { later.1 } else { run.1 };
            joins
        });
    }

    pub(crate) fn has(&self, leaf: Guid, txg: Txg) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&leaf).is_some_and(|runs| runs.iter().any(|&(first, last)| first <= txg && txg <= last))
    }

    pub(crate) fn all(&self) -> MissedTxgs {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_groups_become_one_run() {
        let missed = Missed::default();
        for txg in [10, 11, 20, 12, 21, 11, 19, 40] {
            missed.note(Guid(1), Txg(txg));
        }
        missed.note(Guid(2), Txg(3));
        let run = |a, b| (Txg(a), Txg(b));
        assert_eq!(missed.all()[&Guid(1)], [run(10, 12), run(19, 21), run(40, 40)]);
        assert_eq!(missed.all()[&Guid(2)], [run(3, 3)]);
    }
}
