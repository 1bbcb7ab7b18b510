//! Ranges of a volume being changed.
//!
//! Idea: writers of whole blocks merely replace them and may run concurrently. A writer of a partial block
//! reads it first, and must exclude others until the new block is in place. So a range is taken shared for
//! whole blocks and exclusively otherwise; only overlapping ranges wait.
//!
//! Locking: the list is locked for one look, never across an await. A task holds one range, or two taken in
//! the order of data sets and offsets (`clone`).
//!
//! Source: OpenZFS's `zfs_rlock.c` serves the same purpose; the mechanism is our own.

use std::ops::Range;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Ranges taken, and a notice when one is released.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    taken: Mutex<Vec<(Range<u64>, Share)>>,
    given_back: Notify,
}

/// How a range is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// Shared with other writers of whole blocks.
    Side,
    /// Exclusive.
    Alone,
}

/// A range taken until dropped.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    ranges: &'a Ranges,
    range: Range<u64>,
    share: Share,
}

impl Ranges {
    /// Takes a range once no conflicting one overlaps it.
    pub(super) async fn take(&self, range: Range<u64>, share: Share) -> Taken<'_> {
        loop {
            // Registered before the check, so that no release is missed.
            let given_back = self.given_back.notified();
            let mut given_back = std::pin::pin!(given_back);
            given_back.as_mut().enable();
            {
                let mut taken = self.taken.lock();
                let meets = |(other, theirs): &(Range<u64>, Share)| {
                    let apart = other.end <= range.start || range.end <= other.start;
                    !apart && (share == Share::Alone || *theirs == Share::Alone)
                };
                if !taken.iter().any(meets) {
                    taken.push((range.clone(), share));
                    return Taken { ranges: self, range, share };
                }
            }
            given_back.await;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut taken = self.ranges.taken.lock();
        let is_this = |other: &(Range<u64>, Share)| other.0 == self.range && other.1 == self.share;
        if let Some(index) = taken.iter().position(is_this) {
            taken.swap_remove(index);
        }
        drop(taken);
        self.ranges.given_back.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn only_ranges_that_meet_wait() {
        let ranges = Ranges::default();
        let now = |range, share| ranges.take(range, share).now_or_never();
        let part = now(0..10, Share::Alone).unwrap();
        assert!(now(9..12, Share::Side).is_none() && now(0..1, Share::Alone).is_none());
        let beside = [now(10..20, Share::Side).unwrap(), now(15..30, Share::Side).unwrap()];
        assert!(now(29..31, Share::Alone).is_none());
        drop(beside);
        drop(part);
        assert!(now(0..31, Share::Alone).is_some());
    }

    #[test]
    fn who_waits_hears_of_what_is_given_back() {
        let ranges = Ranges::default();
        let first = ranges.take(0..10, Share::Alone).now_or_never().unwrap();
        let mut second = Box::pin(ranges.take(5..6, Share::Side));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert!(second.now_or_never().is_some());
    }
}
