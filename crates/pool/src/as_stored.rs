//! Blocks as they are stored: verified, but neither decrypted nor decompressed.
//!
//! Streams, tools and trees of blocks without a key read and write this form; `read` decodes it.

use crate::check::Check;
use crate::context::ReadContext;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::read::{bad_pointer, checked_psize, damaged};
use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::gang::GangHeader;

/// Blocks of a pool in their stored form.
#[derive(Clone, Copy)]
pub struct AsStored<'a>(pub(crate) &'a Pool);

impl Pool {
    /// Blocks in their stored form.
    pub fn as_stored(&self) -> AsStored<'_> {
        AsStored(self)
    }
}

impl AsStored<'_> {
    /// Reads a block as stored: verified, neither decrypted nor decompressed; `psize` bytes.
    #[boxed]
    pub async fn read(&self, bp: &Blkptr, ctx: &ReadContext) -> Result<Bytes> {
        let place = ctx.place;
        match bp.kind() {
            BlkptrKind::Hole => Ok(Bytes::new()),
            BlkptrKind::Embedded => Ok(bp.embedded_payload().into()),
            BlkptrKind::Redacted => Err(PoolError::Redacted { place }),
            BlkptrKind::Normal if bp.is_gang() => self.0.read_gang(bp, ctx, 0).await,
            BlkptrKind::Normal => {
                let psize = checked_psize(bp, place)?;
                let check = Check::of(bp, self.0.salt()).map_err(|source| damaged(bp, place, source))?;
                if let Some(stored) = self.0.kept(bp).filter(|stored| check.verify(stored).is_ok()) {
                    return Ok(stored);
                }
                let Some(second) = self.0.second_level() else {
                    return self.0.read_copies(bp, psize, &check, ctx).await;
                };
                if let Some(stored) = self.0.read_second(&*second, bp, &check).await {
                    return Ok(stored);
                }
                let stored = self.0.read_copies(bp, psize, &check, ctx).await?;
                self.0.offer(&*second, bp, &stored, ctx.secondary);
                Ok(stored)
            }
        }
    }

    /// Reads the header of a gang. Check that it [fits](GangHeader::fits) before following its pieces.
    #[boxed]
    pub async fn gang_header(&self, bp: &Blkptr, ctx: &ReadContext) -> Result<GangHeader> {
        let place = ctx.place;
        let check = Check::gang_header(bp)
            .ok_or_else(|| bad_pointer(place, "a gang block without an address".into()))?;
        let room_bytes = self.0.tree().vdevs().gang_header_bytes(bp.dvas());
        let bytes = self.0.read_copies(bp, room_bytes, &check, ctx).await?;
        let what = || format!("{place}: gang header").into();
        let header_bytes = check.gang_header_bytes(&bytes).unwrap_or(bytes.len());
        GangHeader::decode(&bytes[..header_bytes.min(bytes.len())])
            .map_err(|source| PoolError::Format { what: what(), source })
    }
}
