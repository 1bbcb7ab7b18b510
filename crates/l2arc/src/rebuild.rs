//! What a cache device holds, after an import: read from its log, the newest first.
//!
//! Idea: the header leads to the two newest log blocks, and each to the one before the one before it. The
//! walk ends where a log block is gone or not whole; what was found until then counts. It is bounded by the
//! ring: log blocks that take more than there is are nonsense.
//!
//! Source: OpenZFS `arc.c` (`l2arc_rebuild`).

use cenote_format::l2arc::{LogBlock, LogPointer};

use crate::device::CacheDevice;
use crate::index::{BlockName, Index, Place};
use crate::stats::L2Counters;

/// How a rebuild ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    /// At the oldest log block that counts.
    Whole,
    /// At one that is not whole.
    Damaged,
    /// Because the index may not grow any more.
    Full,
}

/// Walks over the log blocks of a device, the newest first; `take` gets each and says whether to go on.
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

/// Enters the blocks of a log block, the newest first: what is known already is newer.
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
