//! Keys: from the user's input to the key of a block.
//!
//! Secrets are wiped on drop and never printed.
//!
//! Source: OpenZFS `libzfs_crypto.c` (`derive_key`), `zio_crypt.c` (`zio_crypt_key_unwrap`), `hkdf.c`.

use super::{BlockKey, Cipher, CryptoError, Iv, KeySalt, Mac};
use aws_lc_rs::{hkdf, hmac, pbkdf2};
use std::num::NonZeroU32;
use zeroize::Zeroize;

/// `SHA512_HMAC_KEYLEN`.
const HMAC_KEY_BYTES: usize = 64;

/// The user's key. Wraps the master keys of an encryption root and its heirs.
pub struct WrappingKey([u8; 32]);

impl Drop for WrappingKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl WrappingKey {
    /// `keyformat=raw`: 32 bytes.
    pub fn from_raw(key: &[u8]) -> Result<Self, CryptoError> {
        key.try_into().map(Self).map_err(|_| CryptoError::BadKeyFormat("exactly 32 bytes"))
    }

    /// `keyformat=hex`: 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, CryptoError> {
        const BAD: CryptoError = CryptoError::BadKeyFormat("exactly 64 hexadecimal digits");
        let digit = |c: u8| char::from(c).to_digit(16).ok_or(BAD);
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(BAD) };
        let mut key = Self([0; 32]);
        if pairs.len() != key.0.len() {
            return Err(BAD);
        }
        for (byte, [high, low]) in key.0.iter_mut().zip(pairs) {
            *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
        }
        Ok(key)
    }

    /// `keyformat=passphrase`: PBKDF2-HMAC-SHA1 with properties `pbkdf2salt` and `pbkdf2iters`.
    ///
    /// Deliberately slow: 0.15 s for the default 350,000 rounds. `rounds` comes from the pool, so callers
    /// should announce the wait and may bound it.
    #[must_use]
    pub fn from_passphrase(passphrase: &[u8], salt: u64, rounds: NonZeroU32) -> Self {
        let mut key = Self([0; 32]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, rounds, &salt.to_le_bytes(), passphrase, &mut key.0);
        key
    }
}

/// Key format version (`DSL_CRYPTO_VERSION`), which also determines the MACs' coverage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyVersion {
    /// Pre-release pools of 2017 (errata 3 and 4): read-only.
    V0,
    /// Current (`ZIO_CRYPT_KEY_CURRENT_VERSION`).
    V1,
}

impl TryFrom<u64> for KeyVersion {
    type Error = CryptoError;

    fn try_from(number: u64) -> Result<Self, CryptoError> {
        match number {
            0 => Ok(KeyVersion::V0),
            1 => Ok(KeyVersion::V1),
            _ => Err(CryptoError::UnknownVersion(number)),
        }
    }
}

/// Wrapped master and HMAC keys of a DSL crypto key object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// `DSL_CRYPTO_SUITE`.
    pub cipher: Cipher,
    /// `DSL_CRYPTO_VERSION`, 0 if missing.
    pub version: KeyVersion,
    /// `DSL_CRYPTO_GUID`.
    pub guid: u64,
    /// `DSL_CRYPTO_IV`.
    pub iv: Iv,
    /// `DSL_CRYPTO_MAC`.
    pub mac: Mac,
    /// `DSL_CRYPTO_MASTER_KEY_1`: the cipher's key, padded with zeros.
    pub master: [u8; 32],
    /// `DSL_CRYPTO_HMAC_KEY_1`.
    pub hmac: [u8; HMAC_KEY_BYTES],
}

impl WrappedKey {
    /// Unwraps the keys; [`CryptoError::WrongKey`] if another key wrapped them.
    pub fn unwrap(&self, wrapping: &WrappingKey) -> Result<MasterKey, CryptoError> {
        let key_bytes = self.cipher.key_bytes();
        let mut secret = [0; 32 + HMAC_KEY_BYTES];
        let secret_both = &mut secret[..key_bytes + HMAC_KEY_BYTES];
        secret_both[..key_bytes].copy_from_slice(&self.master[..key_bytes]);
        secret_both[key_bytes..].copy_from_slice(&self.hmac);

        let opened = BlockKey::new(self.cipher.for_wrapping(), &wrapping.0).open(
            &self.iv,
            &self.mac,
            &self.aad()[..self.aad_bytes()],
            secret_both,
        );
        let key = opened.map(|()| {
            let mut master = [0; 32];
            master[..key_bytes].copy_from_slice(&secret_both[..key_bytes]);
            MasterKey {
                cipher: self.cipher,
                version: self.version,
                guid: self.guid,
                master,
                hmac: HmacKey::new(secret_both[key_bytes..].first_chunk().unwrap_or(&[0; HMAC_KEY_BYTES])),
            }
        });
        secret.zeroize();
        key.map_err(|_| CryptoError::WrongKey)
    }

    fn aad(&self) -> [u8; 24] {
        let mut aad = [0; 24];
        aad[..8].copy_from_slice(&self.guid.to_le_bytes());
        aad[8..16].copy_from_slice(&(self.cipher as u64).to_le_bytes());
        aad[16..].copy_from_slice(&1u64.to_le_bytes());
        aad
    }

    fn aad_bytes(&self) -> usize {
        match self.version {
            KeyVersion::V0 => 8,
            KeyVersion::V1 => 24,
        }
    }

    /// Wraps the plaintext keys in `self`, which also holds identity and nonce.
    pub(super) fn seal(&mut self, wrapping: &WrappingKey) -> Result<(), CryptoError> {
        let key_bytes = self.cipher.key_bytes();
        let mut secret = [0; 32 + HMAC_KEY_BYTES];
        let both = &mut secret[..key_bytes + HMAC_KEY_BYTES];
        both[..key_bytes].copy_from_slice(&self.master[..key_bytes]);
        both[key_bytes..].copy_from_slice(&self.hmac);
        let key = BlockKey::new(self.cipher.for_wrapping(), &wrapping.0);
        let sealed = key.seal(&self.iv, &self.aad()[..self.aad_bytes()], both);
        self.master[..key_bytes].copy_from_slice(&both[..key_bytes]);
        self.hmac.copy_from_slice(&both[key_bytes..]);
        if sealed.is_err() {
            self.master.zeroize();
            self.hmac.zeroize();
        }
        secret.zeroize();
        self.mac = sealed?;
        Ok(())
    }
}

/// Unwrapped keys of a dataset and its clones.
pub struct MasterKey {
    cipher: Cipher,
    version: KeyVersion,
    guid: u64,
    master: [u8; 32],
    hmac: HmacKey,
}

impl Drop for MasterKey {
    fn drop(&mut self) {
        self.master.zeroize();
    }
}

struct HmacKey {
    key: hmac::Key,
    bytes: [u8; HMAC_KEY_BYTES],
}

impl HmacKey {
    fn new(bytes: &[u8; HMAC_KEY_BYTES]) -> Self {
        HmacKey { key: hmac::Key::new(hmac::HMAC_SHA512, bytes), bytes: *bytes }
    }
}

impl Drop for HmacKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MasterKey({}, guid {})", self.cipher.name(), self.guid)
    }
}

impl MasterKey {
    /// Keys of a new dataset from random bytes, which the caller must wipe. Uses the first
    /// [`Cipher::key_bytes`] of `master`.
    #[must_use]
    pub fn new(cipher: Cipher, guid: u64, master: &[u8; 32], hmac: &[u8; HMAC_KEY_BYTES]) -> Self {
        let mut own = [0; 32];
        own[..cipher.key_bytes()].copy_from_slice(&master[..cipher.key_bytes()]);
        let key = MasterKey { cipher, version: KeyVersion::V1, guid, master: own, hmac: HmacKey::new(hmac) };
        own.zeroize();
        key
    }

    /// Keys of a new dataset. `fill` must produce unpredictable bytes.
    #[must_use]
    pub fn random(cipher: Cipher, mut fill: impl FnMut(&mut [u8])) -> Self {
        let (mut guid, mut master, mut hmac) = ([0; 8], [0; 32], [0; HMAC_KEY_BYTES]);
        fill(&mut guid);
        fill(&mut master);
        fill(&mut hmac);
        let key = MasterKey::new(cipher, u64::from_le_bytes(guid), &master, &hmac);
        master.zeroize();
        hmac.zeroize();
        key
    }

    /// Wraps the keys for the pool. Never reuse an `iv` with a wrapping key.
    ///
    /// # Errors
    /// The cipher fails.
    pub fn wrap(&self, wrapping: &WrappingKey, iv: Iv) -> Result<WrappedKey, CryptoError> {
        let MasterKey { cipher, version, guid, master, .. } = *self;
        let mut wrapped =
            WrappedKey { cipher, version, guid, iv, mac: [0; 16], master, hmac: self.hmac.bytes };
        wrapped.seal(wrapping)?;
        Ok(wrapped)
    }

    /// Cipher of all blocks.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// Determines the coverage of dnode blocks' AAD and object sets' MACs.
    #[must_use]
    pub fn version(&self) -> KeyVersion {
        self.version
    }

    /// `DSL_CRYPTO_GUID`.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Derives the key of all blocks with this salt. Derivation takes microseconds and a salt serves many
    /// blocks, so callers should cache the key.
    #[must_use]
    pub fn block_key(&self, salt: &KeySalt) -> BlockKey {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        // ZFS's salt is HKDF's info; HKDF's salt is empty.
        const SHORT: &str = "32 bytes are less than HKDF-SHA512's limit of 16,320";
        let key_bytes = self.cipher.key_bytes();
        let mut key = [0; 32];
        hkdf::Salt::new(hkdf::HKDF_SHA512, &[])
            .extract(&self.master[..key_bytes])
            .expand(&[salt], Length(key_bytes))
            .expect(SHORT)
            .fill(&mut key[..key_bytes])
            .expect(SHORT);
        let block_key = BlockKey::new(self.cipher, &key);
        key.zeroize();
        block_key
    }

    /// Verifies the MAC of an authenticated, unencrypted block over its stored bytes, compressed or not.
    pub fn authenticate(&self, stored: &[u8], mac: &Mac) -> Result<(), CryptoError> {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.mac(stored), mac)
            .map_err(|_| CryptoError::Mac)
    }

    /// MAC of an authenticated, unencrypted block over its stored bytes.
    #[must_use]
    pub fn mac(&self, stored: &[u8]) -> Mac {
        let digest = hmac::sign(&self.hmac.key, stored);
        std::array::from_fn(|i| digest.as_ref()[i])
    }

    pub(super) fn hmac(&self) -> hmac::Context {
        hmac::Context::with_key(&self.hmac.key)
    }
}
