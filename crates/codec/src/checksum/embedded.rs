//! Checksums inside blocks: labels, uberblocks, gang headers, intent-log blocks.
//!
//! Idea: if no parent can hold the checksum, the block does, in a 40-byte `zio_eck_t`. For the computation
//! its words first hold a *verifier*, the block's identity, so a misplaced or stale block does not verify.
//!
//! ```text
//! zio_eck_t          magic 0x0210da7ab10c7a11 | 4 words of checksum
//!
//! label, gang, zilog ........................................ | zio_eck_t |   at the end
//! zilog2             pad 8 | next pointer 128 | used 8 | zio_eck_t | records   at byte 144; only the first
//!                                                    `used` bytes, rounded up to 4 KiB, are summed
//! ```
//!
//! | block | verifier |
//! |---|---|
//! | label parts, uberblock | [`label_verifier`]: byte offset on the device |
//! | gang header | [`gang_verifier`]: first DVA's vdev and offset, birth txg |
//! | log block | checksum words of its pointer (log guid, object set, sequence) |
//!
//! The magic shows the byte order. Source: OpenZFS `zio_checksum.c` (`zio_checksum_error_impl`), `zil.h`.

use super::{Checksum, ChecksumError, Stored, sha256};
use crate::Endian;

/// `ZEC_MAGIC`.
pub const EMBEDDED_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// `sizeof (zio_eck_t)`.
const ECK_BYTES: usize = 40;
/// Its checksum.
const WORDS_BYTES: usize = 32;
/// Offsets of the used count and `zio_eck_t` in `zil_chain_t`.
const ZIL_USED_AT: usize = 136;
const ZIL_ECK_AT: usize = 144;
/// `ZIL_MIN_BLKSZ`: step of a log block's summed part.
const ZIL_STEP_BYTES: usize = 4096;

/// Verifier of a label part or uberblock at a device offset.
#[must_use]
pub fn label_verifier(offset: u64) -> [u64; 4] {
    [offset, 0, 0, 0]
}

/// Verifier of a gang header: vdev and byte offset of the first DVA, birth txg.
#[must_use]
pub fn gang_verifier(vdev: u64, offset: u64, birth_txg: u64) -> [u64; 4] {
    [vdev, offset, birth_txg, 0]
}

/// Result of a verified embedded checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Byte order of the writer.
    pub endian: Endian,
    /// Bytes covered; fewer than all only for zilog2.
    pub covered_bytes: usize,
}

impl Checksum {
    /// Verifies a block against its embedded checksum.
    ///
    /// `holds` is [`Stored::ChecksumAndMac`] for log blocks of encrypted datasets. Errors:
    /// [`ChecksumError::NotEmbedded`] without a magic, as in a block never written.
    pub fn verify_embedded(
        self,
        block: &[u8],
        verifier: [u64; 4],
        holds: Stored,
    ) -> Result<Verified, ChecksumError> {
        let place = self.place(block)?;
        let stored = place.endian.words(place.words(block));
        let computed = self.compute_with(block, &place, verifier)?;
        self.compare(computed, stored, holds)?;
        Ok(Verified { endian: place.endian, covered_bytes: place.covered_bytes })
    }

    /// Writes magic and checksum into a final block, the inverse of [`Checksum::verify_embedded`]. For zilog2
    /// the used count must be set.
    pub fn seal(self, block: &mut [u8], verifier: [u64; 4], endian: Endian) -> Result<(), ChecksumError> {
        self.seal_as(block, verifier, endian, Stored::Checksum)
    }

    /// [`Checksum::seal`] for a block whose pointer has the crypt bit: writes two checksum words and keeps
    /// the MAC after them (in a log block).
    pub fn seal_as(
        self,
        block: &mut [u8],
        verifier: [u64; 4],
        endian: Endian,
        holds: Stored,
    ) -> Result<(), ChecksumError> {
        let eck_at = self.eck_at(block.len())?;
        let magic = block.get_mut(eck_at..eck_at + 8).ok_or(ChecksumError::NotEmbedded)?;
        magic.copy_from_slice(&endian.bytes(EMBEDDED_MAGIC));
        let place = self.place(block)?;
        let mac = place.endian.words(place.words(block));
        let words = self.compute_with(block, &place, verifier)?;
        place.put(
            block,
            match (holds, self.beside_mac(words)) {
                (Stored::Checksum, _) => words,
                (Stored::ChecksumAndMac, [a, b]) => [a, b, mac[2], mac[3]],
            },
        );
        Ok(())
    }

    fn compute_with(
        self,
        block: &[u8],
        place: &ChecksumField,
        verifier: [u64; 4],
    ) -> Result<[u64; 4], ChecksumError> {
        // The verifier replaces the checksum. Each import hashes megabytes of labels, so these are not
        // copied; other blocks are few and small.
        if let Checksum::Label | Checksum::GangHeader = self {
            let (before, rest) = block[..place.covered_bytes].split_at(place.words_at);
            let verifier = verifier.map(|word| place.endian.bytes(word));
            let digest = sha256(&[before, verifier.as_flattened(), &rest[WORDS_BYTES..]]);
            return Ok(Endian::Big.words(digest));
        }
        let mut image = block[..place.covered_bytes].to_vec();
        place.put(&mut image, verifier);
        self.compute(&image, place.endian, None)
    }

    fn eck_at(self, block_bytes: usize) -> Result<usize, ChecksumError> {
        match self {
            Checksum::Zilog2 => Ok(ZIL_ECK_AT),
            Checksum::Label | Checksum::GangHeader | Checksum::Zilog => {
                block_bytes.checked_sub(ECK_BYTES).ok_or(ChecksumError::NotEmbedded)
            }
            _ => Err(ChecksumError::NotABlockChecksum(self)),
        }
    }

    fn place(self, block: &[u8]) -> Result<ChecksumField, ChecksumError> {
        let eck_at = self.eck_at(block.len())?;
        let eck = block.get(eck_at..eck_at + ECK_BYTES).ok_or(ChecksumError::NotEmbedded)?;
        let endian = [Endian::Little, Endian::Big]
            .into_iter()
            .find(|endian| endian.u64_at(eck, 0) == Some(EMBEDDED_MAGIC))
            .ok_or(ChecksumError::NotEmbedded)?;
        let covered_bytes = match self {
            Checksum::Zilog2 => used_bytes(block, endian).ok_or(ChecksumError::NotEmbedded)?,
            _ => block.len(),
        };
        Ok(ChecksumField { endian, words_at: eck_at + 8, covered_bytes })
    }
}

/// `None` if it misses the header or exceeds the block.
fn used_bytes(block: &[u8], endian: Endian) -> Option<usize> {
    let used = usize::try_from(endian.u64_at(block, ZIL_USED_AT)?).ok()?;
    let rounded = used.checked_next_multiple_of(ZIL_STEP_BYTES)?;
    (rounded <= block.len() && used >= ZIL_ECK_AT + ECK_BYTES).then_some(rounded)
}

/// Location of the checksum words. Invariant: `words_at + WORDS_BYTES <= covered_bytes <= block.len()`.
struct ChecksumField {
    endian: Endian,
    words_at: usize,
    covered_bytes: usize,
}

impl ChecksumField {
    fn words(&self, block: &[u8]) -> [u8; WORDS_BYTES] {
        std::array::from_fn(|i| block[self.words_at + i])
    }

    fn put(&self, block: &mut [u8], words: [u64; 4]) {
        for (bytes, word) in block[self.words_at..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = self.endian.bytes(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMBEDDED: [Checksum; 4] =
        [Checksum::Label, Checksum::GangHeader, Checksum::Zilog, Checksum::Zilog2];

    fn log_block(bytes: usize, used: u64, endian: Endian) -> Vec<u8> {
        let mut block: Vec<u8> = (0..bytes).map(|i| (i % 253) as u8).collect();
        block[ZIL_USED_AT..ZIL_USED_AT + 8].copy_from_slice(&endian.bytes(used));
        block
    }

    #[test]
    fn what_is_sealed_verifies_in_both_byte_orders_and_nowhere_else() {
        let verifier = [5, 6, 7, 8];
        for checksum in EMBEDDED {
            for endian in [Endian::Little, Endian::Big] {
                let mut block = log_block(8192, 4000, endian);
                checksum.seal(&mut block, verifier, endian).unwrap();
                let verified = checksum.verify_embedded(&block, verifier, Stored::Checksum).unwrap();
                assert_eq!(verified.endian, endian);
                assert_eq!(verified.covered_bytes, if checksum == Checksum::Zilog2 { 4096 } else { 8192 });

                let elsewhere = checksum.verify_embedded(&block, [5, 6, 7, 9], Stored::Checksum);
                assert!(matches!(elsewhere, Err(ChecksumError::Mismatch { .. })), "{checksum:?} {endian:?}");
                block[3000] ^= 1;
                assert!(checksum.verify_embedded(&block, verifier, Stored::Checksum).is_err());
            }
        }
    }

    #[test]
    fn a_log_block_ignores_what_lies_beyond_its_used_part() {
        let mut block = log_block(8192, 4000, Endian::Little);
        Checksum::Zilog2.seal(&mut block, [1; 4], Endian::Little).unwrap();
        block[4096] ^= 1;
        assert!(Checksum::Zilog2.verify_embedded(&block, [1; 4], Stored::Checksum).is_ok());
    }

    #[test]
    fn blocks_without_a_checksum_are_told_from_damaged_ones() {
        for checksum in EMBEDDED {
            for bytes in [0, 39, 40, 183, 184, 4096] {
                let zeros = vec![0; bytes];
                let result = checksum.verify_embedded(&zeros, [0; 4], Stored::Checksum);
                assert_eq!(result, Err(ChecksumError::NotEmbedded), "{checksum:?} of {bytes} bytes");
            }
        }
        // A used count beyond the block, or below the header, must be refused.
        for used in [0, 183, 8193, u64::MAX] {
            let mut block = log_block(8192, 4000, Endian::Little);
            Checksum::Zilog2.seal(&mut block, [0; 4], Endian::Little).unwrap();
            block[ZIL_USED_AT..ZIL_USED_AT + 8].copy_from_slice(&used.to_le_bytes());
            let result = Checksum::Zilog2.verify_embedded(&block, [0; 4], Stored::Checksum);
            assert_eq!(result, Err(ChecksumError::NotEmbedded), "used {used}");
        }
    }
}
