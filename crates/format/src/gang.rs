//! Gang block header: says where the pieces of a block lie when no single free range was long enough.
//!
//! Idea: a DVA with the gang bit points to a header of 512 bytes. Its block pointers are read in order and
//! their logical bytes concatenated; a piece may be a gang itself. Of the result, only the gang's own
//! physical size counts. The header's checksum is salted with the block's address and birth; the layer that
//! knows these verifies it.
//!
//! Layout:
//!
//! ```text
//!     0 three block pointers (384)   384 filler (88)   472 zio_eck: magic (8), checksum (32)
//! ```
//!
//! Source: OpenZFS `zio.h` (`zio_gbh_phys_t`, `zio_eck_t`).

use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result};

/// Bytes of a gang header, `SPA_GANGBLOCKSIZE`.
pub const SPA_GANGBLOCKSIZE: usize = 512;
/// Block pointers in it, `SPA_GBH_NBLKPTRS`.
pub const SPA_GBH_NBLKPTRS: usize = 3;
/// `ZEC_MAGIC`, in front of every embedded checksum; tells the byte order.
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of a `zio_eck_t`.
pub const ZIO_ECK_BYTES: usize = 40;
/// Unused bytes between the pointers and the checksum.
const FILLER_BYTES: usize = 88;

const _: () = assert!(SPA_GBH_NBLKPTRS * BLKPTR_BYTES + FILLER_BYTES + ZIO_ECK_BYTES == SPA_GANGBLOCKSIZE);

/// A checksum stored inside the block that it covers, `zio_eck_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedChecksum {
    /// Byte order of the block, as its magic number shows.
    pub endian: Endian,
    /// The checksum; for a log block, its identity.
    pub checksum: [u64; 4],
}

impl EmbeddedChecksum {
    /// Decodes 40 bytes in whichever byte order the magic number shows.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let magic = Reader::new("embedded checksum", data, Endian::Little).array()?;
        let endian = Endian::of_magic(ZEC_MAGIC, magic)
            .ok_or(FormatError::BadMagic { what: "embedded checksum", found: u64::from_le_bytes(magic) })?;
        let mut r = Reader::new("embedded checksum", data, endian);
        r.skip(8)?;
        Ok(EmbeddedChecksum { endian, checksum: r.words()? })
    }

    /// Appends the 40 bytes, in the byte order of `w` (which must be `self.endian`).
    pub fn write(&self, w: &mut Writer) {
        w.u64(ZEC_MAGIC).words(&self.checksum);
    }
}

/// A gang header, `zio_gbh_phys_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangHeader {
    /// The pieces; unused ones are holes.
    pub pieces: [Blkptr; SPA_GBH_NBLKPTRS],
    /// The header's own checksum.
    pub tail: EmbeddedChecksum,
}

impl GangHeader {
    /// Decodes a header of 512 bytes in the order that its magic number shows.
    pub fn decode(block: &[u8]) -> Result<Self> {
        let truncated =
            FormatError::Truncated { what: "gang header", need: SPA_GANGBLOCKSIZE, have: block.len() };
        let tail_bytes = block.get(SPA_GANGBLOCKSIZE - ZIO_ECK_BYTES..SPA_GANGBLOCKSIZE).ok_or(truncated)?;
        let tail = EmbeddedChecksum::decode(tail_bytes)?;
        let mut r = Reader::new("gang header", block, tail.endian);
        let mut pieces = [Blkptr::HOLE; SPA_GBH_NBLKPTRS];
        for piece in &mut pieces {
            *piece = Blkptr::read(&mut r)?;
        }
        debug_assert_eq!(r.position() + FILLER_BYTES, SPA_GANGBLOCKSIZE - ZIO_ECK_BYTES);
        Ok(GangHeader { pieces, tail })
    }

    /// The pieces in use.
    pub fn pieces(&self) -> impl Iterator<Item = &Blkptr> {
        self.pieces.iter().filter(|piece| !piece.is_hole())
    }

    /// Whether its pieces are non-empty and add up to the block's size. This bounds pieces of pieces,
    /// whatever headers refer to each other.
    pub fn fits(&self, block_bytes: u64) -> bool {
        let bytes = |piece: &Blkptr| piece.psize().0;
        self.pieces().all(|piece| bytes(piece) > 0) && self.pieces().map(bytes).sum::<u64>() == block_bytes
    }

    /// The 512 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new(self.tail.endian);
        for piece in &self.pieces {
            piece.write(&mut w);
        }
        w.bytes(&[0; FILLER_BYTES]);
        self.tail.write(&mut w);
        assert_eq!(w.position(), SPA_GANGBLOCKSIZE);
        w.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pointer to a piece of this many sectors.
    fn piece(sectors: u64) -> Blkptr {
        let mut words = [0; BLKPTR_BYTES / 8];
        (words[0], words[1], words[6], words[10]) = (1, 8, (sectors - 1) << 16, 5);
        Blkptr::from_words(words)
    }

    #[test]
    fn pieces_must_add_up_to_the_block() {
        let tail = EmbeddedChecksum { endian: Endian::Little, checksum: [0; 4] };
        let header = GangHeader { pieces: [piece(3), piece(1), Blkptr::HOLE], tail };
        assert!(header.fits(4 * 512));
        // A header that leads back to itself three times never fits.
        let circle = GangHeader { pieces: [piece(4); 3], tail };
        assert!(!circle.fits(4 * 512));
    }

    proptest! {
        #[test]
        fn headers_round_trip_in_both_orders(
            words in any::<[[u64; 16]; 3]>(),
            checksum in any::<[u64; 4]>(),
        ) {
            for endian in [Endian::Little, Endian::Big] {
                let tail = EmbeddedChecksum { endian, checksum };
                let header = GangHeader { pieces: words.map(Blkptr::from_words), tail };
                let raw = header.encode();
                prop_assert_eq!(raw.len(), SPA_GANGBLOCKSIZE);
                prop_assert_eq!(GangHeader::decode(&raw).unwrap(), header);
            }
        }

        #[test]
        fn anything_without_the_magic_is_refused(raw in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(GangHeader::decode(&raw).is_err());
        }
    }
}
