//! What a volume holds where: data or holes, and what has changed since a txg, for those who copy no more
//! than they must.
//!
//! Idea: both are asked for a range, and cost what the range has. A block's pointer says in which txg the
//! block was born. Holes may be of any age, because pools without the feature `hole_birth` do not say: a hole
//! whose birth is not known counts as changed, which costs a backup nothing. OpenZFS's `zfs send` takes them
//! so, too (`send_holes_without_birth_time`).

use std::ops::Range;

use cenote_boxed::boxed;
use cenote_format::units::Txg;

use super::Volume;
use crate::error::Result;

/// Pointers looked at together.
const WINDOW_BLOCKS: u64 = 4 << 10;

impl Volume {
    /// Whether there is data at the start of a range, and where that ends: at the latest with the range.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn extent(&self, range: Range<u64>) -> Result<(bool, u64)> {
        match self.plain_object() {
            Some(object) => Ok(object.extent(range).await?),
            // What a log has not been replayed into is looked at no closer.
            None => Ok((true, range.end)),
        }
    }

    /// Whether the start of a range may differ from `before`, the volume as of txg `since`, and where that
    /// ends: at the latest with the range. Only for volumes without changes in memory.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn differs_from(&self, before: &Volume, since: Txg, range: Range<u64>) -> Result<(bool, u64)> {
        let (may_differ, end) = self.changed_since(since, range.clone()).await?;
        if !may_differ || range.start >= before.size_bytes() {
            return Ok((may_differ, end));
        }
        // A hole says little of when it was made; if it was one before, nothing has changed.
        let (is_data, end) = self.extent(range.start..end).await?;
        if is_data {
            return Ok((true, end));
        }
        before.extent(range.start..end.min(before.size_bytes())).await
    }

    /// Whether the volume at `offset_bytes` may have changed after txg `since`, and where that ends: at the
    /// next block of the other kind, at `end_bytes`, or earlier. Only for volumes without changes in memory.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn changed_since(&self, since: Txg, range: Range<u64>) -> Result<(bool, u64)> {
        let Some(object) = self.plain_object() else {
            return Ok((true, range.end));
        };
        let size = self.block_bytes();
        let first = range.start / size;
        let blocks = first..range.end.div_ceil(size).min(first + WINDOW_BLOCKS);
        let (mut answer, mut end) = (None, blocks.start);
        'runs: for run in object.pointers(0, blocks.clone()).await {
            for bp in run.pointers? {
                let birth = bp.logical_birth();
                let has_changed = birth > since || (bp.is_hole() && birth == Txg(0));
                if *answer.get_or_insert(has_changed) != has_changed {
                    break 'runs;
                }
                end += 1;
            }
        }
        // Beyond the last block that was ever written there is nothing to look at.
        let end = if answer.is_some() { end } else { blocks.end };
        Ok((answer.unwrap_or(true), (end * size).min(range.end)))
    }
}
