//! Restores a lost block at its own place, from content kept elsewhere.
//!
//! Idea: the pointer states the block's size, compression, encryption and checksum, so the stored bytes can
//! be made again from the content. Only bytes that match the checksum are written. Compressors differ between
//! versions; still compressed bytes (`zfs send -c`) always match.
//!
//! Invariant: as for [`Repair::heal`], the view keeps the block's space firmly.
//!
//! Source: OpenZFS `dmu_recv.c` (`do_corrective_recv`).

use std::sync::Arc;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_format::blkptr::{Blkptr, BlkptrKind, Dva};
use cenote_format::bytes::is_zero;
use cenote_format::units::Txg;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::check::Check;
use crate::context::ReadContext;
use crate::crypt::{self, DatasetKey};
use crate::error::{PoolError, Result};
use crate::gang::MAX_GANG_DEPTH;
use crate::heal::Repair;
use crate::pool::Pool;
use crate::vdev::unflushed::Stake;
use crate::vdev::write::{Durable, How};
use crate::zbookmark::Zbookmark;

/// zstd's levels, the usual one first: a pointer does not have the level.
const ZSTD_LEVELS: [u8; 40] = [
    3, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 103, 104, 105, 106, 107, 108, 109,
    110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123,
];

/// Content of a block.
#[derive(Debug, Clone)]
pub enum Kept {
    /// Decoded.
    Clear(Bytes),
    /// Compressed.
    Packed {
        /// The compressor's output, perhaps with zeros after it.
        bytes: Bytes,
        /// The compressor.
        compression: Compression,
    },
    /// As stored, encrypted.
    Sealed(Bytes),
}

/// The result of restoring a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// All copies are written.
    Written,
    /// The content does not make the block that the pointer names.
    Mismatch,
}

impl Repair<'_> {
    /// Writes a block's copies anew, if `kept` is its content; [`Pool::flush`] makes that durable. A clear
    /// block of an encrypted dataset needs the key.
    ///
    /// # Errors
    /// No key; a device fails, or a part of the block lies on a removed one.
    #[boxed]
    pub async fn restore(
        &self,
        bp: &Blkptr,
        kept: &Kept,
        key: Option<&Arc<DatasetKey>>,
        place: Zbookmark,
    ) -> Result<Restored> {
        if bp.kind() != BlkptrKind::Normal {
            return Ok(Restored::Mismatch);
        }
        let candidates = match kept {
            Kept::Sealed(stored) => vec![stored.clone()],
            kept if !bp.uses_crypt() => stored_forms(bp, kept),
            kept => {
                let key = key.ok_or(PoolError::NoKey { dataset: place.dataset })?;
                let forms = stored_forms(bp, kept).into_iter();
                forms.filter_map(|form| crypt::seal_as(bp, form, key)).collect()
            }
        };
        for stored in candidates {
            if stored.len() as u64 == bp.psize().0 && self.0.matches(*bp, &stored, place, 0).await? {
                self.0.rewrite(*bp, &stored, place, 0).await?;
                return Ok(Restored::Written);
            }
        }
        Ok(Restored::Mismatch)
    }
}

impl Pool {
    /// Whether these bytes are the block's.
    fn matches<'a>(
        &'a self,
        bp: Blkptr,
        stored: &'a Bytes,
        place: Zbookmark,
        depth: u32,
    ) -> BoxFuture<'a, Result<bool>> {
        async move {
            if !bp.is_gang() {
                return Ok(Check::of(&bp, self.salt()).is_ok_and(|check| check.verify(stored).is_ok()));
            }
            for (piece, bytes) in self.pieces(&bp, stored, place, depth).await? {
                if !self.matches(piece, &bytes, place, depth + 1).await? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .boxed()
    }

    fn rewrite<'a>(
        &'a self,
        bp: Blkptr,
        stored: &'a Bytes,
        place: Zbookmark,
        depth: u32,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            if bp.is_gang() {
                for (piece, bytes) in self.pieces(&bp, stored, place, depth).await? {
                    self.rewrite(piece, &bytes, place, depth + 1).await?;
                }
                return Ok(());
            }
            let birth = bp.physical_birth();
            let stake = Stake::repair(birth, Txg(self.uberblock().txg.0 + 1));
            let how = How { class: self.writes(), durable: Durable::Flushed, stake };
            let dvas: Vec<Dva> = bp.dvas().collect();
            self.overwrite_copies(&dvas, stored, birth.txg(), place, how).await
        }
        .boxed()
    }

    /// The pieces of a gang block with their bytes.
    async fn pieces(
        &self,
        bp: &Blkptr,
        stored: &Bytes,
        place: Zbookmark,
        depth: u32,
    ) -> Result<Vec<(Blkptr, Bytes)>> {
        let header = self.as_stored().gang_header(bp, &ReadContext::new(place)).await?;
        let (mut rest, mut pieces) = (stored.clone(), Vec::new());
        for piece in header.pieces() {
            let len = usize::try_from(piece.psize().0).unwrap_or(usize::MAX);
            if len > rest.len() || depth >= MAX_GANG_DEPTH {
                return Err(super::refused(place, "the gang does not fit the block".to_owned()));
            }
            pieces.push((*piece, rest.split_to(len)));
        }
        match rest.is_empty() {
            true => Ok(pieces),
            false => Err(super::refused(place, "the gang is shorter than the block".to_owned())),
        }
    }
}

/// The forms, before encryption, in which a block of this pointer may be stored.
fn stored_forms(bp: &Blkptr, kept: &Kept) -> Vec<Bytes> {
    let sized = |bytes: &[u8]| -> Option<Bytes> {
        let psize = usize::try_from(bp.psize().0).ok()?;
        let (kept, rest) = bytes.split_at(psize.min(bytes.len()));
        let mut bytes = kept.to_vec();
        bytes.resize(psize, 0);
        is_zero(rest).then(|| bytes.into())
    };
    let Ok(own) = Compression::try_from(bp.compression_id()) else { return Vec::new() };
    let lsize = usize::try_from(bp.lsize().0).unwrap_or(usize::MAX);
    let (mut forms, clear) = match kept {
        Kept::Clear(clear) => (Vec::new(), Some(clear.clone())),
        Kept::Packed { bytes, compression } => {
            let as_it_is = sized(bytes).filter(|_| *compression == own);
            (as_it_is.into_iter().collect(), compression.decompress(bytes, lsize).ok().map(Bytes::from))
        }
        Kept::Sealed(_) => (Vec::new(), None),
    };
    let Some(clear) = clear.filter(|clear| clear.len() == lsize) else { return forms };
    if own == Compression::Off {
        forms.push(clear);
        return forms;
    }
    let levels = if own == Compression::Zstd { &ZSTD_LEVELS[..] } else { &ZSTD_LEVELS[..1] };
    forms.extend(levels.iter().filter_map(|level| {
        let limit = usize::try_from(bp.psize().0).ok()?;
        sized(&own.compress(&clear, limit, ZstdLevel::new(*level)?).ok()??)
    }));
    forms
}
