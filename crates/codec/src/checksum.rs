//! Checksums of block pointers, and checksums embedded in blocks.
//!
//! Idea: every checksum is four 64-bit words. A byte digest is read as words in the writer's byte order, so
//! that decoding the pointer in that order gives the same words:
//!
//! | algorithm | words |
//! |---|---|
//! | fletcher2, fletcher4 | sums over the block's words in the writer's byte order |
//! | SHA-256 | digest read big-endian, **regardless of the writer** |
//! | SHA-512/256 ("sha512"), Skein, Edon-R, BLAKE3 | digest read in the writer's byte order |
//! | off, noparity | zeros |
//!
//! Skein, Edon-R and BLAKE3 are keyed with the pool's salt ([`ChecksumSalt`]): without it, an attacker cannot
//! prepare colliding blocks for dedup.
//!
//! The pointer to an encrypted or authenticated block keeps two checksum words; the MAC takes the other two
//! ([`Stored::ChecksumAndMac`]). Weak sums are folded first, so that neither half is lost.
//!
//! Labels, gang headers and intent-log blocks carry their checksum inside: see [`embedded`].
//!
//! Source: OpenZFS `zio_checksum.c` (`zio_checksum_table`, `zio_checksum_handle_crypt`), `sha2_zfs.c`,
//! `skein_zfs.c`, `edonr_zfs.c`, `blake3_zfs.c`. OpenZFS 2.3 computes byte-swapped Edon-R wrongly (it swaps
//! memory that it never wrote); this code follows the common rule.

mod edonr;
pub mod embedded;
mod skein;

use crate::Endian;
use crate::fletcher::{fletcher2, fletcher4};

/// Checksum algorithm by on-disk number (`enum zio_checksum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Checksum {
    /// Property value, never in a pointer.
    Inherit = 0,
    /// Property value, never in a pointer.
    On = 1,
    /// No checksum; the words are zeros.
    Off = 2,
    /// SHA-256 in a label or uberblock, bound to its offset.
    Label = 3,
    /// SHA-256 in a gang header, bound to its address and birth.
    GangHeader = 4,
    /// fletcher2 in an intent-log block's tail (before pool version 26).
    Zilog = 5,
    /// fletcher2.
    Fletcher2 = 6,
    /// fletcher4, the value of `on`.
    Fletcher4 = 7,
    /// SHA-256.
    Sha256 = 8,
    /// fletcher4 in an intent-log block's head, over its used part.
    Zilog2 = 9,
    /// No checksum or parity (for dump devices, obsolete).
    NoParity = 10,
    /// SHA-512/256.
    Sha512 = 11,
    /// Salted Skein-512-256.
    Skein = 12,
    /// Salted Edon-R-512, cut to 256 bits.
    EdonR = 13,
    /// Salted BLAKE3.
    Blake3 = 14,
}

/// Content of a pointer's four checksum words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Full checksum.
    Checksum,
    /// Two checksum words, then a 16-byte MAC: the crypt bit is set (`BP_USES_CRYPT`) and the block is not an
    /// object set, which keeps its MACs inside.
    ChecksumAndMac,
}

/// Checksum error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// Unknown algorithm number.
    #[error("unknown checksum algorithm {0}: made by a newer OpenZFS, or the block pointer is damaged")]
    Unknown(u8),
    /// Property value or embedded checksum instead of an algorithm.
    #[error("{} is not a checksum that a block pointer carries", .0.name())]
    NotABlockChecksum(Checksum),
    /// Keyed algorithm without salt.
    #[error("{} needs the pool's checksum salt (org.illumos:checksum_salt in the MOS directory)", .0.name())]
    SaltMissing(Checksum),
    /// No embedded checksum: the block is too short, the magic is wrong, or the length is out of bounds.
    #[error("the block carries no embedded checksum (no magic number where it belongs)")]
    NotEmbedded,
    /// The block is not the one written.
    #[error("checksum mismatch")]
    Mismatch {
        /// Stored checksum.
        stored: [u64; 4],
        /// Computed checksum.
        computed: [u64; 4],
    },
}

impl ChecksumError {
    /// Both checksums of a mismatch.
    pub fn details(&self) -> Option<String> {
        let hex = |words: &[u64; 4]| words.map(|word| format!("{word:016x}")).join(":");
        match self {
            ChecksumError::Mismatch { stored, computed } => {
                Some(format!("stored {}, computed {}", hex(stored), hex(computed)))
            }
            _ => None,
        }
    }
}

/// The salt, with the hash states derived from it.
#[derive(Clone)]
pub struct ChecksumSalt {
    bytes: [u8; 32],
    skein: skein::Keyed,
    edonr: edonr::Keyed,
}

impl ChecksumSalt {
    /// Keys the hash functions, once per pool.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { bytes, skein: skein::Keyed::new(&bytes), edonr: edonr::Keyed::new(&bytes) }
    }
}

// The salt is secret and must not appear in logs.
impl std::fmt::Debug for ChecksumSalt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChecksumSalt(..)")
    }
}

impl Checksum {
    /// Computes the checksum words of a block pointer. `endian` is the writer's byte order.
    ///
    /// Errors: a keyed algorithm without `salt`, or one that no block pointer carries.
    pub fn compute(
        self,
        data: &[u8],
        endian: Endian,
        salt: Option<&ChecksumSalt>,
    ) -> Result<[u64; 4], ChecksumError> {
        let byteswap = endian == Endian::Big;
        let salt = || salt.ok_or(ChecksumError::SaltMissing(self));
        Ok(match self {
            Checksum::Inherit | Checksum::On => return Err(ChecksumError::NotABlockChecksum(self)),
            Checksum::Off | Checksum::NoParity => [0; 4],
            Checksum::Zilog | Checksum::Fletcher2 => fletcher2(data, byteswap),
            Checksum::Zilog2 | Checksum::Fletcher4 => fletcher4(data, byteswap),
            Checksum::Label | Checksum::GangHeader | Checksum::Sha256 => Endian::Big.words(sha256(&[data])),
            Checksum::Sha512 => endian.words(sha512_256(data)),
            Checksum::Skein => endian.words(salt()?.skein.hash(data)),
            Checksum::EdonR => endian.words(salt()?.edonr.hash(data)),
            Checksum::Blake3 => endian.words(*blake3::keyed_hash(&salt()?.bytes, data).as_bytes()),
        })
    }

    /// Verifies `data` against pointer words.
    pub fn verify(
        self,
        data: &[u8],
        endian: Endian,
        salt: Option<&ChecksumSalt>,
        words: [u64; 4],
        holds: Stored,
    ) -> Result<(), ChecksumError> {
        if self.is_embedded() {
            return Err(ChecksumError::NotABlockChecksum(self));
        }
        self.compare(self.compute(data, endian, salt)?, words, holds)
    }

    /// Checksum words beside a MAC.
    #[must_use]
    pub fn beside_mac(self, [a, b, c, d]: [u64; 4]) -> [u64; 2] {
        if self.is_dedup_safe() { [a, b] } else { [a ^ c, b ^ d] }
    }

    fn compare(self, computed: [u64; 4], stored: [u64; 4], holds: Stored) -> Result<(), ChecksumError> {
        let same = match holds {
            Stored::Checksum => computed == stored,
            Stored::ChecksumAndMac => self.beside_mac(computed) == [stored[0], stored[1]],
        };
        if same { Ok(()) } else { Err(ChecksumError::Mismatch { stored, computed }) }
    }

    /// Strong enough for metadata (`ZCHECKSUM_FLAG_METADATA`).
    #[must_use]
    pub fn is_metadata(self) -> bool {
        use Checksum::*;
        matches!(self, Label | GangHeader | Fletcher4 | Sha256 | Sha512 | Skein | EdonR | Blake3)
    }

    /// Whether the block carries the checksum (`ZCHECKSUM_FLAG_EMBEDDED`).
    #[must_use]
    pub fn is_embedded(self) -> bool {
        use Checksum::*;
        matches!(self, Label | GangHeader | Zilog | Zilog2)
    }

    /// Strong enough for dedup without comparison (`ZCHECKSUM_FLAG_DEDUP`).
    #[must_use]
    pub fn is_dedup_safe(self) -> bool {
        use Checksum::*;
        matches!(self, Sha256 | Sha512 | Skein | Blake3)
    }

    /// Strong enough that, barring forgery, equal checksums mean equal blocks (`ZCHECKSUM_FLAG_NOPWRITE`).
    #[must_use]
    pub fn is_nop_write_safe(self) -> bool {
        self.is_dedup_safe() || self == Checksum::EdonR
    }

    /// Whether block pointers can use this algorithm for their block; embedded checksums cannot.
    #[must_use]
    pub fn is_of_pointer(self) -> bool {
        !self.is_embedded() && !matches!(self, Checksum::Inherit | Checksum::On)
    }

    /// Name in `zfs get checksum` and dedup tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        use Checksum::*;
        match self {
            Inherit => "inherit",
            On => "on",
            Off => "off",
            Label => "label",
            GangHeader => "gang_header",
            Zilog => "zilog",
            Fletcher2 => "fletcher2",
            Fletcher4 => "fletcher4",
            Sha256 => "sha256",
            Zilog2 => "zilog2",
            NoParity => "noparity",
            Sha512 => "sha512",
            Skein => "skein",
            EdonR => "edonr",
            Blake3 => "blake3",
        }
    }

    /// Algorithms by on-disk number.
    pub const ALL: [Checksum; 15] = {
        use Checksum::*;
        [
            Inherit, On, Off, Label, GangHeader, Zilog, Fletcher2, Fletcher4, Sha256, Zilog2, NoParity,
            Sha512, Skein, EdonR, Blake3,
        ]
    };
}

impl TryFrom<u8> for Checksum {
    type Error = ChecksumError;

    fn try_from(number: u8) -> Result<Self, ChecksumError> {
        Self::ALL.get(usize::from(number)).copied().ok_or(ChecksumError::Unknown(number))
    }
}

fn sha256(pieces: &[&[u8]]) -> [u8; 32] {
    use sha2::Digest;
    let hash = pieces.iter().fold(sha2::Sha256::new(), |hash, piece| hash.chain_update(piece));
    hash.finalize().into()
}

fn sha512_256(data: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha512_256::digest(data).into()
}

#[cfg(test)]
mod tests;
