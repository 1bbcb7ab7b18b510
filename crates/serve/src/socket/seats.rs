//! Seats for commands: how many run at a time, and for whom.
//!
//! Idea: a command that does not end, for whatever reason, keeps its seat. So one user gets some of them, and
//! all users together leave some for root and the daemon's user.
//!
//! Locking: `taken` for the time of counting; nothing else is locked meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Commands at a time.
const SEATS: usize = 256;
/// Of those, kept for root and the daemon's user.
const KEPT: usize = 64;
/// Commands of one other user at a time.
pub(super) const OF_ONE_USER: usize = 64;

/// All seats.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_user: BTreeMap<u32, usize>,
}

/// A command's seat, until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    /// None: the user is trusted.
    stranger: Option<u32>,
}

impl Seats {
    /// A seat, if there is one for this user. None: root, or the daemon's user.
    pub fn take(self: &Arc<Seats>, stranger: Option<u32>) -> Option<Seat> {
        let mut taken = self.taken.lock();
        if taken.all >= SEATS {
            return None;
        }
        if let Some(uid) = stranger {
            let of_strangers: usize = taken.by_user.values().sum();
            let of_user = taken.by_user.get(&uid).copied().unwrap_or_default();
            if of_strangers >= SEATS - KEPT || of_user >= OF_ONE_USER {
                return None;
            }
            taken.by_user.insert(uid, of_user + 1);
        }
        taken.all += 1;
        Some(Seat { seats: self.clone(), stranger })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.all -= 1;
        let Some(uid) = self.stranger else { return };
        if let Some(of_user) = taken.by_user.get_mut(&uid) {
            *of_user -= 1;
            if *of_user == 0 {
                taken.by_user.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_shares_and_root_always_finds_a_seat() {
        let seats = Arc::new(Seats::default());
        let of = |uid| std::iter::from_fn(|| seats.take(Some(uid))).collect::<Vec<_>>();
        let mut strangers = [1000, 1001, 1002, 1003].map(of);
        assert_eq!(strangers.each_ref().map(Vec::len), [64, 64, 64, 0]);
        let root: Vec<_> = std::iter::from_fn(|| seats.take(None)).collect();
        assert_eq!(root.len(), KEPT);
        drop(root);
        strangers[0].pop();
        assert!(seats.take(Some(1003)).is_some());
        drop(strangers);
        let taken = seats.taken.lock();
        assert_eq!((taken.all, taken.by_user.len()), (0, 0));
    }
}
