//! Data and holes of an object: `SEEK_DATA` and `SEEK_HOLE`.
//!
//! Idea: a hole high in the tree covers all blocks below, and an indirect block whose fill count equals its
//! fan-out has no holes. So a search steps over regions, not blocks. Blocks under an unreadable indirect
//! block are a region, too.

use std::ops::Range;

use cenote_boxed::boxed;
use cenote_format::units::BlockId;

use crate::error::{DatasetError, Result};
use crate::live::layer::Shown;
use crate::object::Object;

/// Blocks of one kind, found by one descent.
pub(crate) struct Region {
    pub(crate) start: u64,
    /// One past its last block.
    pub(crate) end: u64,
    pub(crate) kind: RegionKind,
}

pub(crate) enum RegionKind {
    Hole,
    Data,
    /// The indirect block above is unreadable.
    Unreadable(DatasetError),
}

impl Object {
    /// The first offset of data from `offset_bytes` on.
    ///
    /// # Errors
    /// Unreadable indirect block.
    #[boxed]
    pub async fn next_data(&self, offset_bytes: u64) -> Result<Option<u64>> {
        let size = self.block_bytes().max(1);
        let block = self.next_data_block(BlockId(offset_bytes / size)).await?;
        Ok(block.map(|b| b.0.saturating_mul(size).max(offset_bytes)))
    }

    /// The first offset of a hole from `offset_bytes` on, at the latest the end of the last block.
    ///
    /// # Errors
    /// Unreadable indirect block.
    #[boxed]
    pub async fn next_hole(&self, offset_bytes: u64) -> Result<u64> {
        let size = self.block_bytes().max(1);
        let mut block = offset_bytes / size;
        while block <= self.dnode().max_block_id.0 {
            let region = self.region(block).await;
            match region.kind {
                RegionKind::Hole => return Ok(block.saturating_mul(size).max(offset_bytes)),
                RegionKind::Data => block = region.end,
                RegionKind::Unreadable(error) => return Err(error),
            }
        }
        Ok(self.capacity_bytes().max(offset_bytes))
    }

    /// Whether a range starts with data, and where that ends within it.
    ///
    /// # Errors
    /// Unreadable indirect block.
    #[boxed]
    pub async fn extent(&self, range: Range<u64>) -> Result<(bool, u64)> {
        let size = self.block_bytes().max(1);
        let (mut block, mut answer) = (range.start / size, None);
        while block.saturating_mul(size) < range.end {
            let region = self.region(block).await;
            let is_data = match region.kind {
                RegionKind::Unreadable(error) => return Err(error),
                RegionKind::Data => true,
                RegionKind::Hole => false,
            };
            if *answer.get_or_insert(is_data) != is_data {
                break;
            }
            block = region.end;
        }
        Ok((answer.unwrap_or(false), block.saturating_mul(size).min(range.end)))
    }

    /// The first block, not a hole, from `from` on.
    ///
    /// # Errors
    /// Unreadable indirect block.
    #[boxed]
    pub async fn next_data_block(&self, from: BlockId) -> Result<Option<BlockId>> {
        match self.next_region(from.0).await {
            None => Ok(None),
            Some(Region { kind: RegionKind::Unreadable(error), .. }) => Err(error),
            Some(region) => Ok(Some(BlockId(region.start))),
        }
    }

    /// The first region, not a hole, from `from` on. Continue at its end to skip an unreadable one.
    pub(crate) async fn next_region(&self, from: u64) -> Option<Region> {
        let mut block = from;
        while block <= self.dnode().max_block_id.0 {
            let region = self.region(block).await;
            match region.kind {
                RegionKind::Hole => block = region.end,
                _ => return Some(region),
            }
        }
        None
    }

    /// The region from `block` on that one descent shows to be of one kind.
    pub(super) async fn region(&self, block: u64) -> Region {
        let layers = self.objset().layers();
        let next = block.saturating_add(1);
        match layers.block(self.id(), BlockId(block)) {
            Shown::Data(_) | Shown::Stored(_) | Shown::Arrived(_) => {
                Region { start: block, end: next, kind: RegionKind::Data }
            }
            Shown::Hole => {
                let end = layers.hole_end(self.id(), BlockId(block));
                Region { start: block, end: end.max(next), kind: RegionKind::Hole }
            }
            Shown::Below => {
                let region = self.region_on_disk(block).await;
                let next = layers.next_change(self.id(), BlockId(block)).map_or(u64::MAX, |next| next.0);
                Region { end: region.end.min(next), ..region }
            }
        }
    }

    async fn region_on_disk(&self, block: u64) -> Region {
        let shift = self.dnode().fanout_shift();
        for level in (0..self.dnode().levels).rev() {
            let blocks_shift = shift * u32::from(level);
            let here = block.checked_shr(blocks_shift).unwrap_or(0);
            if level + 1 == self.dnode().levels && here >= self.dnode().blkptr_count.into() {
                // An object that grew in memory is longer than its tree.
                return Region { start: block, end: u64::MAX, kind: RegionKind::Hole };
            }
            let (kind, reach) = match self.blkptr(level, BlockId(here)).await {
                // The parent is unreadable, and with it all its children.
                Err(error) => (RegionKind::Unreadable(error), blocks_shift + shift),
                Ok(bp) if bp.is_hole() => (RegionKind::Hole, blocks_shift),
                Ok(bp) if level == 0 || (blocks_shift < 64 && bp.fill() == 1 << blocks_shift) => {
                    (RegionKind::Data, blocks_shift)
                }
                Ok(_) => continue,
            };
            return Region { start: block, end: end_of_subtree(block, reach), kind };
        }
        Region { start: block, end: block.saturating_add(1), kind: RegionKind::Hole }
    }
}

/// End of the subtree of `1 << shift` blocks around `block`.
fn end_of_subtree(block: u64, shift: u32) -> u64 {
    let parent = block.checked_shr(shift).unwrap_or(0);
    1u64.checked_shl(shift).and_then(|blocks| (parent + 1).checked_mul(blocks)).unwrap_or(u64::MAX)
}
