//! A volume's data and holes, and its changes since a txg, for incremental copies.
//!
//! Idea: queries are by range, and cost in proportion to its contents. A block's pointer has its birth txg.
//! Pools without feature `hole_birth` do not record the births of holes: such a hole counts as changed, at no
//! cost for a backup. OpenZFS's `zfs send` does the same (`send_holes_without_birth_time`).

use std::ops::Range;

use cenote_boxed::boxed;
use cenote_format::units::Txg;

use super::Volume;
use crate::error::Result;

/// Pointers examined together.
const WINDOW_BLOCKS: u64 = 4 << 10;

impl Volume {
    /// Whether a range starts with data, and the end of that extent within the range.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn extent(&self, range: Range<u64>) -> Result<(bool, u64)> {
        match self.plain_object() {
            Some(object) => Ok(object.extent(range).await?),
            // With an unreplayed log, report everything as data.
            None => Ok((true, range.end)),
        }
    }

    /// Whether a range starts with blocks that may differ from `before`, the volume as of txg `since`, and
    /// the end of that extent within the range. Only for volumes without changes in memory.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn differs_from(&self, before: &Volume, since: Txg, range: Range<u64>) -> Result<(bool, u64)> {
        let (may_differ, end) = self.changed_since(since, range.clone()).await?;
        if !may_differ || range.start >= before.size_bytes() {
            return Ok((may_differ, end));
        }
        // A hole may lack its birth; if it was a hole before, nothing has changed.
        let (is_data, end) = self.extent(range.start..end).await?;
        if is_data {
            return Ok((true, end));
        }
        before.extent(range.start..end.min(before.size_bytes())).await
    }

    /// Whether a range starts with blocks that may have changed after txg `since`, and the end of that
    /// extent: the next block of the other kind, the range's end, or earlier. Only for volumes without
    /// changes in memory.
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
        // Nothing exists beyond the last block ever written.
        let end = if answer.is_some() { end } else { blocks.end };
        Ok((answer.unwrap_or(true), (end * size).min(range.end)))
    }
}
