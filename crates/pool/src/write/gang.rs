//! Writes a gang: a header with as many pieces as it has room for, each of which may be a gang again.
//!
//! ```text
//!   bp --gang bit--> header, at least two copies | piece | piece | ... | piece |
//!                                     each as long as a free range, no shorter than fills the other slots
//! ```
//!
//! Idea: a piece takes the longest free range of half, a quarter... of the rest. If no range is long enough
//! for the pieces to suffice, the piece becomes a gang itself. A larger header (feature
//! `dynamic_gang_header`) has room for shorter pieces. If one would have helped, that is noted, and the
//! engine activates the feature in the next txg ([`TxgWrites::take_cramped`]).
//!
//! The pointer to a gang has the checksum of the whole block; the header's own checksum is inside it. Pieces
//! have neither type nor MAC: they are checked as stored. The size in a gang's address includes, besides the
//! header, the pieces' copies of the same number.
//!
//! Source: OpenZFS `zio_write_gang_block`, `zio_write_gang_member_ready`, `zio_rewrite_gang`.

use super::place::Placing;
use super::{TxgWrites, refused};
use crate::check::native_endian;
use crate::context::ReadContext;
use crate::error::Result;
use crate::pool::Pool;
use crate::zbookmark::Zbookmark;
use bytes::Bytes;
use cenote_codec::checksum::embedded::gang_verifier;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlockIdentity, Dva};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::gang::{EmbeddedChecksum, GangHeader, SPA_OLD_GANGBLOCKSIZE, gbh_nblkptrs};
use cenote_format::units::{Lsize, Psize, SPA_MINBLOCKSIZE, Txg};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::atomic::Ordering;

const NOT_SEALED: EmbeddedChecksum = EmbeddedChecksum { endian: Endian::NATIVE, checksum: [0; 4] };

impl TxgWrites<'_> {
    /// Whether a larger gang header would have helped since the last call.
    pub fn take_cramped(&self) -> bool {
        self.0.cramped().swap(false, Ordering::Relaxed)
    }
}

impl Pool {
    fn note_cramped(&self) {
        self.cramped().store(true, Ordering::Relaxed);
    }

    pub(super) fn place_gang<'a>(
        &'a self,
        placing: &'a mut Placing<'_>,
        bp: Blkptr,
        stored: &'a Bytes,
    ) -> BoxFuture<'a, Result<Blkptr>> {
        async move {
            // Without its header all pieces are lost, so the header has a second copy.
            let copies = placing.copies.max(2);
            let mut dvas = placing.allocate(SPA_OLD_GANGBLOCKSIZE, copies)?;
            placing.near = dvas.first().map(|dva| dva.vdev);
            let slots = gbh_nblkptrs(self.header_bytes(placing, &dvas));
            let mut pieces = Vec::with_capacity(slots);
            let (mut rest, mut is_cramped) = (stored.clone(), false);
            while !rest.is_empty() {
                let least = self.least_piece(&rest, slots - pieces.len(), stored.len());
                let longest = placing.longest(least, rest.len());
                is_cramped |= longest.is_none();
                let bytes = rest.split_to(longest.unwrap_or(least));
                let piece = self.piece(placing, &bytes)?;
                pieces.push(self.place(placing, piece, &bytes).await?);
            }
            if is_cramped
                && self.tree().vdevs().gang_header_bytes(dvas.iter().copied()) > SPA_OLD_GANGBLOCKSIZE
            {
                self.note_cramped();
            }
            loop {
                let header_bytes = self.header_bytes(placing, &dvas);
                if pieces.len() > gbh_nblkptrs(header_bytes) {
                    let why = "no vdev whose gang headers have room for its pieces takes writes";
                    return Err(refused(placing.props.place, why.to_owned()));
                }
                let header = GangHeader::new(&pieces, header_bytes, NOT_SEALED);
                let header = seal_header(&header, &bp, &dvas, placing.txg)?;
                match self.write_copies(&dvas, &header, placing.txg, self.for_block(placing.txg)).await {
                    Ok(()) => break,
                    Err(failures) => placing.give_back(&dvas, failures),
                }
                dvas = placing.allocate(SPA_OLD_GANGBLOCKSIZE, copies)?;
            }
            for (copy, dva) in dvas.iter_mut().enumerate() {
                dva.gang = true;
                let pieces = pieces.iter().filter_map(|piece| piece.dvas().nth(copy));
                dva.asize.0 += pieces.map(|piece| piece.asize.0).sum::<u64>();
            }
            Ok(bp.with_dvas(&dvas))
        }
        .boxed()
    }

    fn header_bytes(&self, placing: &Placing<'_>, dvas: &[Dva]) -> usize {
        match placing.props.large_gang_headers {
            true => self.tree().vdevs().gang_header_bytes(dvas.iter().copied()),
            false => SPA_OLD_GANGBLOCKSIZE,
        }
    }

    /// The least next piece, so that all slots suffice; less than `block_bytes`.
    fn least_piece(&self, rest: &Bytes, slots_left: usize, block_bytes: usize) -> usize {
        let (_, unit_bytes) = self.tree().vdevs().alloc_unit_bytes();
        let share = rest.len().div_ceil(slots_left.max(1));
        let in_units = share.next_multiple_of(unit_bytes as usize);
        let least = if in_units < block_bytes { in_units } else { share };
        least.next_multiple_of(SPA_MINBLOCKSIZE as usize).min(rest.len())
    }

    fn piece(&self, placing: &Placing<'_>, bytes: &[u8]) -> Result<Blkptr> {
        let (props, len) = (placing.props, bytes.len() as u64);
        let identity =
            BlockIdentity { lsize: Lsize(len), object_type: ObjectType::NONE, level: 0, birth: placing.txg };
        let bp = Blkptr::block(&identity, Psize(len), Compression::Off as u8, props.checksum as u8, 0);
        let words = props.checksum.compute(bytes, native_endian(), self.salt());
        Ok(bp.with_checksum(&words.map_err(|error| refused(props.place, error.to_string()))?))
    }

    /// Overwrites pieces and header; the length stays.
    pub(super) fn overwrite_gang<'a>(
        &'a self,
        bp: Blkptr,
        stored: &'a Bytes,
        place: Zbookmark,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut header = self.as_stored().gang_header(&bp, &ReadContext::new(place)).await?;
            header.tail = NOT_SEALED;
            let txg = bp.physical_birth().txg();
            let mut rest = stored.clone();
            for piece in header.pieces_mut() {
                let len = piece.psize().0 as usize;
                if len > rest.len() {
                    return Err(refused(place, "the gang is shorter than the block".to_owned()));
                }
                let bytes = rest.split_to(len);
                let words = Checksum::try_from(piece.checksum_id())
                    .and_then(|checksum| checksum.compute(&bytes, native_endian(), self.salt()));
                *piece = piece.with_checksum(&words.map_err(|error| refused(place, error.to_string()))?);
                let dvas: Vec<Dva> = piece.dvas().collect();
                match piece.is_gang() {
                    true => self.overwrite_gang(*piece, &bytes, place).await?,
                    false => self.overwrite_copies(&dvas, &bytes, txg, place, self.for_block(txg)).await?,
                }
            }
            let dvas: Vec<Dva> = bp.dvas().collect();
            let sealed = seal_header(&header, &bp, &dvas, txg)?;
            self.overwrite_copies(&dvas, &sealed, txg, place, self.for_block(txg)).await
        }
        .boxed()
    }
}

/// Seals the header for its first address and txg.
fn seal_header(header: &GangHeader, bp: &Blkptr, dvas: &[Dva], txg: Txg) -> Result<Bytes> {
    assert!(
        header.fits(bp.with_dvas(dvas).psize().0),
        "readers refuse pieces that don't add up to the block"
    );
    let mut bytes = header.encode();
    let first = dvas.first().copied().unwrap_or_default();
    let verifier = gang_verifier(first.vdev.0, first.offset_bytes, txg.0);
    let with_mac = bp.uses_crypt() && bp.object_type() != ObjectType::OBJSET;
    let holds = if with_mac { Stored::ChecksumAndMac } else { Stored::Checksum };
    Checksum::GangHeader
        .seal_as(&mut bytes, verifier, native_endian(), holds)
        .map_err(|error| refused(Zbookmark::default(), error.to_string()))?;
    Ok(bytes.into())
}
