//! What a leaf has accepted and no flush has made durable, and who loses something if it never is.
//!
//! Idea: a system tells of a failed flush *once*. Linux takes the pages that it could not write for clean
//! then, and the next flush succeeds; a disk that drops its write cache does the same. So the leaf remembers,
//! not the caller: each write says what is at [`Stake`], a failure makes all that was unflushed missed (DTL)
//! and lost, and everybody who flushes later is told by what they wrote, not by what the device answers them.
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
//! Locking: one mutex, taken twice a write and twice a flush, for a look at a handful of entries.
//!
//! Source: Linux `errseq_t` (`file_check_and_advance_wb_err`); OpenZFS `vdev_dtl_dirty`.

use cenote_device::DeviceError;
use cenote_format::units::{PhysicalBirth, TXG_INITIAL, Txg};
use parking_lot::Mutex;

/// Failures whose txgs are remembered; flushes ask for the last few txgs only.
const LOST_RUNS: usize = 8;

/// What is lost with a write that does not last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stake {
    first: Txg,
    last: Txg,
    is_tree: bool,
}

impl Stake {
    /// A block of a txg's tree. The flush of that txg must not succeed without it.
    pub(crate) fn tree(txg: Txg) -> Stake {
        Stake { first: txg, last: txg, is_tree: true }
    }

    /// Blocks of any age, which the tree of a txg has in a new place.
    pub(crate) fn copied(txg: Txg) -> Stake {
        Stake { first: TXG_INITIAL, last: txg, is_tree: true }
    }

    /// A block born in `birth`, where it had been lacking or wrong. `next` is the txg that is written next:
    /// a leaf that lacks something of it is not made complete by a scan under way.
    pub(crate) fn repair(birth: PhysicalBirth, next: Txg) -> Stake {
        let first = if birth == PhysicalBirth::UNKNOWN { TXG_INITIAL } else { birth.txg().min(next) };
        Stake { first, last: next, is_tree: false }
    }

    /// Nothing: what is in no use.
    pub(crate) const NOTHING: Stake = Stake { first: Txg(0), last: Txg(0), is_tree: false };

    /// A log block, or labels. Only those who wait for it need it, and they ask by a [`FlushMark`].
    pub(crate) fn alone(txg: Txg) -> Stake {
        Stake { first: txg, last: txg, is_tree: false }
    }
}

/// A moment before which failed flushes are no concern of the writes that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushMark(pub(crate) u64);

/// The table of a leaf.
#[derive(Default)]
pub(crate) struct Unflushed(Mutex<State>);

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// Of trees, the last few.
    lost: Vec<(Txg, Txg)>,
    /// The number of the last failure among those of the pool, and what the device said.
    failed: Option<(u64, DeviceError)>,
}

/// Writes with the same last txg.
struct Entry {
    stake: Stake,
    /// Under way.
    writing: u32,
    /// Some are done, and no flush has begun since.
    is_done: bool,
    /// Some were done when the flush under way began.
    is_flushing: bool,
}

impl Unflushed {
    /// A write begins.
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

    /// It has ended, whatever came of it.
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

    /// Whether anything is done and not known to be durable.
    pub(crate) fn is_any(&self) -> bool {
        self.0.lock().entries.iter().any(|entry| entry.is_done || entry.is_flushing)
    }

    /// A flush begins, which covers all that is done. Answers whether that is anything.
    pub(crate) fn begin_flush(&self) -> bool {
        let mut state = self.0.lock();
        let done = state.entries.iter_mut().filter(|entry| entry.is_done);
        done.map(|entry| (entry.is_done, entry.is_flushing) = (false, true)).count() > 0
    }

    /// It has succeeded.
    pub(crate) fn flushed(&self) {
        let mut state = self.0.lock();
        state.entries.iter_mut().for_each(|entry| entry.is_flushing = false);
        state.entries.retain(|entry| !entry.is_settled());
    }

    /// The device may have lost all that no flush has made durable, writes under way included. Answers the
    /// txgs, first and last, of which something is missed; none if there was nothing.
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

    /// The blocks of a txg are written once more: what was lost of it is no loss. Answers whether that was
    /// all that was lost of it.
    pub(crate) fn forget_lost(&self, txg: Txg) -> bool {
        let mut state = self.0.lock();
        state.lost.retain(|run| *run != (txg, txg));
        !state.lost.iter().any(|&(first, last)| (first..=last).contains(&txg))
    }

    /// Why some of a txg's tree is not durable, if a failure has lost it.
    pub(crate) fn lost_of(&self, txg: Txg) -> Option<DeviceError> {
        let state = self.0.lock();
        let is_lost = state.lost.iter().any(|&(first, last)| (first..=last).contains(&txg));
        state.failed.as_ref().filter(|_| is_lost).map(|(_, error)| error.clone())
    }

    /// The same of what was written since a moment.
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
