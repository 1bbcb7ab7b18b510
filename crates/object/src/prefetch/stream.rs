//! Streams of one object: which accesses follow each other, and how far ahead to read.
//!
//! Idea: a stream is the place in an object where the next access is expected. An access there advances it
//! and doubles the read-ahead distance, up to `zfetch_min_distance`; beyond that, the distance grows only
//! while readers catch up with it. Early accesses (several readers, a kernel with its own read-ahead) are
//! kept as ranges; when the gaps between them are small, the stream advances behind them. An access outside
//! all streams begins one, replacing one not used lately if there are enough.
//!
//! ```text
//!              next        data_end                    indirect_end
//!   ...read....|  ahead     |  indirect blocks only     |
//!                 [ ][   ]    <- ranges that came early
//! ```
//!
//! Pure: block numbers and times in, ranges of blocks to read out.
//!
//! Source: OpenZFS `dmu_zfetch.c`.

use std::ops::Range;

use cenote_cache::{Looked, PrefetchValues, Seen};

/// `ZFETCH_RANGES`.
const MOST_EARLY: usize = 9;

#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) blocks: Range<u64>,
    pub(super) last_block: u64,
    pub(super) block_bytes: u64,
    pub(super) now_ns: u64,
    pub(super) looked: Looked,
    /// Whether to read data ahead, not only indirect blocks.
    pub(super) with_data: bool,
    /// Room in the cache.
    pub(super) most_bytes: u64,
    /// Enough is in flight: do not double distances.
    pub(super) is_full: bool,
}

/// What to read ahead, in data block numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) data: Range<u64>,
    /// Read the indirect blocks above.
    pub(super) indirect: Range<u64>,
}

/// The streams of an object, the newest first.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<Stream>);

#[derive(Debug)]
struct Stream {
    next: u64,
    used_ns: u64,
    /// Ranges behind `next` that came early, in order and apart.
    early: Vec<Range<u64>>,
    distance: u64,
    indirect_distance: u64,
    /// Blocks before this were requested.
    data_end: u64,
    indirect_end: u64,
    /// A block was missing: the stream is not all in the cache.
    missed: bool,
    late: bool,
}

impl Streams {
    pub(super) fn used_ns(&self) -> u64 {
        self.0.iter().map(|stream| stream.used_ns).max().unwrap_or(0)
    }

    /// Returns the kind of access, and what to read ahead.
    pub(super) fn access(&mut self, access: &Access, values: &PrefetchValues) -> (Seen, Ahead) {
        let Some((at, seen, moved)) = self.find(access, values) else {
            return (self.begin(access, values), Ahead::default());
        };
        if seen == Seen::Past {
            self.0[at].used_ns = access.now_ns;
            return (seen, Ahead::default());
        }
        let stream = &mut self.0[at];
        stream.used_ns = access.now_ns;
        stream.missed |= access.looked.missed;
        stream.late |= access.looked.late;
        if moved == 0 {
            return (seen, Ahead::default());
        }
        let ahead = stream.look_ahead(moved, access, values);
        if stream.next >= access.last_block {
            self.0.remove(at);
        }
        (seen, ahead)
    }

    /// The stream, the kind of access, and the blocks that the stream advances by.
    fn find(&mut self, access: &Access, values: &PrefetchValues) -> Option<(usize, Seen, u64)> {
        let Range { start, end } = access.blocks;
        // An access may begin within the last block of the one before.
        let exact = |stream: &Stream| stream.next == start || stream.next == start + 1;
        if let Some(at) = self.0.iter().position(exact) {
            let blocks = end.saturating_sub(self.0[at].next);
            return Some((at, Seen::Hit, self.0[at].go_on(blocks)));
        }
        let reorder = values.max_reorder / access.block_bytes + 1;
        let mut near = self.0.iter_mut().enumerate();
        near.find_map(|(at, stream)| {
            if start > stream.next {
                if end > stream.next + reorder {
                    return None;
                }
                let moved = match access.with_data {
                    true => stream.keep_early(start..end, values.hole_shift),
                    false => stream.go_on(end - stream.next),
                };
                let seen = if moved > 0 { Seen::Stride } else { Seen::Future };
                return Some((at, seen, moved));
            }
            if end >= stream.next {
                return Some((at, Seen::Hit, stream.go_on(end - stream.next)));
            }
            let is_recent = access.now_ns.saturating_sub(stream.used_ns) <= values.max_reap_ns;
            (end + reorder > stream.next && is_recent).then_some((at, Seen::Past, 0))
        })
    }

    fn begin(&mut self, access: &Access, values: &PrefetchValues) -> Seen {
        let next = access.blocks.end;
        if next >= access.last_block {
            return Seen::Miss;
        }
        let unused_for = |stream: &Stream| access.now_ns.saturating_sub(stream.used_ns);
        self.0.retain(|stream| unused_for(stream) <= values.max_reap_ns);
        let file_bytes = access.last_block.saturating_mul(access.block_bytes);
        let apart = usize::try_from(file_bytes / values.max_distance.max(1)).unwrap_or(usize::MAX);
        if self.0.len() >= values.max_streams.min(apart).max(1) {
            let oldest = self.0.iter().enumerate().max_by_key(|(_, stream)| unused_for(stream));
            match oldest.filter(|(_, stream)| unused_for(stream) >= values.min_reap_ns) {
                Some((at, _)) => _ = self.0.remove(at),
                None => return Seen::MaxStreams,
            }
        }
        // May be replaced at once until its first hit.
        let used_ns = access.now_ns.saturating_sub(values.min_reap_ns);
        let missed = access.looked.missed;
        self.0.insert(0, Stream::at(next, used_ns, missed));
        Seen::Miss
    }
}

impl Stream {
    fn at(next: u64, used_ns: u64, missed: bool) -> Stream {
        let (early, distance, indirect_distance, late) = Default::default();
        let (data_end, indirect_end) = (next, next);
        Stream { next, used_ns, early, distance, indirect_distance, data_end, indirect_end, missed, late }
    }

    /// Advances by `blocks` and over early ranges that follow. Returns the sum.
    fn go_on(&mut self, blocks: u64) -> u64 {
        let from = self.next;
        self.next += blocks;
        let reached = self.early.partition_point(|range| range.start <= self.next);
        if let Some(last) = self.early.drain(..reached).next_back() {
            self.next = self.next.max(last.end);
        }
        self.next - from
    }

    /// Keeps an early access, and advances behind it if gaps are few. Returns the blocks advanced.
    fn keep_early(&mut self, range: Range<u64>, hole_shift: u32) -> u64 {
        let first = self.early.partition_point(|early| early.end < range.start);
        let last = self.early.partition_point(|early| early.start <= range.end);
        if first == last && self.early.len() >= MOST_EARLY {
            return 0;
        }
        let whole = self.early[first..last]
            .iter()
            .fold(range, |whole, early| whole.start.min(early.start)..whole.end.max(early.end));
        self.early.splice(first..last, [whole]);
        let (mut holes, mut at, mut full) = (0, self.next, None);
        for early in &self.early {
            holes += early.start - at;
            at = early.end;
            if holes <= (early.end - self.next) >> hole_shift {
                full = Some(early.end);
            }
        }
        full.map_or(0, |end| self.go_on(end - self.next))
    }

    fn look_ahead(&mut self, moved: u64, access: &Access, values: &PrefetchValues) -> Ahead {
        let Access { last_block, block_bytes, with_data, most_bytes, is_full, .. } = *access;
        let moved_bytes = moved.saturating_mul(block_bytes);
        if with_data {
            if self.distance < moved_bytes {
                self.distance = moved_bytes;
            } else if self.distance < values.min_distance && (self.distance < block_bytes || !is_full) {
                self.distance *= 2;
            } else if self.late {
                self.distance += self.distance / 8;
            }
            self.late = false;
            self.distance = self.distance.min(values.max_distance).min(most_bytes);
        }
        let end = last_block + 1;
        let distance = if with_data { self.distance / block_bytes } else { 0 };
        let target = (self.next + distance).min(end);
        let begin = self.data_end.max(self.next);
        let mut ahead = Ahead::default();
        // Devices get large requests; the last one may be small.
        let piece = (WINDOW_BYTES / block_bytes).min(distance / 2).max(1);
        if self.missed && target >= begin + if target == end { 1 } else { piece } {
            ahead.data = begin..target;
        }
        if !self.missed || !ahead.data.is_empty() {
            self.data_end = begin.max(target);
        }
        self.indirect_distance = match self.indirect_distance {
            short if short < moved_bytes.max(block_bytes) => moved_bytes.max(block_bytes),
            long => long * 2,
        };
        self.indirect_distance = self.indirect_distance.min(values.max_idistance);
        let begin = self.indirect_end.max(target);
        self.indirect_end = begin.max((target + self.indirect_distance / block_bytes).min(end));
        ahead.indirect = begin..self.indirect_end;
        ahead
    }
}

/// Bytes read ahead together.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests;
