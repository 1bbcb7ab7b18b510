//! When to move cached blocks closer together.
//!
//! Idea: this copies the whole cache, so it must be worth it. Memory beside the pools indicates
//! fragmentation, but includes requests in flight and a scrub's tables. So gathering starts when it reaches
//! an eighth of the target, and again when it has grown by half as much since.

use super::{BESIDE_BYTES, Balance, Freed};

/// Memory beside the pools, as a fraction of the target, that starts gathering.
const SHARE: u64 = 8;
/// Minimum number of checks between gatherings: ten seconds.
const LOOKS: u32 = 40;

/// Decides at each check of memory.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    looks: u32,
    /// Minimum beside the pools since the last gathering; 0 before the first.
    least_bytes: u64,
}

impl Gathering {
    pub(super) fn is_due(&mut self, freed: Freed, balance: Balance) -> bool {
        let Balance { target_bytes, beside_bytes } = balance;
        self.looks = self.looks.saturating_add(1);
        self.least_bytes = self.least_bytes.min(beside_bytes);
        let share = target_bytes / SHARE;
        let is_much = beside_bytes >= BESIDE_BYTES.saturating_add(share);
        let has_grown = beside_bytes >= self.least_bytes.saturating_add(share / 2);
        // With room left, freed memory is kept for reuse.
        let is_due = freed != Freed::Kept && self.looks >= LOOKS && is_much && has_grown;
        if is_due {
            *self = Gathering { looks: 0, least_bytes: u64::MAX };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_again_only_when_it_may_help() {
        const MIB: u64 = 1 << 20;
        let mut gathering = Gathering::default();
        // Number of gatherings in that many checks with this much beside.
        let mut looks = |freed, beside: u64, looks: u32| {
            let balance = Balance { target_bytes: 800 * MIB, beside_bytes: beside * MIB };
            (0..looks).filter(|_| gathering.is_due(freed, balance)).count()
        };
        assert_eq!(looks(Freed::GoesSoon, 160, 1000), 0, "too little");
        assert_eq!(looks(Freed::Kept, 500, 1000), 0, "there is room");
        assert_eq!(looks(Freed::GoesAtOnce, 300, 1), 1);
        assert_eq!(looks(Freed::GoesAtOnce, 300, 1000), 0, "it did not help");
        assert_eq!(looks(Freed::GoesAtOnce, 349, 1000), 0);
        assert_eq!(looks(Freed::GoesSoon, 350, 1), 1, "more has come");
        assert_eq!(looks(Freed::GoesSoon, 80, 10), 0, "it helped");
        assert_eq!(looks(Freed::GoesSoon, 170, 25), 0, "too soon");
        assert_eq!(looks(Freed::GoesSoon, 170, 1000), 1);
    }
}
