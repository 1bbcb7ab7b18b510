//! A slice of an expansion: copies the next ranges of the vdev and advances the uberblock.
//!
//! ```text
//!   synced           next                      reachable
//!   |  copied so far  |##|    |####|  |##|  ...    |         in windows; free space of a window is borrowed
//! ```
//!
//! Idea: everything not free is copied, even a block only allocated. Allocation is blocked in the window
//! being copied; later writes there go to both places. So skipping free space misses nothing.
//!
//! Source: OpenZFS `vdev_raidz.c` (`spa_raidz_expand_thread`, `raidz_reflow_sync`).

use std::ops::Range;
use std::time::Duration;

use cenote_dataset::spacemaps::metaslab_extent;
use cenote_engine::{Engine, Hold, SyncContext};
use cenote_format::label::VdevConfig;
use cenote_format::units::VdevId;
use cenote_object::{DatasetError, Result};
use cenote_pool::{reachable, reflow_end, reflow_info};

use super::{add_copied, expanding, set_reflowed};

/// Maximum length of a slice, which delays its txg.
const SLICE: Duration = Duration::from_millis(500);
/// Size of a window.
const WINDOW_BYTES: u64 = 16 << 20;
/// Bytes copied at once.
const COPY_BYTES: u64 = 8 << 20;
/// Free gaps up to this are copied with the ranges around them.
const MAX_GAP_BYTES: u64 = 64 << 10;

/// The outcome of a slice.
pub(super) enum Slice {
    Copied,
    /// A copy failed: the expansion has to wait.
    Failed(DatasetError),
}

/// Copies for a while, within the held txg.
pub(super) async fn slice(engine: Engine, hold: Hold, vdev: VdevId) -> Result<Slice> {
    let pool = engine.pool();
    let Some(top) = expanding(&pool).filter(|top| VdevId(top.id) == vdev) else { return Ok(Slice::Copied) };
    let synced = pool.expansion().progress().synced_bytes;
    let end = reachable(synced, top.children.len(), top.ashift).min(reflow_end(&top));
    let until = engine.runtime().now() + SLICE;
    let (mut next, mut copied_bytes, mut failed) = (synced, 0, None);
    let most_bytes = engine.background().settings().most_reflow_bytes();
    while next < end && engine.runtime().now() < until && (most_bytes == 0 || copied_bytes < most_bytes) {
        match window(&engine, &top, next, end).await {
            Ok((to, bytes)) => (next, copied_bytes) = (to, copied_bytes + bytes),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if next > synced {
        let task = engine.run_in(hold, move |context| {
            Box::pin(async move { note(context, vdev, next, copied_bytes).await })
        });
        task.await?;
        pool.expansion().note_synced(next).await;
    }
    match failed {
        Some(error) => {
            pool.expansion().forget_unsynced().await;
            Ok(Slice::Failed(error))
        }
        None => Ok(Slice::Copied),
    }
}

/// Copies part of the vdev; returns the end of that part, and the used bytes in it.
async fn window(engine: &Engine, top: &VdevConfig, from: u64, end: u64) -> Result<(u64, u64)> {
    let (vdev, index) = (VdevId(top.id), from >> top.metaslab_shift);
    let (start, len) = metaslab_extent(top, index);
    let end = end.min(from + WINDOW_BYTES).min(start + len.max(1 << top.ashift));
    // Space allocated here later counts as copied.
    let free = engine.allocator().borrow_free(vdev, index, from, end - from);
    let free_in: Vec<Range<u64>> =
        free.ranges().iter().map(|&(start, end_of)| start..end_of.min(end)).collect();
    let in_use = between(&free_in, from..end);
    let (to, ranges) = first_of(&in_use, from..end);
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    engine.pool().expansion().copy(vdev, from..to, joined(&ranges)).await?;
    drop(free);
    Ok((to, bytes))
}

/// The gaps between `others`, which are sorted and disjoint.
fn between(others: &[Range<u64>], all: Range<u64>) -> Vec<Range<u64>> {
    let mut at = all.start;
    let mut found = Vec::new();
    for other in others.iter().filter(|other| other.start < all.end) {
        if other.start > at {
            found.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < all.end {
        found.push(at..all.end);
    }
    found
}

/// The first ranges, up to the copy limit, and the offset reached with them.
fn first_of(ranges: &[Range<u64>], all: Range<u64>) -> (u64, Vec<Range<u64>>) {
    let (mut taken, mut left) = (Vec::new(), COPY_BYTES);
    for range in ranges {
        let len = (range.end - range.start).min(left);
        if len == 0 {
            return (range.start, taken);
        }
        taken.push(range.start..range.start + len);
        left -= len;
        if len < range.end - range.start {
            return (range.start + len, taken);
        }
    }
    (all.end, taken)
}

/// Merges ranges across small gaps.
fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| range.start - last.end <= MAX_GAP_BYTES) {
            Some(last) => last.end = range.end,
            None => joined.push(range.clone()),
        }
    }
    joined
}

/// Records that everything up to an offset is copied.
async fn note(context: &mut SyncContext, vdev: VdevId, upto_bytes: u64, bytes: u64) -> Result<()> {
    context.begin_writing().await?;
    set_reflowed(context, reflow_info(upto_bytes));
    add_copied(context, vdev, bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    #[test]
    fn what_is_not_free_is_copied_and_small_gaps_with_it() {
        let free = [4 * K..8 * K, 20 * K..200 * K, 300 * K..400 * K];
        let in_use = between(&free, 0..320 * K);
        assert_eq!(in_use, [0..4 * K, 8 * K..20 * K, 200 * K..300 * K]);
        assert_eq!(joined(&in_use), [0..20 * K, 200 * K..300 * K]);
        assert_eq!(first_of(&in_use, 0..320 * K), (320 * K, in_use.clone()), "free space is done with");
        assert_eq!(between(&[], 5..9).len(), 1, "all of it");
        assert_eq!(between(&[5..9, 12..13], 5..9), []);
    }

    #[test]
    fn much_is_copied_in_parts() {
        let (copied, all) = (0..COPY_BYTES, 0..3 * COPY_BYTES);
        let (to, ranges) = first_of(std::slice::from_ref(&all), all.clone());
        assert_eq!((to, ranges.first(), ranges.len()), (COPY_BYTES, Some(&copied), 1));
        let two = [0..COPY_BYTES, COPY_BYTES + K..COPY_BYTES + 2 * K];
        let (to, ranges) = first_of(&two, all);
        assert_eq!((to, ranges.first(), ranges.len()), (COPY_BYTES + K, Some(&copied), 1), "the gap, too");
    }
}
