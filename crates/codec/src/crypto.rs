//! Encryption of blocks and keys: primitives, and their coverage of a block.
//!
//! Idea: a dataset's random **master key** and **HMAC key** are stored in the pool, wrapped by a **wrapping
//! key** from the user. Each block pointer names an 8-byte salt; the key of all blocks with that salt is
//! derived from it and the master key.
//!
//! ```text
//! passphrase ─PBKDF2─┐
//! 64 hex digits ─────┼─> WrappingKey ──unwrap──> MasterKey ──HKDF(salt)──> BlockKey ──open──> plaintext
//! 32 raw bytes ──────┘                               └── HMAC ──> MACs of what is not encrypted
//! ```
//!
//! Coverage in an encrypted dataset (`BP_USES_CRYPT`):
//!
//! | block | protected by | MAC is in | here |
//! |---|---|---|---|
//! | level 0, encrypted type | AES over stored bytes | pointer | [`BlockKey::open`] |
//! | dnodes | AES over bonuses, the rest as AAD | pointer | [`layout::dnodes`] |
//! | intent log | AES over record bodies, the rest as AAD | block, [`layout::log_mac`] | [`layout::log`] |
//! | level 0, other types | HMAC over stored bytes | pointer | [`MasterKey::authenticate`] |
//! | levels 1 and up | SHA-512 over the MACs below, no key | pointer | [`mac::indirect_matches`] |
//! | object set | two HMACs over its fields | object set | [`mac::objset_macs`] |
//!
//! **CCM and long blocks.** A 12-byte nonce leaves 24 bits for the length, so CCM cannot hold 2^24 bytes.
//! OpenZFS's ICP refuses them, too (`ccm_validate_args`), so no such block exists ([`CryptoError::TooLong`]).
//!
//! Libraries: `aws-lc-rs`, the fastest, for GCM. CCM is built here on RustCrypto's `aes` and `ctr`, with the
//! chained MAC inside one AES-NI function (example `codec_speed` measures it).
//!
//! Source: OpenZFS `zio_crypt.c`, `dsl_crypt.c`, `hkdf.c`, `libzfs_crypto.c`, `icp/algs/modes/ccm.c`.

mod ccm;
mod keys;
pub mod layout;
pub mod mac;

pub use keys::{KeyVersion, MasterKey, WrappedKey, WrappingKey};

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use layout::Layout;

/// Nonce of a block or of wrapped keys (`ZIO_DATA_IV_LEN`).
pub type Iv = [u8; 12];
/// Authentication tag (`ZIO_DATA_MAC_LEN`).
pub type Mac = [u8; 16];
/// Salt that selects a block's key (`ZIO_DATA_SALT_LEN`).
pub type KeySalt = [u8; 8];

/// Cipher, mode and key length by on-disk number (`enum zio_encrypt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names are self-explanatory
pub enum Cipher {
    Aes128Ccm = 3,
    Aes192Ccm = 4,
    Aes256Ccm = 5,
    Aes128Gcm = 6,
    Aes192Gcm = 7,
    Aes256Gcm = 8,
}

/// Decryption or authentication error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// Unknown cipher number.
    #[error("unknown encryption suite {0}: made by a newer OpenZFS, or the key object is damaged")]
    UnknownCipher(u64),
    /// Unknown key format version.
    #[error("unknown version {0} of the encryption key format: made by a newer OpenZFS")]
    UnknownVersion(u64),
    /// The wrapping key does not open the master key.
    #[error("the key is not the one this dataset was encrypted with")]
    WrongKey,
    /// Wrong key length, or an invalid digit.
    #[error("the key must be {0}")]
    BadKeyFormat(&'static str),
    /// MAC mismatch: damage or tampering.
    #[error("authentication failed: the block is not what was encrypted")]
    Mac,
    /// Too many bytes for one nonce.
    #[error("{0} bytes are more than one nonce of this cipher can cover")]
    TooLong(usize),
    /// Block's structure exceeds the block.
    #[error("cannot tell which bytes are encrypted: {0}")]
    BadLayout(&'static str),
}

impl Cipher {
    /// Every cipher.
    pub const ALL: [Cipher; 6] = {
        use Cipher::*;
        [Aes128Ccm, Aes192Ccm, Aes256Ccm, Aes128Gcm, Aes192Gcm, Aes256Gcm]
    };

    /// Length of master and block keys.
    #[must_use]
    pub fn key_bytes(self) -> usize {
        match self {
            Cipher::Aes128Ccm | Cipher::Aes128Gcm => 16,
            Cipher::Aes192Ccm | Cipher::Aes192Gcm => 24,
            Cipher::Aes256Ccm | Cipher::Aes256Gcm => 32,
        }
    }

    /// Cipher that wraps this cipher's keys: the same mode, always with 256 bits.
    fn for_wrapping(self) -> Self {
        match self {
            Cipher::Aes128Ccm | Cipher::Aes192Ccm | Cipher::Aes256Ccm => Cipher::Aes256Ccm,
            Cipher::Aes128Gcm | Cipher::Aes192Gcm | Cipher::Aes256Gcm => Cipher::Aes256Gcm,
        }
    }

    /// Name in `zfs get encryption`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Ccm => "aes-128-ccm",
            Cipher::Aes192Ccm => "aes-192-ccm",
            Cipher::Aes256Ccm => "aes-256-ccm",
            Cipher::Aes128Gcm => "aes-128-gcm",
            Cipher::Aes192Gcm => "aes-192-gcm",
            Cipher::Aes256Gcm => "aes-256-gcm",
        }
    }
}

impl TryFrom<u64> for Cipher {
    type Error = CryptoError;

    fn try_from(number: u64) -> Result<Self, CryptoError> {
        Self::ALL.into_iter().find(|c| *c as u64 == number).ok_or(CryptoError::UnknownCipher(number))
    }
}

/// Scheduled key of all blocks with one salt. Threads may share it.
pub struct BlockKey(Mode);

enum Mode {
    Ccm(ccm::Ccm),
    Gcm(Box<LessSafeKey>),
}

impl BlockKey {
    /// Uses the first [`Cipher::key_bytes`] of `key`.
    #[must_use]
    pub fn new(cipher: Cipher, key: &[u8; 32]) -> Self {
        let key = &key[..cipher.key_bytes()];
        let gcm = |algorithm| {
            let key = UnboundKey::new(algorithm, key).expect("key_bytes() is this algorithm's key length");
            BlockKey(Mode::Gcm(Box::new(LessSafeKey::new(key))))
        };
        match cipher {
            Cipher::Aes128Gcm => gcm(&aead::AES_128_GCM),
            Cipher::Aes192Gcm => gcm(&aead::AES_192_GCM),
            Cipher::Aes256Gcm => gcm(&aead::AES_256_GCM),
            _ => BlockKey(Mode::Ccm(ccm::Ccm::new(key))),
        }
    }

    /// Decrypts `data` in place after verifying `mac` over it and `aad`.
    ///
    /// On [`CryptoError::Mac`] `data` is zeroed: no unauthenticated bytes leave this function.
    pub fn open(&self, iv: &Iv, mac: &Mac, aad: &[u8], data: &mut [u8]) -> Result<(), CryptoError> {
        let opened = match &self.0 {
            Mode::Ccm(key) => key.open(iv, mac, aad, data),
            Mode::Gcm(key) => key
                .open_in_place_separate_tag(nonce(iv), Aad::from(aad), mac, data)
                .map(|_| ())
                .map_err(|_| CryptoError::Mac),
        };
        if opened.is_err() {
            data.fill(0);
        }
        opened
    }

    /// Encrypts `data` in place; returns the MAC over it and `aad`. Never reuse an `iv` with a key.
    pub fn seal(&self, iv: &Iv, aad: &[u8], data: &mut [u8]) -> Result<Mac, CryptoError> {
        match &self.0 {
            Mode::Ccm(key) => key.seal(iv, aad, data),
            Mode::Gcm(key) => {
                let tag = key
                    .seal_in_place_separate_tag(nonce(iv), Aad::from(aad), data)
                    .map_err(|_| CryptoError::TooLong(data.len()))?;
                tag.as_ref().try_into().map_err(|_| CryptoError::Mac)
            }
        }
    }

    /// Decrypts the secret parts of a partly plaintext block.
    pub fn open_parts(
        &self,
        iv: &Iv,
        mac: &Mac,
        layout: &Layout,
        block: &mut [u8],
    ) -> Result<(), CryptoError> {
        let mut secret = layout.gather(block)?;
        let opened = self.open(iv, mac, layout.aad(), &mut secret);
        layout.scatter(&secret, block)?;
        opened
    }

    /// Encrypts the secret parts of a block; returns the MAC over the whole block.
    pub fn seal_parts(&self, iv: &Iv, layout: &Layout, block: &mut [u8]) -> Result<Mac, CryptoError> {
        let mut secret = layout.gather(block)?;
        let mac = self.seal(iv, layout.aad(), &mut secret)?;
        layout.scatter(&secret, block)?;
        Ok(mac)
    }
}

fn nonce(iv: &Iv) -> Nonce {
    Nonce::assume_unique_for_key(*iv)
}

#[cfg(test)]
mod tests;
