//! Writes that a server has answered but not flushed: kept for repetition.
//!
//! ```text
//!   answered --> kept, newest content of each range --flush answered--> forgotten
//!                  | more than KEPT_BYTES: a flush of our own begins
//!                  | more than MOST_BYTES: all are let go; a loss is then reported by the next flush
//! ```
//!
//! Idea: kept ranges are disjoint, since a newer write cuts older ones. So they may be repeated in any order
//! before other requests. A write counts as newer once answered: until then the older one may be all that the
//! disk has.
//!
//! Each kept write has a number. A flush covers those up to the number when it was made.

use std::collections::BTreeMap;

use bytes::Bytes;

/// More than this starts a flush.
pub(super) const KEPT_BYTES: usize = 32 << 20;
/// No more than this is kept.
const MOST_BYTES: usize = 128 << 20;

#[derive(Default)]
pub(super) struct Unflushed {
    /// By start.
    kept: BTreeMap<u64, Write>,
    bytes: usize,
    /// Number of the last write.
    number: u64,
    /// Writes up to this number were let go; 0: none.
    let_go: u64,
}

struct Write {
    number: u64,
    data: Bytes,
}

impl Unflushed {
    /// Keeps an answered write.
    pub(super) fn keep(&mut self, offset: u64, pieces: &[Bytes]) {
        self.number += 1;
        let mut at = offset;
        for data in pieces.iter().filter(|data| !data.is_empty()) {
            self.cut(at, data.len() as u64);
            self.bytes += data.len();
            self.kept.insert(at, Write { number: self.number, data: data.clone() });
            at += data.len() as u64;
        }
        if self.bytes > MOST_BYTES {
            self.forget();
            self.let_go = self.number;
        }
    }

    /// Forgets a range, whose content is durable or discarded.
    pub(super) fn cut(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        // Disjoint: the last one to begin before the range may reach into it, and those within begin there.
        let first = self.kept.range(..offset).next_back().map_or(offset, |(start, _)| *start);
        let overlaps = |(start, write): (&u64, &Write)| {
            (*start < end && start + write.data.len() as u64 > offset).then_some(*start)
        };
        let starts: Vec<u64> = self.kept.range(first..end).filter_map(overlaps).collect();
        for start in starts {
            let Some(Write { number, data }) = self.kept.remove(&start) else { continue };
            self.bytes -= data.len();
            let before = data.slice(..offset.saturating_sub(start).min(data.len() as u64) as usize);
            let after = data.slice(end.saturating_sub(start).min(data.len() as u64) as usize..);
            let after_at = start + (data.len() - after.len()) as u64;
            for (at, data) in
                [(start, before), (after_at, after)].into_iter().filter(|(_, data)| !data.is_empty())
            {
                self.bytes += data.len();
                self.kept.insert(at, Write { number, data });
            }
        }
    }

    /// The number that a flush made now covers.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A flush up to this number is over: its writes are durable, or reported as lost.
    pub(super) fn flushed(&mut self, up_to: u64) {
        self.kept.retain(|_, write| write.number > up_to);
        self.bytes = self.kept.values().map(|write| write.data.len()).sum();
        if self.let_go <= up_to {
            self.let_go = 0;
        }
    }

    /// Whether a flush is due.
    pub(super) fn is_much(&self) -> bool {
        self.bytes > KEPT_BYTES
    }

    /// Whether a server that forgets all answered, unflushed writes loses some for good.
    pub(super) fn has_let_go(&self) -> bool {
        self.let_go > 0
    }

    /// The writes to repeat.
    pub(super) fn all(&self) -> Vec<(u64, Bytes)> {
        self.kept.iter().map(|(at, write)| (*at, write.data.clone())).collect()
    }

    /// Forgets all writes. Numbers go on, since flushes under way refer to them.
    pub(super) fn forget(&mut self) {
        self.kept.clear();
        (self.bytes, self.let_go) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(unflushed: &Unflushed) -> Vec<(u64, Vec<u8>)> {
        unflushed.all().into_iter().map(|(at, data)| (at, data.to_vec())).collect()
    }

    #[test]
    fn the_newest_content_of_each_range_is_kept_until_it_is_flushed() {
        let mut unflushed = Unflushed::default();
        unflushed.keep(10, &[Bytes::from_static(b"aaaa"), Bytes::from_static(b"bbbb")]);
        let first = unflushed.number();
        unflushed.keep(12, &[Bytes::from_static(b"cc")]);
        unflushed.keep(15, &[Bytes::from_static(b"d")]);
        let now = [(10, &b"aa"[..]), (12, b"cc"), (14, b"b"), (15, b"d"), (16, b"bb")];
        assert_eq!(kept(&unflushed), now.map(|(at, data)| (at, data.to_vec())));
        assert_eq!(unflushed.bytes, 8);
        unflushed.flushed(first);
        assert_eq!(kept(&unflushed), [(12, b"cc".to_vec()), (15, b"d".to_vec())]);
        unflushed.cut(0, 13);
        assert_eq!(kept(&unflushed), [(13, b"c".to_vec()), (15, b"d".to_vec())]);
        unflushed.forget();
        assert!(unflushed.all().is_empty() && unflushed.bytes == 0 && unflushed.number() > first);
    }

    #[test]
    fn more_than_the_bound_is_let_go_until_a_flush_covers_it() {
        let mut unflushed = Unflushed::default();
        let piece = Bytes::from(vec![0; 1 << 20]);
        let mut at = 0;
        while !unflushed.has_let_go() {
            assert!(at <= 1 + (MOST_BYTES >> 20) as u64);
            assert_eq!(unflushed.is_much(), at > 32, "{at}");
            unflushed.keep(at << 20, std::slice::from_ref(&piece));
            at += 1;
        }
        assert!(unflushed.all().is_empty());
        unflushed.flushed(unflushed.number() - 1);
        assert!(unflushed.has_let_go());
        unflushed.flushed(unflushed.number());
        assert!(!unflushed.has_let_go());
    }
}
