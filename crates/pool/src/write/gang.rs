//! Writing a gang: a header with up to three pieces, each of which may be a gang again.
//!
//! ```text
//!   bp --gang bit--> header, at least two copies | piece | piece | piece |
//!                                                   thirds of the block, in whole 512 bytes
//! ```
//!
//! The pointer to a gang has the checksum of the whole block, as for any block; the header's own checksum
//! is inside it. Pieces have neither type nor MAC: they are checked as stored. The size in a gang's address
//! includes, besides the header, the pieces' copies of the same number.
//!
//! Source: OpenZFS `zio_write_gang_block`, `zio_write_gang_member_ready`, `zio_rewrite_gang`.

use super::{Placing, refused};
use crate::check::native_endian;
use crate::error::Result;
use crate::pool::{Pool, ReadContext};
use crate::zbookmark::Zbookmark;
use bytes::Bytes;
use cenote_codec::checksum::embedded::gang_verifier;
use cenote_codec::checksum::{Checksum, Stored};
use cenote_codec::compress::Compression;
use cenote_format::blkptr::{Blkptr, BlockIdentity, Dva};
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::gang::{EmbeddedChecksum, GangHeader, SPA_GANGBLOCKSIZE, SPA_GBH_NBLKPTRS};
use cenote_format::units::{Lsize, Psize, SPA_MINBLOCKSIZE, Txg};
use futures::FutureExt;
use futures::future::BoxFuture;

impl Pool {
    /// Writes a block in pieces.
    pub(super) fn place_gang<'a>(
        &'a self,
        placing: &'a mut Placing<'_>,
        bp: Blkptr,
        stored: &'a Bytes,
    ) -> BoxFuture<'a, Result<Blkptr>> {
        async move {
            // Without its header all pieces are lost, so the header has a second copy.
            let copies = placing.copies.max(2);
            let mut dvas = placing.allocate(SPA_GANGBLOCKSIZE, copies)?;
            placing.near = dvas.first().map(|dva| dva.vdev);
            let mut pieces = [Blkptr::HOLE; SPA_GBH_NBLKPTRS];
            for (slot, bytes) in pieces.iter_mut().zip(thirds(stored)) {
                let piece = self.piece(placing, &bytes)?;
                *slot = self.place(placing, piece, &bytes).await?;
            }
            loop {
                let header = seal_header(&pieces, &bp, &dvas, placing.txg)?;
                match self.write_copies(&dvas, &header, placing.txg, self.for_block(placing.txg)).await {
                    Ok(()) => break,
                    Err(failures) => placing.give_back(&dvas, failures),
                }
                dvas = placing.allocate(SPA_GANGBLOCKSIZE, copies)?;
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

    /// The pointer to a piece, still without an address.
    fn piece(&self, placing: &Placing<'_>, bytes: &[u8]) -> Result<Blkptr> {
        let (props, len) = (placing.props, bytes.len() as u64);
        let identity =
            BlockIdentity { lsize: Lsize(len), object_type: ObjectType::NONE, level: 0, birth: placing.txg };
        let bp = Blkptr::block(&identity, Psize(len), Compression::Off as u8, props.checksum as u8, 0);
        let words = props.checksum.compute(bytes, native_endian(), self.salt());
        Ok(bp.with_checksum(&words.map_err(|error| refused(props.place, error.to_string()))?))
    }

    /// Overwrites a gang, pieces and header. `bp` leads to it; the new bytes must be as many as the old.
    pub(super) fn overwrite_gang<'a>(
        &'a self,
        bp: Blkptr,
        stored: &'a Bytes,
        place: Zbookmark,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut header = self.read_gang_header(&bp, &ReadContext::new(place)).await?;
            let txg = bp.physical_birth().txg();
            let mut rest = stored.clone();
            for piece in header.pieces.iter_mut().filter(|piece| !piece.is_hole()) {
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
            let sealed = seal_header(&header.pieces, &bp, &dvas, txg)?;
            self.overwrite_copies(&dvas, &sealed, txg, place, self.for_block(txg)).await
        }
        .boxed()
    }
}

/// The block in three nearly equal pieces of whole 512 bytes; fewer if it is too short.
fn thirds(block: &Bytes) -> Vec<Bytes> {
    let mut rest = block.clone();
    let mut pieces = Vec::with_capacity(SPA_GBH_NBLKPTRS);
    for left in (1..=SPA_GBH_NBLKPTRS).rev() {
        let len = (rest.len() / left).next_multiple_of(SPA_MINBLOCKSIZE as usize).min(rest.len());
        if len > 0 {
            pieces.push(rest.split_to(len));
        }
    }
    pieces
}

/// The header's bytes, with a checksum bound to its first address and its txg.
fn seal_header(pieces: &[Blkptr; SPA_GBH_NBLKPTRS], bp: &Blkptr, dvas: &[Dva], txg: Txg) -> Result<Bytes> {
    let tail = EmbeddedChecksum { endian: Endian::NATIVE, checksum: [0; 4] };
    let header = GangHeader { pieces: *pieces, tail };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_block() {
        for sectors in [2, 3, 4, 5, 7, 100, 32_768] {
            let block = Bytes::from(vec![7; sectors * 512]);
            let pieces = thirds(&block);
            assert_eq!(pieces.concat(), block);
            assert!(pieces.len() <= 3 && pieces.iter().all(|piece| piece.len() < block.len()));
            assert!(pieces.iter().all(|piece| piece.len() % 512 == 0));
        }
    }
}
