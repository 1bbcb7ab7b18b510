//! Times of txgs, by which a scrub of a range of dates finds its txgs.
//!
//! ```text
//!   MOS directory   com.klarasystems:txg_log_time:minutes, :days, :months: three rings of 515 words
//!   ring            | head | tail | length | 256 slots of (seconds since 1970, txg) |
//!                     oldest  next
//! ```
//!
//! Idea: a month's first txg goes to the ring of months, else a day's first to that of days, any other to
//! that of minutes; the oldest make room. So 256 noted txgs of the last days, 256 days and 256 months remain.
//! The log is best effort: it has gaps while the pool was closed, and takes no time before its newest.
//!
//! Source: OpenZFS `zfs_crrd.c`, `zfs_crrd.h`.

use crate::error::{FormatError, Result};
use crate::units::Txg;

/// `RRD_MAX_ENTRIES`.
const SLOTS: usize = 256;
/// Head, tail and length.
const HEAD_WORDS: usize = 3;
/// Words of a ring on disk.
pub const RING_WORDS: usize = HEAD_WORDS + 2 * SLOTS;

const DAY_S: u64 = 24 * 60 * 60;
const MONTH_S: u64 = 30 * DAY_S;

/// A txg and its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TxgTime {
    /// Seconds since 1970.
    pub time_s: u64,
    /// The txg.
    pub txg: Txg,
}

/// The newest times of one distance, `rrd_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxgRing {
    head: usize,
    length: usize,
    slots: Box<[TxgTime; SLOTS]>,
}

impl Default for TxgRing {
    fn default() -> TxgRing {
        TxgRing { head: 0, length: 0, slots: Box::new([TxgTime::default(); SLOTS]) }
    }
}

impl TxgRing {
    /// Decodes an entry of the MOS directory.
    ///
    /// # Errors
    /// Too few words; places outside the ring.
    pub fn from_words(words: &[u64]) -> Result<TxgRing> {
        const WHAT: &str = "log of txg times";
        let Some((&[head, tail, length], rest)) = words.split_first_chunk::<HEAD_WORDS>() else {
            return Err(FormatError::Truncated { what: WHAT, need: RING_WORDS * 8, have: words.len() * 8 });
        };
        let (pairs, _) = rest.as_chunks::<2>();
        let Some(pairs) = pairs.first_chunk::<SLOTS>() else {
            return Err(FormatError::Truncated { what: WHAT, need: RING_WORDS * 8, have: words.len() * 8 });
        };
        let all = SLOTS as u64;
        if head >= all || length > all || tail != (head + length) % all {
            return Err(FormatError::Corrupt { what: WHAT, why: "has its ends outside the ring" });
        }
        let slots = pairs.map(|[time_s, txg]| TxgTime { time_s, txg: Txg(txg) });
        Ok(TxgRing { head: head as usize, length: length as usize, slots: Box::new(slots) })
    }

    /// Encodes it.
    pub fn to_words(&self) -> Vec<u64> {
        let head = [self.head, self.next(), self.length].map(|word| word as u64);
        head.into_iter().chain(self.slots.iter().flat_map(|slot| [slot.time_s, slot.txg.0])).collect()
    }

    /// Times, oldest first.
    pub fn times(&self) -> impl DoubleEndedIterator<Item = TxgTime> + '_ {
        (0..self.length).map(|at| self.slots[(self.head + at) % SLOTS])
    }

    /// The newest.
    pub fn newest(&self) -> Option<TxgTime> {
        self.times().next_back()
    }

    fn next(&self) -> usize {
        (self.head + self.length) % SLOTS
    }

    fn add(&mut self, time: TxgTime) {
        if self.newest().is_some_and(|newest| newest.time_s == time.time_s) {
            let last = &mut self.slots[(self.head + self.length - 1) % SLOTS];
            if last.txg >= time.txg {
                return;
            }
            last.txg = time.txg;
        }
        let next = self.next();
        self.slots[next] = time;
        match self.length < SLOTS {
            true => self.length += 1,
            false => self.head = (self.head + 1) % SLOTS,
        }
    }
}

/// All noted times, `dbrrd_t`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxgLog {
    /// Times less than a day apart.
    pub minutes: TxgRing,
    /// Times a day apart.
    pub days: TxgRing,
    /// Times 30 days apart.
    pub months: TxgRing,
}

impl TxgLog {
    fn rings(&self) -> [&TxgRing; 3] {
        // A tie goes to the last of them.
        [&self.days, &self.minutes, &self.months]
    }

    /// The newest time; 0 if nothing is noted.
    pub fn newest_s(&self) -> u64 {
        self.rings().iter().filter_map(|ring| ring.newest()).map(|time| time.time_s).max().unwrap_or(0)
    }

    /// Notes a txg. Returns `false` if its time is before the newest one.
    pub fn add(&mut self, time: TxgTime) -> bool {
        let since = |ring: &TxgRing| time.time_s.checked_sub(ring.newest().map_or(0, |newest| newest.time_s));
        let ring = match () {
            () if since(&self.months) >= Some(MONTH_S) => &mut self.months,
            () if since(&self.days) >= Some(DAY_S) => &mut self.days,
            () if since(&self.minutes).is_some() => &mut self.minutes,
            () => return false,
        };
        ring.add(time);
        true
    }

    /// The last txg noted at this time or before it.
    pub fn floor(&self, time_s: u64) -> Option<Txg> {
        self.closest(time_s, |ring| ring.times().take_while(|noted| noted.time_s <= time_s).last())
    }

    /// The first txg noted at this time or after it.
    pub fn ceiling(&self, time_s: u64) -> Option<Txg> {
        self.closest(time_s, |ring| ring.times().find(|noted| noted.time_s >= time_s))
    }

    fn closest(&self, time_s: u64, of: impl Fn(&TxgRing) -> Option<TxgTime>) -> Option<Txg> {
        let found = self.rings().into_iter().filter_map(of);
        let nearer = |one: TxgTime, other: TxgTime| match one.time_s.abs_diff(time_s)
            < other.time_s.abs_diff(time_s)
        {
            true => one,
            false => other,
        };
        found.reduce(nearer).map(|noted| noted.txg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_S: u64 = 1_790_000_000;

    fn at(time_s: u64, txg: u64) -> TxgTime {
        TxgTime { time_s, txg: Txg(txg) }
    }

    /// Ten days, with a txg noted each ten minutes.
    fn ten_days() -> TxgLog {
        let mut log = TxgLog::default();
        for step in 0..1440 {
            assert!(log.add(at(START_S + 600 * step, 4 + 10 * step)));
        }
        log
    }

    #[test]
    fn the_first_times_go_to_months_days_and_minutes_and_the_oldest_make_room() {
        let log = ten_days();
        assert_eq!(log.months.times().collect::<Vec<_>>(), [at(START_S, 4)]);
        let days: Vec<_> = log.days.times().map(|time| (time.time_s - START_S) / 600).collect();
        assert_eq!(days, [1, 145, 289, 433, 577, 721, 865, 1009, 1153, 1297]);
        assert_eq!(log.minutes.times().count(), 256);
        assert_eq!(log.minutes.newest(), Some(at(START_S + 600 * 1439, 14_394)));
        assert_eq!(log.newest_s(), START_S + 600 * 1439);
    }

    #[test]
    fn a_ring_lies_on_disk_as_head_tail_length_and_slots() {
        let mut log = TxgLog::default();
        log.add(at(START_S, 4));
        let words = log.months.to_words();
        assert_eq!((words.len(), &words[..7]), (515, &[0, 1, 1, START_S, 4, 0, 0][..]));
        assert_eq!(log.days.to_words(), vec![0; 515]);
        // A full ring begins where the next slot is.
        let full = ten_days().minutes;
        let words = full.to_words();
        assert_eq!((words[0], words[2]), (words[1], 256));
        assert_eq!(TxgRing::from_words(&words), Ok(full));
    }

    #[test]
    fn a_malformed_ring_is_refused() {
        for (head, tail, length) in [(256, 0, 0), (0, 0, 257), (0, 2, 1), (u64::MAX, 0, 1), (1, 0, u64::MAX)]
        {
            let mut words = TxgRing::default().to_words();
            words[..3].copy_from_slice(&[head, tail, length]);
            assert!(TxgRing::from_words(&words).is_err(), "{head} {tail} {length}");
        }
        for words in [0, 2, 3, 514] {
            assert!(TxgRing::from_words(&vec![0; words]).is_err(), "{words} words");
        }
    }

    #[test]
    fn a_time_lies_between_the_nearest_txgs_of_all_rings() {
        let log = ten_days();
        assert_eq!((log.floor(START_S - 1), log.ceiling(START_S - 1)), (None, Some(Txg(4))));
        assert_eq!((log.floor(START_S), log.ceiling(START_S)), (Some(Txg(4)), Some(Txg(4))));
        // Two days on, only days remain.
        let two_days = START_S + 2 * DAY_S;
        assert_eq!((log.floor(two_days), log.ceiling(two_days)), (Some(Txg(1454)), Some(Txg(2894))));
        let newest = START_S + 600 * 1439;
        assert_eq!((log.floor(newest - 1), log.ceiling(newest - 1)), (Some(Txg(14_384)), Some(Txg(14_394))));
        assert_eq!((log.floor(newest + 1), log.ceiling(newest + 1)), (Some(Txg(14_394)), None));
    }

    #[test]
    fn a_clock_that_goes_back_notes_nothing() {
        let mut log = ten_days();
        let before = log.clone();
        assert!(!log.add(at(START_S, 20_000)));
        assert_eq!(log, before);
        // The same second again: the newest stays.
        let newest = log.minutes.newest().unwrap();
        log.add(at(newest.time_s, 5));
        assert_eq!(log, before);
    }
}
