//! When cached blocks are to be moved closer together.
//!
//! Idea: it costs a copy of all that is cached, so it has to be worth it. What the process takes beside what
//! pools hold says how much may lie free between blocks; but requests under way and the tables of a scrub are
//! in it, too. So it is tried when that is an eighth of what pools may hold, and again only when it has grown
//! by half as much since.

use super::{BESIDE_BYTES, Balance, Freed};

/// What lies beside, as a part of what pools may hold, before anything is done.
const SHARE: u64 = 8;
/// Looks at memory between one time and the next: ten seconds.
const LOOKS: u32 = 40;

/// Decides, once a look at memory.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    looks: u32,
    /// The least that was beside since the last time; 0 before the first.
    least_bytes: u64,
}

impl Gathering {
    /// Whether it is time.
    pub(super) fn is_due(&mut self, freed: Freed, balance: Balance) -> bool {
        let Balance { target_bytes, beside_bytes } = balance;
        self.looks = self.looks.saturating_add(1);
        self.least_bytes = self.least_bytes.min(beside_bytes);
        let share = target_bytes / SHARE;
        let is_much = beside_bytes >= BESIDE_BYTES.saturating_add(share);
        let has_grown = beside_bytes >= self.least_bytes.saturating_add(share / 2);
        // Where there is room, what was freed is kept for later.
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
        // How often, when so much is beside for so many looks.
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
