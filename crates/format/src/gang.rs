//! Gang block header: the pieces of a block for which no single free range was long enough.
//!
//! Idea: a DVA with the gang bit points to a header. The logical bytes of its block pointers, in order, make
//! up the block, cut to the gang's own physical size; a piece may be a gang itself. The header's checksum is
//! salted with the block's address and birth; the layer that knows these verifies it.
//!
//! A header has 512 bytes or, with feature `dynamic_gang_header`, the smallest allocation of its vdevs. Only
//! the checksum at the end tells them apart.
//!
//! Layout of a header of S bytes:
//!
//! ```text
//!     0 n = (S - 40) / 128 block pointers   128 n zeros   S - 40 zio_eck: magic (8), checksum (32)
//!
//!     S    512   4096   8192   16384
//!     n      3     31     63     127
//! ```
//!
//! Source: OpenZFS `zio.h` (`gbh_nblkptrs`, `gbh_eck`, `zio_eck_t`).

use crate::blkptr::{BLKPTR_BYTES, Blkptr};
use crate::bytes::{Endian, Reader, Writer};
use crate::error::{FormatError, Result};

/// Header size without the feature, `SPA_OLD_GANGBLOCKSIZE`. With the feature, a header's allocated size is
/// still computed from this.
pub const SPA_OLD_GANGBLOCKSIZE: usize = 512;
/// `ZEC_MAGIC`, before every embedded checksum; shows the byte order.
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of a `zio_eck_t`.
pub const ZIO_ECK_BYTES: usize = 40;

/// Block pointers in a header of that size, `gbh_nblkptrs`.
pub const fn gbh_nblkptrs(header_bytes: usize) -> usize {
    header_bytes.saturating_sub(ZIO_ECK_BYTES) / BLKPTR_BYTES
}

const _: () = assert!(gbh_nblkptrs(SPA_OLD_GANGBLOCKSIZE) == 3 && gbh_nblkptrs(4096) == 31);

/// Checksum inside the block that it covers, `zio_eck_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedChecksum {
    /// Byte order of the block, from the magic number.
    pub endian: Endian,
    /// Checksum; for a log block, its identity.
    pub checksum: [u64; 4],
}

impl EmbeddedChecksum {
    /// Decodes 40 bytes in either byte order.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let magic = Reader::new("embedded checksum", data, Endian::Little).array()?;
        let endian = Endian::of_magic(ZEC_MAGIC, magic)
            .ok_or(FormatError::BadMagic { what: "embedded checksum", found: u64::from_le_bytes(magic) })?;
        let mut r = Reader::new("embedded checksum", data, endian);
        r.skip(8)?;
        Ok(EmbeddedChecksum { endian, checksum: r.words()? })
    }

    /// Encodes 40 bytes in the byte order of `w`, which must be `self.endian`.
    pub fn write(&self, w: &mut Writer) {
        w.u64(ZEC_MAGIC).words(&self.checksum);
    }
}

/// Gang header, `zio_gbh_phys_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangHeader {
    /// All pointers; unused ones are holes.
    slots: Vec<Blkptr>,
    /// Size, possibly more than pointers and checksum take.
    header_bytes: usize,
    /// Checksum of the header.
    pub tail: EmbeddedChecksum,
}

impl GangHeader {
    /// A header of `header_bytes` with as many of the pieces as fit.
    pub fn new(pieces: &[Blkptr], header_bytes: usize, tail: EmbeddedChecksum) -> GangHeader {
        let mut slots = vec![Blkptr::HOLE; gbh_nblkptrs(header_bytes)];
        slots.iter_mut().zip(pieces).for_each(|(slot, piece)| *slot = *piece);
        GangHeader { slots, header_bytes, tail }
    }

    /// Decodes a header that fills `block`, in either byte order.
    pub fn decode(block: &[u8]) -> Result<Self> {
        let truncated =
            FormatError::Truncated { what: "gang header", need: SPA_OLD_GANGBLOCKSIZE, have: block.len() };
        if block.len() < SPA_OLD_GANGBLOCKSIZE {
            return Err(truncated);
        }
        let tail = EmbeddedChecksum::decode(block.get(block.len() - ZIO_ECK_BYTES..).ok_or(truncated)?)?;
        let mut r = Reader::new("gang header", block, tail.endian);
        let slots = (0..gbh_nblkptrs(block.len())).map(|_| Blkptr::read(&mut r)).collect::<Result<_>>()?;
        Ok(GangHeader { slots, header_bytes: block.len(), tail })
    }

    /// Size in bytes.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Used pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &Blkptr> {
        self.slots.iter().filter(|piece| !piece.is_hole())
    }

    /// Used pieces, mutable.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = &mut Blkptr> {
        self.slots.iter_mut().filter(|piece| !piece.is_hole())
    }

    /// Whether the pieces are non-empty and add up to the block's size. This bounds the recursion, even for
    /// cyclic headers.
    pub fn fits(&self, block_bytes: u64) -> bool {
        let bytes = |piece: &Blkptr| piece.psize().0;
        self.pieces().all(|piece| bytes(piece) > 0) && self.pieces().map(bytes).sum::<u64>() == block_bytes
    }

    /// Encodes the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new(self.tail.endian);
        for piece in &self.slots {
            piece.write(&mut w);
        }
        let filler_bytes = self.header_bytes.saturating_sub(ZIO_ECK_BYTES + w.position());
        w.bytes(&vec![0; filler_bytes]);
        self.tail.write(&mut w);
        assert_eq!(w.position(), self.header_bytes);
        w.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(sectors: u64) -> Blkptr {
        let mut words = [0; BLKPTR_BYTES / 8];
        (words[0], words[1], words[6], words[10]) = (1, 8, (sectors - 1) << 16, 5);
        Blkptr::from_words(words)
    }

    #[test]
    fn pieces_must_add_up_to_the_block() {
        let tail = EmbeddedChecksum { endian: Endian::Little, checksum: [0; 4] };
        let header = GangHeader::new(&[piece(3), piece(1)], SPA_OLD_GANGBLOCKSIZE, tail);
        assert!(header.fits(4 * 512));
        // A header with three pointers to itself never fits.
        let circle = GangHeader::new(&[piece(4); 3], SPA_OLD_GANGBLOCKSIZE, tail);
        assert!(!circle.fits(4 * 512));
    }

    proptest! {
        #[test]
        fn headers_round_trip_in_both_orders(
            words in prop::collection::vec(any::<[u64; 16]>(), 1..40),
            checksum in any::<[u64; 4]>(),
            header_bytes in prop::sample::select(vec![512, 1024, 4096, 3 << 12, 16 << 10]),
        ) {
            for endian in [Endian::Little, Endian::Big] {
                let tail = EmbeddedChecksum { endian, checksum };
                let pieces: Vec<Blkptr> = words.iter().map(|words| Blkptr::from_words(*words)).collect();
                let header = GangHeader::new(&pieces, header_bytes, tail);
                let raw = header.encode();
                prop_assert_eq!(raw.len(), header_bytes);
                prop_assert_eq!(GangHeader::decode(&raw).unwrap(), header);
            }
        }

        #[test]
        fn anything_without_the_magic_is_refused(raw in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(GangHeader::decode(&raw).is_err());
        }
    }
}
