//! Gang blocks: a block in pieces, because no single free range was long enough.
//!
//! The pointer leads to a header with pointers to pieces, each with its own checksum; a piece may itself be a
//! gang. The header is read at its largest possible size; its checksum reveals the actual one, whatever the
//! pool's features. The concatenated pieces are the block as stored. Their checksums cover every byte, so the
//! block needs none; OpenZFS rewrites headers without renewing it.
//!
//! Bounds: the pieces of a header add up to the block's size, so the total read is at most that times the
//! depth.

use crate::context::ReadContext;
use crate::error::Result;
use crate::pool::Pool;
use crate::read::{bad_pointer, checked_psize};
use bytes::{Bytes, BytesMut};
use cenote_format::blkptr::Blkptr;
use futures::FutureExt;
use futures::future::BoxFuture;

/// Splitting into three takes 16 MiB to sectors in ten levels.
pub const MAX_GANG_DEPTH: u32 = 16;

impl Pool {
    pub(crate) fn read_gang<'a>(
        &'a self,
        bp: &'a Blkptr,
        ctx: &'a ReadContext,
        depth: u32,
    ) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let psize = checked_psize(bp, ctx.place)?;
            if depth >= MAX_GANG_DEPTH {
                let why = "gang headers are nested too deeply";
                return Err(bad_pointer(ctx.place, why.into()));
            }
            let header = self.as_stored().gang_header(bp, ctx).await?;
            if !header.fits(psize as u64) {
                let why = format!("the pieces of its gang do not add up to {psize} bytes");
                return Err(bad_pointer(ctx.place, why));
            }
            let mut block = BytesMut::with_capacity(psize);
            for piece in header.pieces() {
                let bytes = match piece.is_gang() {
                    true => self.read_gang(piece, ctx, depth + 1).await?,
                    false => self.as_stored().read(piece, ctx).boxed().await?,
                };
                block.extend_from_slice(&bytes);
            }
            Ok(block.freeze())
        }
        .boxed()
    }
}
