//! Keys of an opened pool, unwrapped on demand.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_codec::crypto::{Cipher, CryptoError, KeyVersion, WrappedKey, WrappingKey};
use cenote_format::dsl::names::crypto_key as names;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::{DatasetError, Result, Zap};
use cenote_pool::DatasetKey;
use cenote_runtime::Runtime;
use tokio::sync::Mutex;

use crate::keys::{KeySource, UserKey};
use crate::mos::Mos;

/// Bound on PBKDF2 rounds. OpenZFS has none; a hostile pool could demand hours.
const MAX_PBKDF2_ITERS: u64 = 100_000_000;

/// Length of a new passphrase: `MIN_PASSPHRASE_LEN`, `MAX_PASSPHRASE_LEN`.
const PASSPHRASE_BYTES: std::ops::RangeInclusive<usize> = 8..=512;

/// Form of the user's key, `keyformat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
    /// Text of 8 to 512 bytes, stretched by PBKDF2.
    Passphrase,
}

impl KeyFormat {
    /// `zfs_keyformat_t`.
    pub fn from_number(number: u64) -> Option<KeyFormat> {
        match number {
            1 => Some(KeyFormat::Raw),
            2 => Some(KeyFormat::Hex),
            3 => Some(KeyFormat::Passphrase),
            _ => None,
        }
    }
}

/// Property `keystatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatus {
    /// Not encrypted.
    None,
    /// Key loaded.
    Available,
    /// Key not loaded, or wrong.
    Unavailable,
}

/// Encryption parameters known without the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionInfo {
    /// Encryption root: the dataset itself or an ancestor.
    pub root: String,
    /// Directory of the encryption root.
    pub root_dir: ObjectId,
    /// Cipher, `enum zio_encrypt`.
    pub suite: u64,
    /// Form of the user's key.
    pub keyformat: u64,
    /// `keylocation`: `prompt`, `file:///...`, `https://...`.
    pub keylocation: Option<String>,
    /// Passphrase salt.
    pub pbkdf2_salt: u64,
    /// Passphrase rounds.
    pub pbkdf2_iters: u64,
    /// Guid of the dataset's key.
    pub key_guid: Guid,
    /// Object of the wrapped keys; 0 if not made yet.
    pub key_object: ObjectId,
}

impl EncryptionInfo {
    /// Whether the user's key is for a new encryption root.
    pub fn is_new(&self) -> bool {
        self.key_object.0 == 0
    }
}

/// Unwrapped keys of a pool. The locks are held while a key is requested or derived, so each is requested
/// once. Lock order: `unwrapped` before `wrapping`.
#[derive(Default)]
pub struct Keyring {
    source: parking_lot::RwLock<KeySource>,
    /// By encryption root; `None`: requested, but not available.
    wrapping: Mutex<HashMap<ObjectId, Option<Arc<WrappingKey>>>>,
    unwrapped: Mutex<HashMap<ObjectId, Arc<DatasetKey>>>,
}

impl Keyring {
    /// Empty keyring that requests keys from `source`.
    pub fn new(source: KeySource) -> Keyring {
        Keyring { source: source.into(), ..Keyring::default() }
    }

    /// Forgets all keys; requests go to the new `source`.
    #[boxed]
    pub async fn restart(&self, source: KeySource) {
        *self.source.write() = source;
        self.wrapping.lock().await.clear();
        self.unwrapped.lock().await.clear();
    }

    /// Whether the key of an encryption root is loaded, without requesting it.
    #[boxed]
    pub async fn has(&self, root_dir: ObjectId) -> bool {
        matches!(self.wrapping.lock().await.get(&root_dir), Some(Some(_)))
    }

    /// Loaded user keys by encryption root.
    #[boxed]
    pub async fn known(&self) -> Vec<(ObjectId, Arc<WrappingKey>)> {
        let wrapping = self.wrapping.lock().await;
        wrapping.iter().filter_map(|(root, key)| Some((*root, key.clone()?))).collect()
    }

    /// Requests the key of the encryption root in `info` from `source` and checks it; `None` if the source
    /// has none.
    ///
    /// # Errors
    /// The key is wrong.
    #[boxed]
    pub async fn check(
        &self,
        mos: &Mos,
        info: &EncryptionInfo,
        source: &KeySource,
    ) -> Result<Option<Arc<WrappingKey>>> {
        let Some(key) = ask_key(mos.pool().runtime(), source, info).await? else { return Ok(None) };
        read_wrapped(mos, info).await?.unwrap(&key).map_err(|e| wrong_key(info, e))?;
        Ok(Some(key))
    }

    /// Like [`Keyring::check`], but keeps the key. Returns whether the source had one.
    ///
    /// # Errors
    /// As [`Keyring::check`].
    #[boxed]
    pub async fn load(&self, mos: &Mos, info: &EncryptionInfo, source: &KeySource) -> Result<bool> {
        let Some(key) = self.check(mos, info, source).await? else { return Ok(false) };
        self.learn(info.root_dir, key).await;
        Ok(true)
    }

    /// Forgets the key of an encryption root and the keys it unwrapped. No dataset that needs them may be
    /// open.
    pub async fn unload(&self, root_dir: ObjectId, key_objects: impl IntoIterator<Item = ObjectId>) {
        self.wrapping.lock().await.insert(root_dir, None);
        let mut unwrapped = self.unwrapped.lock().await;
        for object in key_objects {
            unwrapped.remove(&object);
        }
    }

    /// Key for blocks under `info`'s key object; errors name `dataset`.
    #[boxed]
    pub async fn dataset_key(
        &self,
        mos: &Mos,
        dataset: &str,
        info: &EncryptionInfo,
    ) -> Result<Arc<DatasetKey>> {
        let mut unwrapped = self.unwrapped.lock().await;
        if let Some(key) = unwrapped.get(&info.key_object) {
            return Ok(key.clone());
        }
        let wrapping = self.wrapping_key(mos.pool().runtime(), info).await?.ok_or_else(|| {
            DatasetError::KeyMissing { name: dataset.into(), root: info.root.as_str().into() }
        })?;
        let wrapped = read_wrapped(mos, info).await?;
        let master = wrapped.unwrap(&wrapping).map_err(|e| wrong_key(info, e))?;
        let key = Arc::new(DatasetKey::new(master));
        unwrapped.insert(info.key_object, key.clone());
        Ok(key)
    }

    /// User's key of an encryption root, unchecked; requested once.
    #[boxed]
    pub async fn wrapping_key(
        &self,
        runtime: &Runtime,
        info: &EncryptionInfo,
    ) -> Result<Option<Arc<WrappingKey>>> {
        let mut wrapping = self.wrapping.lock().await;
        if let Some(known) = wrapping.get(&info.root_dir) {
            return Ok(known.clone());
        }
        let derived = ask_key(runtime, &self.source(), info).await?;
        wrapping.insert(info.root_dir, derived.clone());
        Ok(derived)
    }

    /// Source of keys.
    pub fn source(&self) -> KeySource {
        self.source.read().clone()
    }

    /// Sets the key of an encryption root.
    #[boxed]
    pub async fn learn(&self, root_dir: ObjectId, key: Arc<WrappingKey>) {
        self.wrapping.lock().await.insert(root_dir, Some(key));
    }

    /// Moves the encryption root, with its key, to another directory.
    #[boxed]
    pub async fn move_root(&self, from: ObjectId, to: ObjectId) {
        let mut wrapping = self.wrapping.lock().await;
        if let Some(key) = wrapping.remove(&from) {
            wrapping.insert(to, key);
        }
    }

    /// Forgets a former encryption root.
    #[boxed]
    pub async fn forget_root(&self, root_dir: ObjectId) {
        self.wrapping.lock().await.remove(&root_dir);
    }

    /// Forgets a freed key object, whose number may be reused.
    #[boxed]
    pub async fn forget_key(&self, key_object: ObjectId) {
        self.unwrapped.lock().await.remove(&key_object);
    }
}

/// Requests the user's key of a current or future encryption root, and derives the wrapping key.
///
/// # Errors
/// The key does not have the form of `info`.
#[boxed]
pub async fn ask_key(
    runtime: &Runtime,
    source: &KeySource,
    info: &EncryptionInfo,
) -> Result<Option<Arc<WrappingKey>>> {
    let (about, source) = (info.clone(), source.clone());
    let derived =
        runtime.blocking(move || source.ask(&about).map(|key| derive(&key, &about)).transpose()).await;
    Ok(derived.map_err(|e| wrong_key(info, e))?.map(Arc::new))
}

/// Interprets the user's input as OpenZFS does: hexadecimal keys and passphrases end at the first newline; a
/// raw key is the whole input.
fn derive(key: &UserKey, info: &EncryptionInfo) -> Result<WrappingKey, CryptoError> {
    let line = key.0.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match KeyFormat::from_number(info.keyformat) {
        Some(KeyFormat::Hex) => WrappingKey::from_hex(&String::from_utf8_lossy(line)),
        Some(KeyFormat::Passphrase) => {
            if info.is_new() && !PASSPHRASE_BYTES.contains(&line.len()) {
                return Err(CryptoError::BadKeyFormat("8 to 512 bytes long"));
            }
            // OpenZFS would accept it, and stretch only the part before the zero.
            let text = line.split(|&byte| byte == 0).next().unwrap_or_default();
            if info.is_new() && text.len() < line.len() {
                return Err(CryptoError::BadKeyFormat("without a zero byte"));
            }
            let rounds = info.pbkdf2_iters.min(MAX_PBKDF2_ITERS) as u32;
            let rounds = NonZeroU32::new(rounds).unwrap_or(NonZeroU32::MIN);
            Ok(WrappingKey::from_passphrase(text, info.pbkdf2_salt, rounds))
        }
        Some(KeyFormat::Raw) | None => WrappingKey::from_raw(&key.0),
    }
}

fn wrong_key(info: &EncryptionInfo, why: CryptoError) -> DatasetError {
    DatasetError::WrongKey { root: info.root.as_str().into(), why: why.to_string().into() }
}

async fn read_wrapped(mos: &Mos, info: &EncryptionInfo) -> Result<WrappedKey> {
    let zap = Zap::open_id(mos.objset(), info.key_object).await?;
    let damaged = |what: &str| mos.objset().damaged(info.key_object, format!("the key object has no {what}"));
    let version = zap.get_u64(names::VERSION).await?.unwrap_or(0);
    let bytes = async |name: &str| -> Result<Vec<u8>> {
        let value = zap.lookup(name.as_bytes()).await?;
        value.as_ref().and_then(|v| v.as_bytes()).map(|b| b.to_vec()).ok_or_else(|| damaged(name))
    };
    let unsupported = |e: CryptoError| wrong_key(info, e);
    Ok(WrappedKey {
        cipher: Cipher::try_from(info.suite).map_err(unsupported)?,
        version: KeyVersion::try_from(version).map_err(unsupported)?,
        guid: info.key_guid.0,
        iv: bytes(names::IV).await?.try_into().map_err(|_| damaged(names::IV))?,
        mac: bytes(names::MAC).await?.try_into().map_err(|_| damaged(names::MAC))?,
        master: bytes(names::MASTER_KEY).await?.try_into().map_err(|_| damaged(names::MASTER_KEY))?,
        hmac: bytes(names::HMAC_KEY).await?.try_into().map_err(|_| damaged(names::HMAC_KEY))?,
    })
}
