//! An object's blocks on disk, for sharing.

use std::ops::Range;

use cenote_boxed::boxed;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::BlockId;

use crate::error::Result;
use crate::live::layer::Shown;
use crate::object::Object;

impl Object {
    /// Pointers of data blocks; `None`: some are only in memory.
    ///
    /// # Errors
    /// Unreadable indirect block.
    #[boxed]
    pub async fn stored_blocks(&self, range: Range<u64>) -> Result<Option<Vec<Blkptr>>> {
        let mut blocks = vec![Blkptr::HOLE; range.end.saturating_sub(range.start) as usize];
        for run in self.pointers(0, range.clone()).await {
            let at = (run.first.0 - range.start) as usize;
            for (place, bp) in blocks.iter_mut().skip(at).zip(run.pointers?) {
                *place = bp;
            }
        }
        for (block, place) in range.zip(&mut blocks) {
            match self.objset().layers().block(self.id(), BlockId(block)) {
                Shown::Below => {}
                Shown::Hole => *place = Blkptr::HOLE,
                Shown::Stored(bp) => *place = bp,
                Shown::Data(_) | Shown::Arrived(_) => return Ok(None),
            }
        }
        Ok(Some(blocks))
    }
}
