//! Frees the space of a block, including a gang's pieces.
//!
//! A checkpoint keeps space by its physical birth. OpenZFS (`metaslab_free`) uses the logical birth, and so
//! frees a checkpoint's block if its last pointer is a later clone.
//!
//! Source: OpenZFS `zio.c` (`zio_free_sync`, `zio_free_gang`, `zio_claim`).

use crate::alloc::{AllocError, Allocator};
use crate::context::ReadContext;
use crate::error::{PoolError, Result};
use crate::gang::MAX_GANG_DEPTH;
use crate::pool::Pool;
use crate::read::bad_pointer;
use cenote_boxed::boxed;
use cenote_format::blkptr::{Blkptr, BlkptrKind, Dva};
use cenote_format::gang::SPA_OLD_GANGBLOCKSIZE;
use cenote_format::units::{Asize, PhysicalBirth, Txg};

impl Pool {
    /// Frees a block in the syncing txg `txg`. No pointer may lead to it any more. Holes and embedded blocks
    /// take no space. If a gang's header can't be read, its pieces stay allocated, and the leak is noted.
    ///
    /// # Errors
    /// The block is not allocated, or in a later txg.
    #[boxed]
    pub async fn free(&self, space: &Allocator, bp: &Blkptr, txg: Txg, ctx: &ReadContext) -> Result<()> {
        let leaks = |lost: PoolError, bp: &Blkptr| {
            // The headers themselves are freed.
            let vdevs = self.tree().vdevs();
            let headers = bp.dvas().filter_map(|dva| {
                let asize =
                    vdevs.psize_to_asize(dva.vdev, SPA_OLD_GANGBLOCKSIZE as u64, bp.physical_birth())?;
                Some(vdevs.deflate(dva.vdev, asize))
            });
            let headers: u64 = headers.sum();
            self.read_errors().note_leak(vdevs.dsize(bp).saturating_sub(headers), &lost);
            Ok(())
        };
        self.each_address(bp, ctx, leaks, |dva, birth| space.free(dva, birth, txg)).await
    }

    /// Calls `act` with each address and its birth. `lost` handles an unreadable gang header.
    pub(super) async fn each_address(
        &self,
        bp: &Blkptr,
        ctx: &ReadContext,
        lost: impl Fn(PoolError, &Blkptr) -> Result<()>,
        act: impl Fn(&Dva, PhysicalBirth) -> Result<(), AllocError>,
    ) -> Result<()> {
        let mut pending = vec![(*bp, 0)];
        while let Some((bp, depth)) = pending.pop() {
            if bp.kind() != BlkptrKind::Normal {
                continue;
            }
            if bp.is_gang() {
                let header = match depth < MAX_GANG_DEPTH {
                    true => self.as_stored().gang_header(&bp, ctx).await,
                    false => Err(bad_pointer(ctx.place, "gang headers are nested too deeply".into())),
                };
                match header {
                    Ok(header) => pending.extend(header.pieces().map(|piece| (*piece, depth + 1))),
                    Err(error) => lost(error, &bp)?,
                }
            }
            for dva in bp.dvas() {
                // A gang's address counts the pieces as well, which are freed separately.
                let header = self.tree().vdevs().psize_to_asize(
                    dva.vdev,
                    SPA_OLD_GANGBLOCKSIZE as u64,
                    bp.physical_birth(),
                );
                let asize = if dva.gang { header.map_or(dva.asize, Asize) } else { dva.asize };
                let dva = Dva { asize, ..dva };
                act(&dva, bp.physical_birth()).map_err(|error| PoolError::BadPointer {
                    place: ctx.place,
                    why: error.to_string().into(),
                })?;
            }
        }
        Ok(())
    }
}
