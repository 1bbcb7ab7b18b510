//! A cache device as a ring: the place of the next block, the blocks still there, and their log.
//!
//! ```text
//!   start                 hand        evict                       end
//!     | this round         |  nothing   | the round before          |
//! ```
//!
//! Idea: arithmetic only. Room is made before blocks are placed: blocks there are gone from then on, so no
//! reader gets a block about to be overwritten. Placed blocks become entries of the open log block; once
//! full, it goes into the ring behind them.
//!
//! Invariants: `start <= hand <= end`; unless this is the first round, `hand <= evict <= end`.
//!
//! Locking: none here; its device keeps it behind a mutex.
//!
//! Source: OpenZFS `arc.c` (`l2arc_evict`, `l2arc_log_blk_commit`, `l2arc_log_blkptr_valid`).

use std::collections::VecDeque;

use cenote_codec::Endian;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_format::l2arc::{
    DeviceHeader, L2ARC_DEV_HDR_EVICT_FIRST, L2ARC_DEV_HDR_MAGIC, L2ARC_LOG_BLK_BYTES,
    L2ARC_LOG_BLK_MAX_ENTRIES, L2ARC_PERSISTENT_VERSION, LogBlock, LogEntry, LogPointer, Prop, PropParts,
};
use cenote_format::label::VDEV_LABEL_START_SIZE;
use cenote_format::units::Guid;
use cenote_format::words::{Pad, Phys};

use crate::index::Place;

/// `SPA_MAXBLOCKSHIFT`: payload of a log block is counted in blocks of the largest size.
const SPA_MAXBLOCKSHIFT: u32 = 24;

/// Properties fixed while a device is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) pool: Guid,
    pub(crate) vdev: Guid,
    pub(crate) sector_bytes: u64,
    /// After the header.
    pub(crate) start_bytes: u64,
    pub(crate) end_bytes: u64,
    /// Entries of a log block; 0 on a small device.
    pub(crate) log_entries: usize,
}

impl Shape {
    /// `end_bytes`: the start of the labels at the end.
    pub(crate) fn new(pool: Guid, vdev: Guid, ashift: u32, end_bytes: u64, persistent_from: u64) -> Shape {
        let sector_bytes = (1_u64 << ashift.clamp(9, 16)).max(512);
        let start_bytes = VDEV_LABEL_START_SIZE + sector_bytes;
        let log_entries = match end_bytes < persistent_from {
            true => 0,
            false => (end_bytes.saturating_sub(start_bytes) >> SPA_MAXBLOCKSHIFT) as usize,
        };
        let log_entries = log_entries.min(L2ARC_LOG_BLK_MAX_ENTRIES);
        Shape { pool, vdev, sector_bytes, start_bytes, end_bytes, log_entries }
    }

    /// A block's size on the device.
    pub(crate) fn asize(&self, psize_bytes: u64) -> u64 {
        psize_bytes.next_multiple_of(self.sector_bytes)
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.end_bytes.saturating_sub(self.start_bytes)
    }
}

#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) shape: Shape,
    hand: u64,
    evict: u64,
    is_first: bool,
    /// Rounds begun, modulo 8.
    round: u8,
    open: Vec<LogEntry>,
    open_asize: u64,
    newest: [LogPointer; 2],
    /// Valid log blocks, oldest first.
    logs: VecDeque<LogPointer>,
}

impl Ring {
    pub(crate) fn new(shape: Shape) -> Ring {
        let (open, newest, logs) = (Vec::new(), [LogPointer::zeroed(); 2], VecDeque::new());
        let hand = shape.start_bytes;
        Ring { shape, hand, evict: hand, is_first: true, round: 0, open, open_asize: 0, newest, logs }
    }

    /// Continues from a header; `None`: it is of another device, or invalid.
    pub(crate) fn resume(shape: Shape, header: &DeviceHeader) -> Option<Ring> {
        let is_ours = header.version == L2ARC_PERSISTENT_VERSION
            && (header.pool, header.vdev) == (shape.pool, shape.vdev)
            && header.log_entries == shape.log_entries as u64
            && header.end_bytes == shape.end_bytes
            && (shape.start_bytes..=shape.end_bytes).contains(&header.evict_bytes);
        let [newest, _] = header.newest;
        let behind = newest.at_bytes.checked_add(newest.prop.parts().psize_bytes)?;
        let hand = if newest.at_bytes == 0 { shape.start_bytes } else { behind };
        if !is_ours || shape.log_entries == 0 || !(shape.start_bytes..=shape.end_bytes).contains(&hand) {
            return None;
        }
        let is_first = header.flags & L2ARC_DEV_HDR_EVICT_FIRST != 0;
        // Blocks after the newest log block are in no log; they may be at the start of the next round.
        let (hand, evict) = match header.evict_bytes {
            _ if is_first => (hand, shape.start_bytes),
            evict => (hand.min(evict), evict),
        };
        // The round before has a number, too.
        let round = u8::from(!is_first);
        Some(Ring { hand, evict, is_first, round, newest: header.newest, ..Ring::new(shape) })
    }

    /// Makes room for `asize`, with log blocks; returns whether a new round has begun.
    pub(crate) fn make_room(&mut self, asize: u64) -> bool {
        debug_assert!(asize <= self.shape.capacity_bytes());
        let begins_anew = self.hand + asize > self.shape.end_bytes;
        if begins_anew {
            // The rest of the round before goes first.
            (self.evict, self.is_first) = (self.shape.end_bytes, false);
            self.drop_logs();
            (self.hand, self.evict) = (self.shape.start_bytes, self.shape.start_bytes);
            self.round = (self.round + 1) % 8;
        }
        if !self.is_first {
            self.evict = self.evict.max(self.hand + asize);
        }
        self.drop_logs();
        begins_anew
    }

    fn drop_logs(&mut self) {
        while self.logs.front().is_some_and(|oldest| !self.is_log_there(oldest)) {
            self.logs.pop_front();
        }
    }

    /// Places a block in the room made for it. If that fills the open log block, also returns its place and
    /// bytes.
    pub(crate) fn place(&mut self, entry: LogEntry) -> (u64, Option<(u64, Vec<u8>)>) {
        let at_bytes = self.hand;
        let asize = self.shape.asize(entry.prop.parts().psize_bytes);
        self.hand += asize;
        if self.shape.log_entries == 0 {
            return (at_bytes, None);
        }
        self.open.push(LogEntry { at_bytes, ..entry });
        self.open_asize += asize;
        let is_full = self.open.len() >= self.shape.log_entries;
        (at_bytes, is_full.then(|| self.commit()))
    }

    /// Most bytes taken by `blocks` blocks of `asize` in all, with log blocks.
    pub(crate) fn worst_asize(&self, asize: u64, blocks: usize) -> u64 {
        let logs = match self.shape.log_entries {
            0 => 0,
            entries => (self.open.len() + blocks) / entries,
        };
        asize + logs as u64 * self.shape.asize(L2ARC_LOG_BLK_BYTES as u64)
    }

    /// Places the open log block behind its blocks.
    fn commit(&mut self) -> (u64, Vec<u8>) {
        let [newest, previous] = self.newest;
        let entries = std::mem::take(&mut self.open);
        let payload_start_bytes = entries.first().map_or(self.hand, |entry| entry.at_bytes);
        let whole = LogBlock { previous, entries }.encode();
        let limit = L2ARC_LOG_BLK_BYTES - self.shape.sector_bytes as usize;
        // LZ4 fails only if the result does not fit.
        let compressed = Compression::Lz4.compress(&whole, limit, ZstdLevel::DEFAULT).ok().flatten();
        let (compression, mut stored) = match compressed {
            Some(compressed) => (Compression::Lz4, compressed),
            None => (Compression::Off, whole),
        };
        stored.resize(self.shape.asize(stored.len() as u64) as usize, 0);
        let parts = PropParts {
            lsize_bytes: L2ARC_LOG_BLK_BYTES as u64,
            psize_bytes: stored.len() as u64,
            compression: compression as u8,
            checksum: Checksum::Fletcher4 as u8,
            ..PropParts::default()
        };
        let pointer = LogPointer {
            at_bytes: self.hand,
            payload_asize: std::mem::take(&mut self.open_asize),
            payload_start_bytes,
            prop: Prop(Prop::of(parts).0 & !(0xff << 48)),
            checksum: log_checksum(&stored),
        };
        self.newest = [pointer, newest];
        self.logs.push_back(pointer);
        self.hand += stored.len() as u64;
        (pointer.at_bytes, stored)
    }

    /// Whether a block placed there, in that round, is still there.
    pub(crate) fn is_there(&self, place: Place) -> bool {
        let end = place.at_bytes + place.psize_bytes;
        match (self.round + 8 - place.round) % 8 {
            0 => end <= self.hand,
            1 => !self.is_first && place.at_bytes >= self.evict,
            _ => false,
        }
    }

    /// The round of a block named by a log; `None`: it is gone.
    pub(crate) fn round_of(&self, at_bytes: u64, psize_bytes: u64) -> Option<u8> {
        let end = at_bytes.checked_add(psize_bytes)?;
        let is_within = at_bytes >= self.shape.start_bytes && end <= self.shape.end_bytes;
        match is_within {
            true if end <= self.hand => Some(self.round),
            true if !self.is_first && at_bytes >= self.evict => Some((self.round + 7) % 8),
            _ => None,
        }
    }

    /// Whether a log block and all its blocks are there. Its blocks may begin near the end of the ring, in
    /// the round before.
    pub(crate) fn is_log_there(&self, log: &LogPointer) -> bool {
        let (start, asize) = (log.payload_start_bytes, log.prop.parts().psize_bytes);
        let Some(end) = log.at_bytes.checked_add(asize) else { return false };
        let is_within = log.at_bytes >= self.shape.start_bytes
            && end <= self.shape.end_bytes
            && (self.shape.start_bytes..self.shape.end_bytes).contains(&start);
        if asize > L2ARC_LOG_BLK_BYTES as u64 || !is_within {
            return false;
        }
        if self.is_first {
            return start <= log.at_bytes && end <= self.hand;
        }
        let (last, hand, evict) = (end - 1, self.hand, self.evict);
        let is_cut = is_between((start, last), hand) || is_between((start, last), evict);
        !is_cut && !is_between((hand, evict), start) && !is_between((hand, evict), last)
    }

    /// The newest log blocks, where the chains begin.
    pub(crate) fn newest(&self) -> [LogPointer; 2] {
        self.newest
    }

    /// Adds a log block older than the known ones.
    pub(crate) fn found(&mut self, log: LogPointer) {
        self.logs.push_front(log);
    }

    pub(crate) fn forget_logs(&mut self) {
        (self.newest, self.logs) = ([LogPointer::zeroed(); 2], VecDeque::new());
    }

    /// The header from which an import continues.
    pub(crate) fn header(&self) -> DeviceHeader {
        let shape = &self.shape;
        DeviceHeader {
            magic: L2ARC_DEV_HDR_MAGIC,
            version: L2ARC_PERSISTENT_VERSION,
            pool: shape.pool,
            vdev: shape.vdev,
            log_entries: shape.log_entries as u64,
            evict_bytes: self.evict,
            flags: if self.is_first { L2ARC_DEV_HDR_EVICT_FIRST } else { 0 },
            start_bytes: shape.start_bytes,
            end_bytes: shape.end_bytes,
            newest: self.newest,
            log_asize: self.log_asize(),
            log_count: self.logs.len() as u64,
            trim_time_s: 0,
            trim_state: 0,
            pad: Pad,
        }
    }

    pub(crate) fn log_asize(&self) -> u64 {
        self.logs.iter().map(|log| log.prop.parts().psize_bytes).sum()
    }

    pub(crate) fn log_count(&self) -> u64 {
        self.logs.len() as u64
    }

    pub(crate) fn round(&self) -> u8 {
        self.round
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        let before = if self.is_first { 0 } else { self.shape.end_bytes - self.evict };
        self.hand - self.shape.start_bytes + before
    }
}

/// Whether `at` lies in a range of the ring, both ends included; the range may wrap.
fn is_between((from, to): (u64, u64), at: u64) -> bool {
    if from <= to { (from..=to).contains(&at) } else { at >= from || at <= to }
}

pub(crate) fn log_checksum(stored: &[u8]) -> [u64; 4] {
    // It supports every length.
    Checksum::Fletcher4.compute(stored, Endian::Little, None).unwrap_or_default()
}

#[cfg(test)]
mod tests;
