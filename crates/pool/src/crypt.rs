//! Decryption of blocks, and a dataset's key ready for it.
//!
//! Each block names a salt; the key that encrypts it is derived from the dataset's master key and that salt.
//! Blocks written around the same time share a salt, so the keys derived last are kept.
//!
//! What is protected how is decided by the pointer (see `cenote_codec::crypto`): data is encrypted and carries a
//! MAC; types that must be readable without a key are in clear with a MAC; indirect blocks carry a checksum of the
//! MACs below, which needs no key; object sets carry their MACs inside. Without a key what is in clear is readable,
//! and its MAC is not checked: its checksum was.
//!
//! Source: OpenZFS `zio_decrypt`, `zio_crypt.c`.

use crate::check::codec_endian;
use crate::error::{PoolError, Result};
use crate::place::Place;
use crate::pool::ReadContext;
use bytes::Bytes;
use cenote_codec::crypto::mac::{ObjsetMacs, objset_macs};
use cenote_codec::crypto::{BlockKey, CryptoError, KeySalt, MasterKey, layout, mac};
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use std::sync::{Arc, Mutex, PoisonError};

/// Derived keys kept; a salt serves 400 million blocks or so, but clones and rekeying mix several.
const KEPT_KEYS: usize = 16;

/// The unwrapped keys of one encrypted dataset, and keys derived from them.
pub struct DatasetKey {
    master: MasterKey,
    derived: Mutex<Vec<(KeySalt, Arc<BlockKey>)>>,
}

impl DatasetKey {
    /// From the unwrapped master key.
    pub fn new(master: MasterKey) -> DatasetKey {
        DatasetKey { master, derived: Mutex::new(Vec::new()) }
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
}

impl std::fmt::Debug for DatasetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetKey({:?})", self.master)
    }
}

/// Turns the stored bytes of a block with the crypt bit into what was compressed: `psize` bytes still.
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

/// Checks what can only be checked on decompressed bytes: MACs over indirect blocks and object sets.
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
        // The local MAC is zeroed by a raw receive until the accounting has been done again.
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

fn failed(place: Place, error: CryptoError) -> PoolError {
    PoolError::Decrypt { place, why: error.to_string().into() }
}
