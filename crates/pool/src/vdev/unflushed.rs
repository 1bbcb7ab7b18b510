//! Tracks writes that no flush has made durable, and the txgs at stake if lost.
//!
//! Idea: a system reports a failed flush *once*. Linux then marks the unwritten pages as clean, and the next
//! flush succeeds; a disk that drops its write cache does the same. So the leaf remembers the failure: each
//! write declares its [`Stake`], a failure marks all unflushed writes as missed (DTL) and lost, and later
//! flushes are judged by the caller's writes, not by the device's answer.
//!
//! ```text
//!   write of txg N, log block    |- unflushed: N, log
//!   the log's flush fails        |- missed: N; lost: N; one more failure
//!   the flush of txg N           '- "lost", although the device has nothing left to flush
//! ```
//!
//! Invariants: a write is in the table from before it begins until a flush that began after its end has
//! succeeded, or until it is lost. A range of txgs may be too wide, never too narrow.
//!
//! Locking: one mutex, taken twice per write and per flush, for a handful of entries.
//!
//! Source: Linux `errseq_t` (`file_check_and_advance_wb_err`); OpenZFS `vdev_dtl_dirty`.

use cenote_device::DeviceError;
use cenote_format::units::{PhysicalBirth, TXG_INITIAL, Txg};
use parking_lot::Mutex;

/// Flushes ask for the last few txgs only.
const LOST_RUNS: usize = 8;

/// The txgs affected by a lost write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stake {
    first: Txg,
    last: Txg,
    is_tree: bool,
}

impl Stake {
    /// Without this block the txg's flush must fail.
    pub(crate) fn tree(txg: Txg) -> Stake {
        Stake { first: txg, last: txg, is_tree: true }
    }

    /// Blocks of any age, moved by a txg.
    pub(crate) fn copied(txg: Txg) -> Stake {
        Stake { first: TXG_INITIAL, last: txg, is_tree: true }
    }

    /// A repaired block. A leaf that misses part of `next`, the next txg, is not declared complete by a
    /// running scan.
    pub(crate) fn repair(birth: PhysicalBirth, next: Txg) -> Stake {
        let first = if birth == PhysicalBirth::UNKNOWN { TXG_INITIAL } else { birth.txg().min(next) };
        Stake { first, last: next, is_tree: false }
    }

    /// Unused space.
    pub(crate) const NOTHING: Stake = Stake { first: Txg(0), last: Txg(0), is_tree: false };

    /// A log block, or labels; its waiter checks a [`FlushMark`].
    pub(crate) fn alone(txg: Txg) -> Stake {
        Stake { first: txg, last: txg, is_tree: false }
    }
}

/// Failed flushes before it do not affect later writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushMark(pub(crate) u64);

#[derive(Default)]
pub(crate) struct Unflushed(Mutex<State>);

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// Recent losses of trees.
    lost: Vec<(Txg, Txg)>,
    /// Number of the last failure within the pool, and its error.
    failed: Option<(u64, DeviceError)>,
}

/// Writes with the same last txg.
struct Entry {
    stake: Stake,
    /// Number under way.
    writing: u32,
    /// Some ended after the last flush began.
    is_done: bool,
    /// Some ended before the current flush.
    is_flushing: bool,
}

impl Unflushed {
    pub(crate) fn begin(&self, stake: Stake) {
        let mut state = self.0.lock();
        match state.entries.iter_mut().find(|entry| entry.is_of(stake)) {
            Some(entry) => {
                entry.writing += 1;
                entry.stake.first = entry.stake.first.min(stake.first);
            }
            None => state.entries.push(Entry { stake, writing: 1, is_done: false, is_flushing: false }),
        }
    }

    /// A write has ended, successfully or not.
    pub(crate) fn end(&self, stake: Stake, is_durable: bool) {
        let mut state = self.0.lock();
        let at = state.entries.iter().position(|entry| entry.is_of(stake));
        let Some(at) = at else { return debug_assert!(false, "{stake:?} has begun, and was not kept") };
        let entry = &mut state.entries[at];
        entry.writing -= 1;
        entry.is_done |= !is_durable;
        if entry.is_settled() {
            state.entries.swap_remove(at);
        }
    }

    /// Whether any ended write may not be durable.
    pub(crate) fn is_any(&self) -> bool {
        self.0.lock().entries.iter().any(|entry| entry.is_done || entry.is_flushing)
    }

    /// Returns whether there are writes to flush.
    pub(crate) fn begin_flush(&self) -> bool {
        let mut state = self.0.lock();
        let done = state.entries.iter_mut().filter(|entry| entry.is_done);
        done.map(|entry| (entry.is_done, entry.is_flushing) = (false, true)).count() > 0
    }

    pub(crate) fn flushed(&self) {
        let mut state = self.0.lock();
        state.entries.iter_mut().for_each(|entry| entry.is_flushing = false);
        state.entries.retain(|entry| !entry.is_settled());
    }

    /// All unflushed writes are lost, including those under way. Returns the missed txgs, first and last.
    pub(crate) fn lose(&self, number: impl FnOnce() -> u64, error: &DeviceError) -> Vec<(Txg, Txg)> {
        let state = &mut *self.0.lock();
        if state.entries.is_empty() {
            return Vec::new();
        }
        let runs = |entry: &Entry| (entry.stake.first, entry.stake.last);
        let missed = state.entries.iter().filter(|entry| !entry.is_of(Stake::NOTHING)).map(runs).collect();
        state.lost.extend(state.entries.iter().filter(|entry| entry.stake.is_tree).map(runs));
        let old = state.lost.len().saturating_sub(LOST_RUNS);
        state.lost.drain(..old);
        for entry in &mut state.entries {
            (entry.is_done, entry.is_flushing) = (false, false);
        }
        state.entries.retain(|entry| !entry.is_settled());
        state.failed = Some((number(), error.clone()));
        missed
    }

    /// Forgets losses of a rewritten txg. Returns whether that covers all.
    pub(crate) fn forget_lost(&self, txg: Txg) -> bool {
        let mut state = self.0.lock();
        state.lost.retain(|run| *run != (txg, txg));
        !state.lost.iter().any(|&(first, last)| (first..=last).contains(&txg))
    }

    /// Why some of a txg's tree is not durable.
    pub(crate) fn lost_of(&self, txg: Txg) -> Option<DeviceError> {
        let state = self.0.lock();
        let is_lost = state.lost.iter().any(|&(first, last)| (first..=last).contains(&txg));
        state.failed.as_ref().filter(|_| is_lost).map(|(_, error)| error.clone())
    }

    /// Why a write since `mark` is not durable.
    pub(crate) fn lost_since(&self, mark: FlushMark) -> Option<DeviceError> {
        let state = self.0.lock();
        state.failed.as_ref().filter(|(number, _)| *number > mark.0).map(|(_, error)| error.clone())
    }
}

impl Entry {
    fn is_of(&self, stake: Stake) -> bool {
        (self.stake.last, self.stake.is_tree) == (stake.last, stake.is_tree)
    }

    fn is_settled(&self) -> bool {
        self.writing == 0 && !self.is_done && !self.is_flushing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;
    use std::sync::Arc;

    fn eio() -> DeviceError {
        let source = Arc::new(Error::from_raw_os_error(5));
        DeviceError::Io { path: "disk".into(), op: cenote_device::Op::Flush, offset: 0, len: 0, source }
    }

    fn write(unflushed: &Unflushed, stake: Stake) {
        unflushed.begin(stake);
        unflushed.end(stake, false);
    }

    fn is_lost(unflushed: &Unflushed, txg: u64) -> bool {
        unflushed.lost_of(Txg(txg)).is_some()
    }

    #[test]
    fn a_failure_takes_all_that_was_unflushed_and_nothing_that_was_not() {
        let unflushed = Unflushed::default();
        write(&unflushed, Stake::tree(Txg(4)));
        assert!(unflushed.begin_flush());
        unflushed.flushed();
        assert!(!unflushed.is_any() && !unflushed.begin_flush());
        write(&unflushed, Stake::tree(Txg(5)));
        write(&unflushed, Stake::alone(Txg(6)));
        write(&unflushed, Stake::repair(PhysicalBirth(2), Txg(7)));
        let missed = unflushed.lose(|| 1, &eio());
        assert_eq!(missed, [(5, 5), (6, 6), (2, 7)].map(|(first, last)| (Txg(first), Txg(last))));
        assert!(!is_lost(&unflushed, 4) && is_lost(&unflushed, 5));
        assert!(!is_lost(&unflushed, 6), "the tree of the txg is whole");
        assert!(!unflushed.is_any(), "the device takes it for written");
        let since = |mark| unflushed.lost_since(FlushMark(mark));
        assert!(since(0).is_some() && since(1).is_none());
        assert!(unflushed.lose(|| unreachable!(), &eio()).is_empty());
    }

    #[test]
    fn a_write_that_ends_during_a_flush_waits_for_the_next() {
        let (unflushed, stake) = (Unflushed::default(), Stake::tree(Txg(9)));
        write(&unflushed, stake);
        unflushed.begin(stake);
        assert!(unflushed.begin_flush());
        unflushed.end(stake, false);
        unflushed.flushed();
        assert!(unflushed.is_any());
        unflushed.begin(stake);
        assert_eq!(unflushed.lose(|| 1, &eio()), [(Txg(9), Txg(9))]);
        unflushed.end(stake, false);
        assert!(unflushed.is_any() && is_lost(&unflushed, 9), "half of it may be lost");
    }
}
