//! The checksums of a block pointer, and those embedded in the block itself.
//!
//! Idea: every algorithm's checksum is four 64-bit words. A byte digest becomes words by being read in the
//! byte order of the machine that wrote the block, so that decoding the block pointer in that order gives
//! the same four words:
//!
//! | algorithm | words are |
//! |---|---|
//! | fletcher2, fletcher4 | sums over the block's words, read in the writer's byte order |
//! | SHA-256 | the digest read big-endian, **whoever wrote it** |
//! | SHA-512/256 ("sha512"), Skein, Edon-R, BLAKE3 | the digest read in the writer's byte order |
//! | off, noparity | zeros |
//!
//! Skein, Edon-R and BLAKE3 are keyed with the pool's 32-byte salt ([`ChecksumSalt`]), so that nobody
//! without the salt can prepare colliding blocks for a deduplicating pool.
//!
//! The pointer to an encrypted or authenticated block keeps only two words of checksum; the other two hold
//! the MAC ([`Stored::ChecksumAndMac`]). Weak sums are folded first, so that neither half is lost.
//!
//! Labels, gang headers and intent-log blocks carry their checksum inside: see [`embedded`].
//!
//! Source: OpenZFS zio_checksum.c (`zio_checksum_table`, `zio_checksum_handle_crypt`), sha2_zfs.c,
//! skein_zfs.c, edonr_zfs.c, blake3_zfs.c. OpenZFS 2.3 computes the byte-swapped Edon-R wrongly (it swaps
//! memory that it never wrote); this code follows the same rule as for the others.

mod edonr;
pub mod embedded;
mod skein;

use crate::Endian;
use crate::fletcher::{fletcher2, fletcher4};

/// Checksum algorithm with its on-disk number (`enum zio_checksum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Checksum {
    /// A property value, never in a block pointer.
    Inherit = 0,
    /// A property value, never in a block pointer.
    On = 1,
    /// No checksum: the words are zeros.
    Off = 2,
    /// SHA-256 embedded in a vdev label or uberblock, bound to its offset.
    Label = 3,
    /// SHA-256 embedded in a gang header, bound to its address and birth.
    GangHeader = 4,
    /// fletcher2 in the tail of an intent-log block (before pool version 26).
    Zilog = 5,
    /// fletcher2.
    Fletcher2 = 6,
    /// fletcher4, what `on` means.
    Fletcher4 = 7,
    /// SHA-256.
    Sha256 = 8,
    /// fletcher4 in the head of an intent-log block, over its used part.
    Zilog2 = 9,
    /// No checksum, and no parity either (was for dump devices).
    NoParity = 10,
    /// SHA-512/256.
    Sha512 = 11,
    /// Skein-512-256, keyed with the salt.
    Skein = 12,
    /// Edon-R-512 cut to 256 bits, keyed with the salt.
    EdonR = 13,
    /// BLAKE3, keyed with the salt.
    Blake3 = 14,
}

/// What the four stored words of a block pointer hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The full checksum.
    Checksum,
    /// Two words of checksum, then a MAC of 16 bytes: the block pointer has its crypt bit set
    /// (`BP_USES_CRYPT`) and is not an object set, which keeps its MACs inside.
    ChecksumAndMac,
}

/// Why a checksum could not be computed, or did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// No algorithm has this number.
    #[error("unknown checksum algorithm {0}: made by a newer OpenZFS, or the block pointer is damaged")]
    Unknown(u8),
    /// A property value or an embedded checksum appears where an algorithm is needed.
    #[error("{} is not a checksum that a block pointer carries", .0.name())]
    NotABlockChecksum(Checksum),
    /// The algorithm is keyed and the pool's salt was not given.
    #[error("{} needs the pool's checksum salt (org.illumos:checksum_salt in the MOS directory)", .0.name())]
    SaltMissing(Checksum),
    /// The block carries no embedded checksum: too short, wrong magic, or its length field is beyond it.
    #[error("the block carries no embedded checksum (no magic number where it belongs)")]
    NotEmbedded,
    /// The block is not the one that was written.
    #[error("checksum mismatch")]
    Mismatch {
        /// The checksum stored in the block pointer or the block.
        stored: [u64; 4],
        /// The checksum computed from the bytes.
        computed: [u64; 4],
    },
}

impl ChecksumError {
    /// Both checksums of a mismatch, for comparison.
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

/// The pool's 32 random bytes that key Skein, Edon-R and BLAKE3, and the hash states derived from them.
#[derive(Clone)]
pub struct ChecksumSalt {
    bytes: [u8; 32],
    skein: skein::Keyed,
    edonr: edonr::Keyed,
}

impl ChecksumSalt {
    /// Keys the hash functions; do this once per pool.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { bytes, skein: skein::Keyed::new(&bytes), edonr: edonr::Keyed::new(&bytes) }
    }
}

// The salt is a secret of the pool and must not appear in logs.
impl std::fmt::Debug for ChecksumSalt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChecksumSalt(..)")
    }
}

impl Checksum {
    /// The checksum of `data` as the words that a block pointer stores.
    ///
    /// `endian` is the byte order the block was written in. Errors: the algorithm is keyed and `salt` is
    /// `None`, or it is not one that a block pointer carries.
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
            Checksum::Label | Checksum::GangHeader | Checksum::Sha256 => Endian::Big.words(sha256(data)),
            Checksum::Sha512 => endian.words(sha512_256(data)),
            Checksum::Skein => endian.words(salt()?.skein.hash(data)),
            Checksum::EdonR => endian.words(salt()?.edonr.hash(data)),
            Checksum::Blake3 => endian.words(*blake3::keyed_hash(&salt()?.bytes, data).as_bytes()),
        })
    }

    /// Checks `data` against the words of its block pointer.
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

    /// The two words that remain of a checksum when a MAC takes the other two.
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

    /// The block itself carries the checksum (`ZCHECKSUM_FLAG_EMBEDDED`).
    #[must_use]
    pub fn is_embedded(self) -> bool {
        use Checksum::*;
        matches!(self, Label | GangHeader | Zilog | Zilog2)
    }

    /// Strong enough to deduplicate without comparing the data (`ZCHECKSUM_FLAG_DEDUP`).
    #[must_use]
    pub fn is_dedup_safe(self) -> bool {
        use Checksum::*;
        matches!(self, Sha256 | Sha512 | Skein | Blake3)
    }

    /// So strong that equal checksums mean equal blocks, unless forged (`ZCHECKSUM_FLAG_NOPWRITE`).
    #[must_use]
    pub fn is_nop_write_safe(self) -> bool {
        self.is_dedup_safe() || self == Checksum::EdonR
    }

    /// Whether a block pointer can use this algorithm for its block; embedded checksums don't count.
    #[must_use]
    pub fn is_of_pointer(self) -> bool {
        !self.is_embedded() && !matches!(self, Checksum::Inherit | Checksum::On)
    }

    /// The name that `zfs get checksum` and dedup table names use.
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

    /// Every algorithm, at the index of its on-disk number.
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

fn sha256(data: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(data).into()
}

fn sha512_256(data: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha512_256::digest(data).into()
}

#[cfg(test)]
mod tests;
