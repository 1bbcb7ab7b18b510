//! Encryption and decryption of blocks, and a dataset's key ready for use.
//!
//! Each block names a salt, from which its key is derived with the dataset's master key. Neighbouring blocks
//! share a salt, so recently derived keys are kept.
//!
//! The pointer decides the protection (see `cenote_codec::crypto`). Data are encrypted and carry a MAC. Types
//! that must be readable without a key are plaintext with a MAC. Indirect blocks carry a checksum of the MACs
//! below, which needs no key. Object sets carry their MACs inside. Without a key, plaintext is readable, but
//! only its checksum is verified, not its MAC.
//!
//! Locking: a [`DatasetKey`] may be used from any thread. Its two mutexes (derived keys, salt in use) are
//! never held together, nor across an await. A key is derived under the first, so that concurrent readers
//! derive it once.
//!
//! Source: OpenZFS `zio_decrypt`, `zio_crypt.c`.

use crate::check::{codec_endian, native_endian};
use crate::context::ReadContext;
use crate::error::{PoolError, Result};
use crate::zbookmark::Zbookmark;
use bytes::Bytes;
use cenote_codec::crypto::mac::{ObjsetMacs, objset_macs};
use cenote_codec::crypto::{BlockKey, Cipher, CryptoError, KeySalt, KeyVersion, MasterKey, layout, mac};
use cenote_format::blkptr::{Blkptr, CryptParams};
use cenote_format::dnode::ObjectType;
use cenote_runtime::{Runtime, WorkKind};
use std::sync::{Arc, Mutex, PoisonError};

/// A salt serves about 400 million blocks, but clones and rekeying mix several.
const KEPT_KEYS: usize = 16;

/// `ZFS_CURRENT_MAX_SALT_USES`: keeps the probability of equal random IVs at 10^-12.
const MAX_SALT_USES: u64 = 400_000_000;

/// The unwrapped keys of one encrypted dataset, and keys derived from them.
pub struct DatasetKey {
    master: MasterKey,
    derived: Mutex<Vec<(KeySalt, Arc<BlockKey>)>>,
    /// The salt for new blocks, and the number of blocks that it may still serve.
    writing: Mutex<Option<(KeySalt, u64)>>,
}

impl DatasetKey {
    /// Wraps the unwrapped master key.
    pub fn new(master: MasterKey) -> DatasetKey {
        DatasetKey { master, derived: Mutex::new(Vec::new()), writing: Mutex::new(None) }
    }

    /// Cipher, format version and key guid.
    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// The key of blocks with this salt.
    pub fn block_key(&self, salt: &KeySalt) -> Arc<BlockKey> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = derived.iter().find(|(known, _)| known == salt) {
            return key.clone();
        }
        let key = Arc::new(self.master.block_key(salt));
        if derived.len() == KEPT_KEYS {
            derived.remove(0);
        }
        derived.push((*salt, key.clone()));
        key
    }

    /// Replaced after [`MAX_SALT_USES`].
    fn next_salt(&self, rt: &Runtime) -> KeySalt {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (salt, left) =
            writing.filter(|(_, left)| *left > 0).unwrap_or_else(|| (secret(rt), MAX_SALT_USES));
        *writing = Some((salt, left - 1));
        salt
    }
}

impl std::fmt::Debug for DatasetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetKey({:?})", self.master)
    }
}

/// Decrypts a block with the crypt bit; the result is still compressed.
pub(crate) fn decrypt(bp: &Blkptr, stored: Bytes, ctx: &ReadContext) -> Result<Bytes> {
    let place = ctx.place;
    if bp.is_encrypted() {
        let key = ctx.key.as_ref().ok_or(PoolError::NoKey { dataset: place.dataset })?;
        return open(bp, stored, key).map_err(|error| failed(place, error));
    }
    if bp.is_authenticated()
        && bp.object_type() != ObjectType::OBJSET
        && let Some(key) = &ctx.key
    {
        let mac = bp.crypt_params().mac;
        key.master.authenticate(&stored, &mac).map_err(|error| failed(place, error))?;
    }
    Ok(stored)
}

/// Verifies the MACs of indirect blocks and object sets.
pub(crate) fn check_clear(bp: &Blkptr, clear: &[u8], ctx: &ReadContext) -> Result<()> {
    let endian = codec_endian(bp.endian());
    if bp.has_indirect_mac() {
        return match mac::indirect_matches(clear, endian, &bp.crypt_params().mac) {
            true => Ok(()),
            false => Err(failed(ctx.place, CryptoError::Mac)),
        };
    }
    let Some(key) = ctx.key.as_ref().filter(|_| bp.is_authenticated()) else { return Ok(()) };
    if bp.object_type() != ObjectType::OBJSET {
        return Ok(());
    }
    let computed = objset_macs(clear, endian, &key.master).map_err(|error| failed(ctx.place, error))?;
    match ObjsetMacs::stored(clear) {
        // A raw receive zeroes the local MAC until the accounting has been redone.
        Some(stored) if stored.portable == computed.portable => Ok(()),
        _ => Err(failed(ctx.place, CryptoError::Mac)),
    }
}

fn open(bp: &Blkptr, stored: Bytes, key: &DatasetKey) -> Result<Bytes, CryptoError> {
    let params = bp.crypt_params();
    let block_key = key.block_key(&params.salt);
    let endian = codec_endian(bp.endian());
    let mut block = Vec::from(stored);
    match bp.object_type() {
        ObjectType::DNODE => {
            let layout = layout::dnodes(&block, endian, key.master.version())?;
            block_key.open_parts(&params.iv, &params.mac, &layout, &mut block)?;
        }
        ObjectType::INTENT_LOG => {
            let mac = layout::log_mac(&block).ok_or(CryptoError::Mac)?;
            let layout = layout::log(&block, endian)?;
            block_key.open_parts(&params.iv, &mac, &layout, &mut block)?;
        }
        _ => block_key.open(&params.iv, &params.mac, &[], &mut block)?,
    }
    Ok(block.into())
}

/// The MAC is added later.
pub(crate) fn fresh_params(rt: &Runtime, key: &DatasetKey) -> CryptParams {
    CryptParams { salt: key.next_salt(rt), iv: secret(rt), mac: [0; 16] }
}

fn secret<const N: usize>(rt: &Runtime) -> [u8; N] {
    let mut bytes = [0; N];
    rt.fill_secret(&mut bytes);
    bytes
}

/// By type and level. `clear` is the block before compression.
pub(crate) fn encrypt(
    rt: &Runtime,
    bp: Blkptr,
    stored: Bytes,
    clear: &[u8],
    key: &DatasetKey,
) -> Result<(Blkptr, Bytes), CryptoError> {
    let (endian, version) = (native_endian(), key.master.version());
    if bp.level() > 0 {
        return Ok((bp.with_mac(Some(mac::indirect_mac(clear, endian, version))), stored));
    }
    if bp.object_type() == ObjectType::OBJSET {
        let macs = objset_macs(&stored, endian, &key.master)?;
        let mut block = Vec::from(stored);
        let has_room = macs.store(&mut block);
        debug_assert!(has_room, "what has MACs has room for them");
        return Ok((bp.with_mac(None), block.into()));
    }
    if !bp.object_type().is_encrypted() {
        let mac = key.master.mac(&stored);
        return Ok((bp.with_mac(Some(mac)), stored));
    }
    let mut params = fresh_params(rt, key);
    let block_key = key.block_key(&params.salt);
    let mut block = Vec::from(stored);
    params.mac = if bp.object_type() == ObjectType::DNODE {
        let layout = layout::dnodes(&block, endian, version)?;
        block_key.seal_parts(&params.iv, &layout, &mut block)?
    } else {
        block_key.seal(&params.iv, &[], &mut block)?
    };
    Ok((bp.with_crypt(&params), block.into()))
}

/// Encrypts or authenticates content as its pointer says it was; `None` if the MAC differs. Only for types
/// encrypted whole.
pub(crate) fn seal_as(bp: &Blkptr, stored: Bytes, key: &DatasetKey) -> Option<Bytes> {
    let params = bp.crypt_params();
    if matches!(bp.object_type(), ObjectType::DNODE | ObjectType::INTENT_LOG | ObjectType::OBJSET) {
        return None;
    }
    if !bp.is_encrypted() {
        return (key.master.mac(&stored) == params.mac).then_some(stored);
    }
    let mut block = Vec::from(stored);
    let mac = key.block_key(&params.salt).seal(&params.iv, &[], &mut block).ok()?;
    (mac == params.mac).then(|| block.into())
}

/// The MAC over the MACs below, for a dataset without its key. Only keys of the current version are received.
pub(crate) fn indirect_mac(clear: &[u8]) -> [u8; 16] {
    mac::indirect_mac(clear, native_endian(), KeyVersion::V1)
}

/// Uses the salt and IV in the pointer; the MAC goes inside.
pub(crate) fn seal_log_block(bp: &Blkptr, block: &mut [u8], key: &DatasetKey) -> Result<(), CryptoError> {
    let params = bp.crypt_params();
    let layout = layout::log(block, native_endian())?;
    let mac = key.block_key(&params.salt).seal_parts(&params.iv, &layout, block)?;
    match layout::store_log_mac(block, &mac) {
        true => Ok(()),
        false => Err(CryptoError::BadLayout("the log block is shorter than its header")),
    }
}

pub(crate) fn work(key: &DatasetKey) -> WorkKind {
    match key.master.cipher() {
        Cipher::Aes128Ccm | Cipher::Aes192Ccm | Cipher::Aes256Ccm => WorkKind::AesCcm,
        Cipher::Aes128Gcm | Cipher::Aes192Gcm | Cipher::Aes256Gcm => WorkKind::AesGcm,
    }
}

fn failed(place: Zbookmark, error: CryptoError) -> PoolError {
    PoolError::Decrypt { place, why: error.to_string().into() }
}
