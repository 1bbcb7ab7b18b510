//! Reads a cache device's content from its log after an import, newest first.
//!
//! Idea: the header points to the two newest log blocks, and each log block to the one before the one before
//! it. The walk ends at a missing or damaged log block; entries found by then are used. More log blocks than
//! fit into the ring are damage.
//!
//! Source: OpenZFS `arc.c` (`l2arc_rebuild`).

use cenote_format::l2arc::{LogBlock, LogPointer};

use crate::device::CacheDevice;
use crate::index::{BlockName, Index, Place};
use crate::stats::L2Counters;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    /// At the oldest valid log block.
    Whole,
    /// At a damaged one.
    Damaged,
    /// The index is full.
    Full,
}

/// Walks the log blocks of a device, newest first, until `take` returns false.
pub(crate) async fn walk(device: &CacheDevice, mut take: impl FnMut(LogBlock) -> bool) -> Rebuilt {
    let mut left_bytes = device.ring.lock().used_bytes();
    let [mut log, mut next] = device.ring.lock().newest();
    while device.ring.lock().is_log_there(&log) {
        let asize = log.prop.parts().psize_bytes + log.payload_asize;
        let Some(left) = left_bytes.checked_sub(asize) else { break };
        left_bytes = left;
        let Some(block) = device.read_log(&log).await else { return Rebuilt::Damaged };
        device.ring.lock().found(log);
        let previous: LogPointer = block.previous;
        if !take(block) {
            return Rebuilt::Full;
        }
        (log, next) = (next, previous);
    }
    Rebuilt::Whole
}

/// Indexes a log block's entries, newest first: entries already in the index are newer.
pub(crate) fn enter(device: &CacheDevice, block: &LogBlock, index: &mut Index, counters: &L2Counters) {
    let ring = device.ring.lock();
    for entry in block.entries.iter().rev() {
        let psize_bytes = entry.prop.parts().psize_bytes;
        let Some(round) = ring.round_of(entry.at_bytes, psize_bytes) else { continue };
        let name = BlockName::new(entry.dva, entry.birth);
        if index.get(name).is_none() {
            let place = Place { device: device.number, round, at_bytes: entry.at_bytes, psize_bytes };
            index.insert(name, place);
            counters.rebuild_bufs.one();
            counters.rebuild_asize.add(ring.shape.asize(psize_bytes));
        }
    }
    counters.rebuild_log_blks.one();
}
