//! Command history: a ring of packed nvlists that keeps the pool's creation forever.
//!
//! Idea: the object is a buffer of `max_offset_bytes`. The record of `zpool create` takes the part up to
//! `create_end_bytes`; the rest is a ring. `first` and `end` are logical offsets that only grow; modulo the
//! ring's size they are positions. A record is a length (8 bytes, always little-endian) and a packed nvlist
//! (keys below) in the writer's native encoding.
//!
//! ```text
//!   0        create_end                                  max_offset
//!   | create | ... end of newest | gap | oldest ...      |
//! ```
//!
//! Source: OpenZFS `spa_impl.h` (`spa_history_phys_t`), `spa_history.c`, `fs/zfs.h` (`ZPOOL_HIST_*`).

use std::ops::Range;

use crate::error::{FormatError, Result, at_most};
use crate::words::word_struct;

word_struct! {
    /// Bonus of the history, `spa_history_phys_t`.
    pub struct HistoryPhys("pool history", bytes: 40, required: all) {
        /// End of the `zpool create` record; start of the ring.
        pub create_end_bytes: u64,
        /// Buffer size, at most 1 GiB.
        pub max_offset_bytes: u64,
        /// Logical offset of the oldest record.
        pub first_bytes: u64,
        /// Logical offset after the newest record.
        pub end_bytes: u64,
        /// Overwritten records.
        pub records_lost: u64,
    }
}

/// OpenZFS's largest buffer.
pub const MAX_HISTORY_BYTES: u64 = 1 << 30;

impl HistoryPhys {
    /// Physical ranges to read in order, at most three: together they are whole records, oldest first.
    ///
    /// # Errors
    /// Offsets that contradict each other.
    pub fn ranges(&self) -> Result<Vec<Range<u64>>> {
        at_most("history's size", self.max_offset_bytes, MAX_HISTORY_BYTES)?;
        at_most("history's end of creation", self.create_end_bytes, self.max_offset_bytes)?;
        let ring = self.max_offset_bytes - self.create_end_bytes;
        let start = self.first_bytes.max(self.create_end_bytes);
        let len = match self.end_bytes.checked_sub(start) {
            Some(len) if len <= ring => len,
            None if self.end_bytes == 0 => 0,
            _ => return Err(FormatError::Corrupt { what: "pool history", why: "its ends are out of order" }),
        };
        let create = 0..self.create_end_bytes.min(self.end_bytes);
        if len == 0 {
            return Ok(if create.is_empty() { Vec::new() } else { vec![create] });
        }
        let [at, wrapped] = self.place(start, len);
        Ok([create, at, wrapped].into_iter().filter(|r| !r.is_empty()).collect())
    }

    /// Bytes free without overwriting a record.
    pub fn free_bytes(&self) -> u64 {
        let used = self.end_bytes.saturating_sub(self.first_bytes);
        self.max_offset_bytes.saturating_sub(self.create_end_bytes).saturating_sub(used)
    }

    /// Physical ranges of `len` bytes (at most the ring's size) at logical offset `start`: up to the ring's
    /// end, then from its beginning.
    pub fn place(&self, start: u64, len: u64) -> [Range<u64>; 2] {
        let ring = self.max_offset_bytes.saturating_sub(self.create_end_bytes).max(1);
        let at = self.create_end_bytes + start.saturating_sub(self.create_end_bytes) % ring;
        let to_edge = len.min(self.max_offset_bytes.saturating_sub(at));
        [at..at + to_edge, self.create_end_bytes..self.create_end_bytes + (len - to_edge)]
    }
}

/// Packed nvlists of concatenated records. The iterator ends after the first error.
pub fn records(data: &[u8]) -> impl Iterator<Item = Result<&[u8]>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let record = split_record(rest);
        rest = record.as_ref().map_or(&[], |(_, after)| after);
        Some(record.map(|(nvlist, _)| nvlist))
    })
}

fn split_record(data: &[u8]) -> Result<(&[u8], &[u8])> {
    let truncated = |need| FormatError::Truncated { what: "history record", need, have: data.len() };
    let (len, body) = data.split_first_chunk::<8>().ok_or(truncated(8))?;
    let len = at_most("history record's length", u64::from_le_bytes(*len), body.len() as u64)? as usize;
    if len == 0 {
        return Err(FormatError::Corrupt { what: "history record", why: "is empty" });
    }
    Ok(body.split_at(len))
}

/// Record with its length.
pub fn encode_record(nvlist: &[u8]) -> Vec<u8> {
    [&(nvlist.len() as u64).to_le_bytes(), nvlist].concat()
}

/// Keys of a record, `ZPOOL_HIST_*`.
pub mod key {
    /// Seconds since 1970 (uint64).
    pub const TIME: &str = "history time";
    /// Command line (string).
    pub const CMD: &str = "history command";
    /// Uid of the user (uint64).
    pub const WHO: &str = "history who";
    /// Zone (string).
    pub const ZONE: &str = "history zone";
    /// Host (string).
    pub const HOST: &str = "history hostname";
    /// Txg of an internal event (uint64).
    pub const TXG: &str = "history txg";
    /// Number of an internal event, old form (uint64).
    pub const INT_EVENT: &str = "history internal event";
    /// Details of an internal event (string).
    pub const INT_STR: &str = "history internal str";
    /// Name of an internal event (string).
    pub const INT_NAME: &str = "internal_name";
    /// Name of an ioctl (string).
    pub const IOCTL: &str = "ioctl";
    /// Arguments of an ioctl (nvlist).
    pub const INPUT_NVL: &str = "in_nvl";
    /// Result of an ioctl (nvlist).
    pub const OUTPUT_NVL: &str = "out_nvl";
    /// Bytes of an omitted result (int64).
    pub const OUTPUT_SIZE: &str = "out_size";
    /// Dataset of an internal event (string).
    pub const DSNAME: &str = "dsname";
    /// Object number of the dataset (uint64).
    pub const DSID: &str = "dsid";
    /// Error of the ioctl (int32).
    pub const ERRNO: &str = "errno";
    /// Duration (int64).
    pub const ELAPSED_NS: &str = "elapsed_ns";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Phys, check_phys};
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<HistoryPhys>();
    }

    fn head(words: [u64; 5]) -> HistoryPhys {
        HistoryPhys::from_words(&words).unwrap()
    }

    #[test]
    fn a_ring_that_wrapped_is_read_oldest_first() {
        assert_eq!(head([100, 1000, 100, 300, 0]).ranges().unwrap(), [0..100, 100..300]);
        assert_eq!(head([100, 1000, 500, 1300, 3]).ranges().unwrap(), [0..100, 500..1000, 100..400]);
        assert_eq!(head([0, 1000, 0, 0, 0]).ranges().unwrap(), []);
        assert!(head([100, 1000, 500, 2000, 0]).ranges().is_err());
        assert!(head([100, 50, 0, 0, 0]).ranges().is_err());
    }

    proptest! {
        #[test]
        fn ranges_lie_in_the_buffer(words in any::<[u64; 5]>(), small in any::<[u16; 5]>()) {
            for words in [words, small.map(u64::from)] {
                let head = head(words);
                if let Ok(ranges) = head.ranges() {
                    prop_assert!(ranges.len() <= 3);
                    prop_assert!(ranges.iter().all(|r| r.end <= head.max_offset_bytes));
                }
            }
        }

        #[test]
        fn records_round_trip(lists in vec(vec(any::<u8>(), 1..40), 0..6)) {
            let raw: Vec<u8> = lists.iter().flat_map(|l| encode_record(l)).collect();
            let back: Vec<_> = records(&raw).map(|r| r.unwrap().to_vec()).collect();
            prop_assert_eq!(back, lists);
        }

        #[test]
        fn hostile_records_end(raw in vec(prop_oneof![Just(0u8), any::<u8>()], 0..200)) {
            prop_assert!(records(&raw).count() <= raw.len() / 8 + 1);
        }
    }
}
