//! The txgs that a device may lack after an absence.
//!
//! Idea: a dirty time log (DTL) lists the txgs that a device missed while *away*. It knows nothing of a
//! device used elsewhere meanwhile, where blocks of this pool were freed and overwritten, nor of an old copy
//! of a device. Leaves of a vdev get all uberblocks together, so the device's newest one tells the cases
//! apart:
//!
//! ```text
//!   newest uberblock of the device   may lack
//!     its siblings have it too         the DTL's txgs, and all after that uberblock
//!     too old to tell                  the same, if its DTL begins after that
//!     any other                        everything
//! ```
//!
//! Source: OpenZFS `vdev_dtl_load`, which trusts DTLs.

use super::FoundDevice;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{TXG_INITIAL, Txg};

/// Whether a device's siblings have passed through its newest state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// A sibling has that state, too, or none has a newer one.
    Shared,
    /// They have not: it was used without them.
    Apart,
    /// Their states of that time are no longer known.
    Unknown,
}

impl History {
    pub(crate) fn of(own: &[Uberblock], others: &[Uberblock]) -> History {
        let Some(own) = own.iter().max_by_key(|uberblock| uberblock.txg) else { return History::Unknown };
        let is_same = |other: &Uberblock| (other.txg, other.rootbp) == (own.txg, own.rootbp);
        if others.iter().all(|other| other.txg < own.txg) || others.iter().any(is_same) {
            return History::Shared;
        }
        match others.iter().any(|other| other.txg <= own.txg) {
            true => History::Apart,
            false => History::Unknown,
        }
    }
}

impl FoundDevice {
    /// The txgs, first and last, of which it may lack anything, given its DTL and the pool's newest txg.
    pub fn may_lack(&self, log: &[(Txg, Txg)], newest: Txg) -> Vec<(Txg, Txg)> {
        if !self.stale {
            return log.to_vec();
        }
        let begins_after = || log.first().is_some_and(|first| first.0 > self.uberblock_txg);
        let is_known = match self.history {
            History::Shared => true,
            History::Unknown => begins_after(),
            History::Apart => false,
        };
        if !is_known {
            return vec![(TXG_INITIAL, newest)];
        }
        let after = (Txg(self.uberblock_txg.0.saturating_add(1)), newest);
        log.iter().copied().chain((after.0 <= after.1).then_some(after)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_device::MemoryDevice;
    use std::sync::Arc;

    #[test]
    fn a_log_is_believed_only_of_a_device_that_was_merely_away() {
        let run = |first, last| (Txg(first), Txg(last));
        let (newest, log) = (Txg(90), [run(50, 60)]);
        let everything = vec![(TXG_INITIAL, newest)];
        let device = |history, uberblock_txg| {
            let device = FoundDevice::new(Arc::new(MemoryDevice::new("disk", 512)));
            FoundDevice { stale: true, history, uberblock_txg: Txg(uberblock_txg), ..device }
        };
        let of = |history, txg, log: &[(Txg, Txg)]| device(history, txg).may_lack(log, newest);
        assert_eq!(of(History::Shared, 49, &log), [run(50, 60), run(50, 90)]);
        assert_eq!(of(History::Shared, 40, &[]), [run(41, 90)], "an old copy");
        assert_eq!(of(History::Shared, 90, &log), log);
        assert_eq!(of(History::Unknown, 49, &log), [run(50, 60), run(50, 90)]);
        assert_eq!(of(History::Unknown, 50, &log), everything, "it was used in a txg that it missed");
        assert_eq!(of(History::Unknown, 40, &[]), everything);
        assert_eq!(of(History::Apart, 49, &log), everything);
        let current = FoundDevice { stale: false, ..device(History::Shared, 40) };
        assert_eq!(current.may_lack(&log, newest), log);
    }
}
