//! Where an object has data and where it has holes: `SEEK_DATA` and `SEEK_HOLE`.
//!
//! Idea: a hole high in the tree is a hole for all blocks below it, and an indirect block whose fill count equals its
//! fan-out has none. So a search steps over regions rather than blocks.

use cenote_format::units::BlockId;

use super::Object;
use crate::error::Result;

/// Blocks that are alike: the answer of one descent.
struct Region {
    /// One past its last block.
    end: u64,
    is_hole: bool,
}

impl Object {
    /// The first offset of data at or after `offset_bytes`, `None` if only holes follow.
    ///
    /// # Errors
    /// An indirect block can't be read.
    pub async fn next_data(&self, offset_bytes: u64) -> Result<Option<u64>> {
        let size = self.block_bytes().max(1);
        let block = self.next_data_block(BlockId(offset_bytes / size)).await?;
        Ok(block.map(|b| b.0.saturating_mul(size).max(offset_bytes)))
    }

    /// The first offset of a hole at or after `offset_bytes`; the end of the last block if none comes before.
    ///
    /// # Errors
    /// An indirect block can't be read.
    pub async fn next_hole(&self, offset_bytes: u64) -> Result<u64> {
        let size = self.block_bytes().max(1);
        let mut block = offset_bytes / size;
        while block <= self.dnode().max_block_id.0 {
            let region = self.region(block).await?;
            if region.is_hole {
                return Ok(block.saturating_mul(size).max(offset_bytes));
            }
            block = region.end;
        }
        Ok(self.capacity_bytes().max(offset_bytes))
    }

    /// The first block at or after `from` that is not a hole.
    ///
    /// # Errors
    /// An indirect block can't be read.
    pub async fn next_data_block(&self, from: BlockId) -> Result<Option<BlockId>> {
        let mut block = from.0;
        while block <= self.dnode().max_block_id.0 {
            let region = self.region(block).await?;
            if !region.is_hole {
                return Ok(Some(BlockId(block)));
            }
            block = region.end;
        }
        Ok(None)
    }

    /// The largest region beginning at `block` that one descent shows to be all data or all hole.
    async fn region(&self, block: u64) -> Result<Region> {
        let shift = self.dnode().fanout_shift();
        for level in (0..self.dnode().levels).rev() {
            let blocks_shift = shift * u32::from(level);
            let here = block.checked_shr(blocks_shift).unwrap_or(0);
            let bp = self.blkptr(level, BlockId(here)).await?;
            let full = blocks_shift < 64 && bp.fill() == 1u64.wrapping_shl(blocks_shift);
            if bp.is_hole() || level == 0 || full {
                let end = (here + 1).checked_mul(1u64.checked_shl(blocks_shift).unwrap_or(0));
                let end = end.filter(|&end| end > block).unwrap_or(u64::MAX);
                return Ok(Region { end, is_hole: bp.is_hole() });
            }
        }
        Ok(Region { end: block.saturating_add(1), is_hole: true })
    }
}
