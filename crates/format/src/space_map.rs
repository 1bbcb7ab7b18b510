//! Space maps: a metaslab's allocated ranges, as a log of allocations and frees.
//!
//! Idea: the object is a log of 64-bit words, `length_bytes` long. Replaying it from empty yields the
//! allocated ranges. A metaslab's map uses the short form, with offsets from the metaslab's start. A log
//! space map (feature `log_spacemap`) collects one txg's changes of all vdevs in the long form, with offsets
//! from the vdev's start.
//!
//! Layout (bits, highest at the left):
//!
//! ```text
//!   debug     | 10 | action (2) | sync pass (10) | txg (50) |          also pads blocks, with txg 0
//!   one word  | 0 | offset (47) | free (1) | run - 1 (15) |
//!   two words | 11 | 0 (2) | run - 1 (36) | vdev (24) |
//!             | free (1) | offset (63) |
//! ```
//!
//! Offsets and runs are in units of `1 << shift` bytes. The shift is the vdev's ashift for metaslabs and
//! checkpoints, 9 in a log space map, 0 in DTLs (which count txgs) and in an indirect vdev's obsolete map. A
//! two-word entry never straddles a block of the object.
//!
//! Source: OpenZFS `space_map.h`, `space_map.c`, `metaslab_impl.h`.

use crate::bytes::{Endian, Writer};
use crate::error::{FormatError, Result, at_most};
use crate::units::{ObjectId, Txg, VdevId};
use crate::words::{Pad, Phys, offset_of, word_struct};

/// Histogram buckets, `SPACE_MAP_HISTOGRAM_SIZE`.
pub const SPACE_MAP_HISTOGRAM_SIZE: usize = 32;
/// Bytes of the oldest head, `SPACE_MAP_SIZE_V0`, which has no histogram.
pub const SPACE_MAP_SIZE_V0: usize = 24;

word_struct! {
    /// Bonus of a space map, `space_map_phys_t`. Three words before feature `spacemap_histogram`.
    pub struct SpaceMapPhys("space map", bytes: 320, required: 3) {
        /// Own object number; unused.
        pub object: ObjectId,
        /// Log bytes.
        pub length_bytes: u64,
        /// Allocated bytes per the log; may be negative in log space maps.
        pub alloc_bytes: i64,
        /// Reserved.
        pub pad: Pad<5>,
        /// Free ranges by size: bucket i counts sizes from `2^(i + shift)` to below twice that.
        pub histogram: [u64; SPACE_MAP_HISTOGRAM_SIZE],
    }
}

word_struct! {
    /// Element of a vdev's `VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS` array, one per metaslab:
    /// `metaslab_unflushed_phys_t`.
    pub struct MetaslabUnflushed("unflushed metaslab", bytes: 8, required: all) {
        /// Changes from this txg on are only in log space maps; 0 if none.
        pub unflushed_txg: Txg,
    }
}

/// Kind of change, `maptype_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapType {
    /// `SM_ALLOC`.
    Alloc,
    /// `SM_FREE`.
    Free,
}

/// Change, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMapEntry {
    /// Kind of change.
    pub map_type: MapType,
    /// Top-level vdev of a two-word entry. Only log space maps set it: in other maps a range too long for one
    /// word says vdev 0.
    pub vdev: Option<VdevId>,
    /// Start, relative to the map's.
    pub offset_bytes: u64,
    /// Length; nonzero.
    pub run_bytes: u64,
    /// Txg of the last debug entry.
    pub txg: Txg,
    /// Sync pass in that txg.
    pub sync_pass: u16,
}

const VDEV_LIMIT: u64 = 1 << 24;
const OFFSET_LIMIT: u64 = 1 << 47;
const RUN_LIMIT: u64 = 1 << 15;
const LONG_RUN_LIMIT: u64 = 1 << 36;
const DEBUG_PREFIX: u64 = 2;
const LONG_PREFIX: u64 = 3;

const _: () = {
    assert!(offset_of::<SpaceMapPhys>("histogram") == 64);
    assert!(SPACE_MAP_SIZE_V0 == <SpaceMapPhys as Phys>::REQUIRED * 8);
    // One word: prefix bit 0, offset, kind bit, run.
    assert!(OFFSET_LIMIT * 2 * RUN_LIMIT == 1 << 63);
    // First of two words: prefix, two zero bits, run, vdev.
    assert!(LONG_RUN_LIMIT * VDEV_LIMIT == 1 << 60);
};

fn bits(word: u64, low: u32, len: u32) -> u64 {
    (word >> low) & ((1 << len) - 1)
}

/// Reads a log block by block.
///
/// Pass the object's blocks in order, the last one cut at `length_bytes`. The reader carries the txg of the
/// last debug entry from block to block.
#[derive(Debug, Clone)]
pub struct SpaceMapReader {
    shift: u32,
    endian: Endian,
    txg: Txg,
    sync_pass: u16,
}

impl SpaceMapReader {
    /// Starts a log with units of `1 << shift` bytes.
    ///
    /// # Errors
    /// A shift of 64 or more.
    pub fn new(shift: u32, endian: Endian) -> Result<Self> {
        at_most("space map shift", shift.into(), 63)?;
        Ok(SpaceMapReader { shift, endian, txg: Txg(0), sync_pass: 0 })
    }

    /// Entries of the next block. The iterator ends after an error.
    pub fn block<'a>(&'a mut self, block: &'a [u8]) -> Entries<'a> {
        Entries { words: block.as_chunks::<8>().0.iter(), reader: self }
    }

    fn entry(&self, map_type: MapType, vdev: Option<VdevId>, offset: u64, run: u64) -> Result<SpaceMapEntry> {
        let bound = u64::MAX >> self.shift;
        let end = offset.saturating_add(run);
        at_most("space map entry's end", end, bound)?;
        Ok(SpaceMapEntry {
            map_type,
            vdev,
            offset_bytes: offset << self.shift,
            run_bytes: run << self.shift,
            txg: self.txg,
            sync_pass: self.sync_pass,
        })
    }
}

/// Entries of one block.
#[derive(Debug)]
pub struct Entries<'a> {
    reader: &'a mut SpaceMapReader,
    words: std::slice::Iter<'a, [u8; 8]>,
}

impl Entries<'_> {
    fn next_word(&mut self) -> Option<u64> {
        self.words.next().map(|w| self.reader.endian.u64(*w))
    }

    fn long_entry(&mut self, first: u64) -> Result<SpaceMapEntry> {
        let second = self.next_word().ok_or(FormatError::Corrupt {
            what: "space map",
            why: "a two-word entry is cut at the end of a block",
        })?;
        let map_type = if second >> 63 == 0 { MapType::Alloc } else { MapType::Free };
        let vdev = VdevId(bits(first, 0, 24));
        self.reader.entry(map_type, Some(vdev), bits(second, 0, 63), bits(first, 24, 36) + 1)
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<SpaceMapEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let word = self.next_word()?;
            let entry = match word >> 62 {
                DEBUG_PREFIX => {
                    let txg = bits(word, 0, 50);
                    if txg != 0 {
                        self.reader.txg = Txg(txg);
                        self.reader.sync_pass = bits(word, 50, 10) as u16;
                    }
                    continue;
                }
                LONG_PREFIX => self.long_entry(word),
                _ => {
                    let map_type = if bits(word, 15, 1) == 0 { MapType::Alloc } else { MapType::Free };
                    self.reader.entry(map_type, None, bits(word, 16, 47), bits(word, 0, 15) + 1)
                }
            };
            if entry.is_err() {
                self.words = [].iter();
            }
            return Some(entry);
        }
    }
}

/// A range to log, in units of `1 << shift` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Kind of change.
    pub map_type: MapType,
    /// Top-level vdev; `None` in a metaslab's map.
    pub vdev: Option<VdevId>,
    /// Start; below 2^63.
    pub offset: u64,
    /// Length; nonzero.
    pub run: u64,
}

/// Encodes a log; pads so that no entry straddles a block.
#[derive(Debug)]
pub struct SpaceMapWriter {
    block_words: usize,
    /// Words already in its first block.
    before: usize,
    two_words: bool,
    words: Vec<u64>,
}

impl SpaceMapWriter {
    /// Starts at a block boundary; `block_bytes` is at least 16.
    pub fn new(block_bytes: usize) -> Self {
        let block_words = (block_bytes / 8).max(2);
        SpaceMapWriter { block_words, before: 0, two_words: true, words: Vec::new() }
    }

    /// Continues a log of `length_bytes`.
    pub fn after(mut self, length_bytes: u64) -> Self {
        self.before = (length_bytes / 8 % self.block_words as u64) as usize;
        self
    }

    /// Restricts the log to one-word entries, for pools without feature `spacemap_v2`. These name no vdev,
    /// and offsets must be below 2^47.
    pub fn one_word(mut self) -> Self {
        self.two_words = false;
        self
    }

    /// Logs txg and sync pass of the entries that follow.
    pub fn debug(&mut self, map_type: MapType, txg: Txg, sync_pass: u16) {
        let action = u64::from(map_type == MapType::Free);
        let pass = u64::from(sync_pass).min(1023);
        self.words.push(DEBUG_PREFIX << 62 | action << 60 | pass << 50 | bits(txg.0, 0, 50));
    }

    /// Logs a range, in several entries if needed.
    pub fn segment(&mut self, mut segment: Segment) {
        assert!(segment.offset < 1 << 63 && segment.run <= (1 << 63) - segment.offset, "{segment:?}");
        assert!(self.two_words || segment.offset + segment.run <= OFFSET_LIMIT, "{segment:?} in one word");
        let free = u64::from(segment.map_type == MapType::Free);
        while segment.run > 0 {
            let fits = segment.vdev.is_none() && segment.run <= RUN_LIMIT && segment.offset < OFFSET_LIMIT;
            let short = fits || !self.two_words;
            let run = segment.run.min(if short { RUN_LIMIT } else { LONG_RUN_LIMIT });
            if short {
                self.words.push(bits(segment.offset, 0, 47) << 16 | free << 15 | (run - 1));
            } else {
                if (self.before + self.words.len() + 1).is_multiple_of(self.block_words) {
                    self.words.push(DEBUG_PREFIX << 62);
                }
                let vdev = segment.vdev.map_or(0, |v| v.0) % VDEV_LIMIT;
                self.words.push(LONG_PREFIX << 62 | (run - 1) << 24 | vdev);
                self.words.push(free << 63 | bits(segment.offset, 0, 63));
            }
            segment.offset += run;
            segment.run -= run;
        }
    }

    /// Words to append.
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    /// Encodes the log.
    pub fn finish(self, endian: Endian) -> Vec<u8> {
        let mut w = Writer::new(endian);
        w.words(&self.words);
        w.finish()
    }
}

#[cfg(test)]
mod tests;
