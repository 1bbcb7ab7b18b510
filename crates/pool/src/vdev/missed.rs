//! The txgs that leaves missed: the data that a leaf lacks, by birth txg.
//!
//! Idea: one table for the life of a pool. It starts from the leaves' dirty time logs (DTL). A write that
//! does not reach a leaf adds its txg; a resilver removes the txgs that it completed. The engine keeps the
//! DTLs equal to the table. Reads avoid a leaf for a block that it may lack.
//!
//! A txg whose flush failed may be rewritten (`suspend`). Its flush then considers only misses since the
//! rewrite began; the table keeps the earlier ones too.
//!
//! Locking: one lock guards the table, others the txg being rewritten and the ends of resilvers; no two are
//! held together. `any` spares readers of a complete pool the lock; it is set before a missed write is
//! reported as done.

use super::unflushed::FlushMark;
use cenote_format::units::{Guid, PhysicalBirth, Txg};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs of txgs (first, last), ascending and separate. No leaf without runs.
pub(crate) type MissedTxgs = BTreeMap<Guid, Vec<(Txg, Txg)>>;

#[derive(Default)]
pub(crate) struct Missed {
    any: AtomicBool,
    table: RwLock<MissedTxgs>,
    failures: AtomicU64,
    /// A txg being rewritten, and leaves that missed part of it since.
    again: RwLock<Option<(Txg, BTreeSet<Guid>)>>,
    /// The txg in which a leaf's last resilver ended. It brought what was in use then, and nothing that only
    /// older states have.
    brought: RwLock<BTreeMap<Guid, Txg>>,
}

impl Missed {
    pub(crate) fn of(table: MissedTxgs) -> Missed {
        let missed = Missed::default();
        for (leaf, runs) in table {
            runs.into_iter().for_each(|run| missed.note_all(leaf, run));
        }
        missed
    }

    pub(crate) fn mark(&self) -> FlushMark {
        FlushMark(self.failures.load(Ordering::Acquire))
    }

    pub(crate) fn next_failure(&self) -> u64 {
        self.failures.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn note(&self, leaf: Guid, txg: Txg) {
        self.note_all(leaf, (txg, txg));
    }

    pub(crate) fn note_all(&self, leaf: Guid, (first, last): (Txg, Txg)) {
        if let Some((txg, leaves)) = &mut *self.again.write()
            && (first..=last).contains(txg)
        {
            leaves.insert(leaf);
        }
        let mut table = self.table.write();
        let runs = table.entry(leaf).or_default();
        if runs.iter().any(|run| run.0 <= first && last <= run.1) {
            return;
        }
        runs.push((first, last));
        runs.sort_unstable();
        runs.dedup_by(|later, run| {
            let joins = later.0.0 <= run.1.0.saturating_add(1);
            run.1 = if joins { run.1.max(later.1) } else { run.1 };
            joins
        });
        self.any.store(true, Ordering::Release);
    }

    /// Removes txgs that a resilver completed, which ended in the txg `now`.
    pub(crate) fn take_out(&self, leaf: Guid, upto: Txg, now: Txg) {
        self.brought.write().insert(leaf, now);
        let mut table = self.table.write();
        let Some(runs) = table.get_mut(&leaf) else { return };
        runs.retain_mut(|run| {
            run.0 = run.0.max(Txg(upto.0 + 1));
            run.0 <= run.1
        });
        if runs.is_empty() {
            table.remove(&leaf);
        }
    }

    /// Whether a leaf may lack blocks that the state of a txg has, and later ones no longer.
    pub(crate) fn was_behind_at(&self, leaf: Guid, state: Txg) -> bool {
        self.brought.read().get(&leaf).is_some_and(|ended| state < *ended)
    }

    pub(crate) fn keep_only(&self, leaves: &BTreeSet<Guid>) {
        self.brought.write().retain(|leaf, _| leaves.contains(leaf));
        self.table.write().retain(|leaf, _| leaves.contains(leaf));
    }

    /// Whether a leaf may lack this birth, or any if [`PhysicalBirth::UNKNOWN`].
    pub(crate) fn has(&self, leaf: Guid, birth: PhysicalBirth) -> bool {
        let is_in = |runs: &Vec<(Txg, Txg)>| {
            birth == PhysicalBirth::UNKNOWN
                || runs.iter().any(|&(first, last)| (first..=last).contains(&birth.txg()))
        };
        self.any.load(Ordering::Acquire) && self.table.read().get(&leaf).is_some_and(is_in)
    }

    /// Whether a leaf lacks any of these txgs.
    pub(crate) fn has_any(&self, leaf: Guid, (first, last): (Txg, Txg)) -> bool {
        let is_in = |runs: &Vec<(Txg, Txg)>| runs.iter().any(|run| run.0 <= last && first <= run.1);
        self.any.load(Ordering::Acquire) && self.table.read().get(&leaf).is_some_and(is_in)
    }

    /// Starts the rewrite of a txg, or ends it.
    pub(crate) fn begin_again(&self, txg: Option<Txg>) {
        *self.again.write() = txg.map(|txg| (txg, BTreeSet::new()));
    }

    /// For a txg being rewritten, only misses since the rewrite began count.
    pub(crate) fn has_not_taken(&self, leaf: Guid, (first, last): (Txg, Txg)) -> bool {
        match &*self.again.read() {
            Some((txg, leaves)) if (first, last) == (*txg, *txg) => leaves.contains(&leaf),
            _ => self.has_any(leaf, (first, last)),
        }
    }

    pub(crate) fn is_behind(&self, leaf: Guid) -> bool {
        self.any.load(Ordering::Acquire) && self.table.read().contains_key(&leaf)
    }

    pub(crate) fn of_leaf(&self, leaf: Guid) -> Vec<(Txg, Txg)> {
        self.table.read().get(&leaf).cloned().unwrap_or_default()
    }

    pub(crate) fn all(&self) -> MissedTxgs {
        self.table.read().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_brought_is_missed_no_more_and_what_was_missed_since_is() {
        let (missed, run) = (Missed::default(), |a, b| (Txg(a), Txg(b)));
        missed.note_all(Guid(1), run(4, 12));
        missed.note_all(Guid(1), run(20, 21));
        missed.take_out(Guid(1), Txg(20), Txg(22));
        assert_eq!(missed.of_leaf(Guid(1)), [run(21, 21)]);
        assert!(missed.has(Guid(1), PhysicalBirth(21)) && !missed.has(Guid(1), PhysicalBirth(12)));
        assert!(missed.has(Guid(1), PhysicalBirth::UNKNOWN) && !missed.has(Guid(2), PhysicalBirth::UNKNOWN));
        missed.take_out(Guid(1), Txg(21), Txg(24));
        assert!(!missed.is_behind(Guid(1)) && missed.all().is_empty());
        assert!(missed.was_behind_at(Guid(1), Txg(23)) && !missed.was_behind_at(Guid(1), Txg(24)));
        assert!(!missed.was_behind_at(Guid(2), Txg(0)));
    }

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
