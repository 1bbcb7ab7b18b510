//! Keys of encrypted datasets: creation, sharing with clones, removal. `change_key` rewraps them.
//!
//! ```text
//!   dir --crypto_key_obj--> key object: suite, guid, version, reference count
//!                                       wrapped master and HMAC key, IV, MAC
//!                                       root_ddobj: the encryption root; parameters of its user's key
//! ```
//!
//! Idea: each directory except a clone has its own random keys, wrapped by the user's key of its encryption
//! root: itself or a directory above. Changing a user's key rewraps keys and rewrites no block.
//!
//! The user's key is obtained before a task begins, since the user may have to type it.
//!
//! Source: OpenZFS `dsl_crypt.c` (`dsl_dataset_create_crypt_sync`), `libzfs_crypto.c` (`zfs_crypto_create`),
//! including the wording.

use std::sync::Arc;

use cenote_codec::crypto::{Cipher, MasterKey, WrappingKey};
use cenote_dataset::KeySource;
use cenote_dataset::keys::{KeyFormat, ask_key};
use cenote_dataset::{Dir, EncryptionInfo, Value};
use cenote_engine::{Engine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{crypto_key, dir_field};
use cenote_format::features::Feature;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{DatasetError, NewZap, Result, ZapEdit, ZapValue};
use cenote_runtime::Runtime;

use crate::new_dataset::Settings;

/// `ZIO_CRYPT_ON`, `ZIO_CRYPT_OFF`: values of `encryption` that are no ciphers.
const CRYPT_ON: u64 = 1;
const CRYPT_OFF: u64 = 2;
/// `DEFAULT_PBKDF2_ITERATIONS`.
const DEFAULT_ITERATIONS: u64 = 350_000;
/// `MIN_PBKDF2_ITERATIONS`.
const MIN_ITERATIONS: u64 = 100_000;
/// `ZIO_CRYPT_KEY_CURRENT_VERSION`.
const KEY_VERSION: u64 = 1;
const FEATURE: &str = "encryption";
/// The default key location.
pub(crate) const PROMPT: &str = "prompt";

/// Encryption of a new dataset.
#[derive(Clone)]
pub(crate) struct NewCrypt {
    cipher: Cipher,
    /// The key of a new encryption root; `None`: the parent's.
    own: Option<UsersKey>,
}

/// A user's key and its derivation.
#[derive(Clone)]
pub(crate) struct UsersKey {
    pub(crate) wrapping: Arc<WrappingKey>,
    format: u64,
    salt: u64,
    iterations: u64,
}

/// Encryption settings.
pub(crate) struct Wanted<'a> {
    encryption: Option<u64>,
    pub(crate) format: Option<u64>,
    pub(crate) location: Option<&'a str>,
    iterations: Option<u64>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(settings: &'a Settings) -> Wanted<'a> {
        let find =
            |name: &str| settings.iter().find(|(property, _)| property == name).map(|(_, value)| value);
        let number = |name| match find(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        };
        let location = match find("keylocation") {
            Some(Value::Text(location)) if location != "none" => Some(location.as_str()),
            _ => None,
        };
        let format = number("keyformat").filter(|&format| format != 0);
        Wanted { encryption: number("encryption"), format, location, iterations: number("pbkdf2iters") }
    }

    fn has_any(&self) -> bool {
        self.format.is_some() || self.location.is_some() || self.iterations.is_some()
    }

    /// Obtains the user's key.
    pub(crate) async fn key(
        &self,
        rt: &Runtime,
        keys: &KeySource,
        name: &str,
        suite: u64,
    ) -> Result<UsersKey> {
        let format = self.format.unwrap_or_default();
        let is_stretched = KeyFormat::from_number(format) == Some(KeyFormat::Passphrase);
        let (mut salt, mut iterations) = (0, 0);
        if is_stretched {
            let mut bytes = [0; 8];
            rt.fill_secret(&mut bytes);
            salt = u64::from_ne_bytes(bytes).max(1);
            iterations = self.iterations.unwrap_or(DEFAULT_ITERATIONS);
            if iterations < MIN_ITERATIONS {
                let why = format!("Minimum pbkdf2 iterations is {MIN_ITERATIONS}.");
                return Err(DatasetError::unsuitable(name, why));
            }
        } else if self.iterations.is_some() {
            let why = "Cannot specify pbkdf2iters with a non-passphrase keyformat.";
            return Err(DatasetError::unsuitable(name, why));
        }
        let info = EncryptionInfo {
            root: name.to_owned(),
            root_dir: ObjectId(0),
            suite,
            keyformat: format,
            keylocation: Some(self.location.unwrap_or(PROMPT).to_owned()),
            pbkdf2_salt: salt,
            pbkdf2_iters: iterations,
            key_guid: Guid(0),
            key_object: ObjectId(0),
        };
        let missing = || DatasetError::KeyMissing { name: name.into(), root: name.into() };
        let wrapping = ask_key(rt, keys, &info).await?.ok_or_else(missing)?;
        Ok(UsersKey { wrapping, format, salt, iterations })
    }
}

impl NewCrypt {
    /// Derives encryption from the settings and the parent's encryption; `None`: unencrypted. Adds the key
    /// location of a new encryption root to the settings.
    pub(crate) async fn plan(
        rt: &Runtime,
        keys: &KeySource,
        name: &str,
        parent: Option<&EncryptionInfo>,
        settings: &mut Settings,
    ) -> Result<Option<NewCrypt>> {
        let wanted = Wanted::of(settings);
        let suite = match wanted.encryption {
            None => parent.map(|parent| parent.suite),
            Some(CRYPT_OFF) => None,
            Some(CRYPT_ON) => Some(Cipher::Aes256Gcm as u64),
            Some(suite) => Some(suite),
        };
        let refused = |why: &str| Err(DatasetError::unsuitable(name, why));
        let Some(suite) = suite else {
            return match wanted.has_any() {
                true => refused("Encryption must be turned on to set encryption properties."),
                false => Ok(None),
            };
        };
        let cipher = Cipher::try_from(suite).map_err(|e| DatasetError::unsuitable(name, e.to_string()))?;
        if wanted.format.is_some() {
            let own = wanted.key(rt, keys, name, suite).await?;
            if wanted.location.is_none() {
                settings.push(("keylocation".into(), Value::Text(PROMPT.into())));
            }
            return Ok(Some(NewCrypt { cipher, own: Some(own) }));
        }
        match parent.is_none() || wanted.has_any() {
            true => refused("Keyformat required for new encryption root."),
            false => Ok(Some(NewCrypt { cipher, own: None })),
        }
    }
}

/// Derives a new dataset's encryption; checks that an inherited key is loaded.
pub(crate) async fn plan_encryption(
    engine: &Engine,
    name: &str,
    settings: &mut Settings,
) -> Result<Option<NewCrypt>> {
    let above = name.rsplit_once('/').map_or(name, |(above, _)| above);
    let parent = match engine.mos().await?.dataset(above).await {
        // The task reports the missing parent.
        Err(DatasetError::NoDataset { .. }) => return Ok(None),
        parent => parent?,
    };
    let info = parent.dir().encryption().await?;
    let new = NewCrypt::plan(engine.runtime(), &engine.new_keys(), name, info.as_ref(), settings).await?;
    if new.as_ref().is_some_and(|new| new.own.is_none()) {
        parent.key().await?;
    }
    Ok(new)
}

/// Makes keys for a new directory and its head.
pub(crate) async fn encrypt(
    context: &mut SyncContext,
    dir: ObjectId,
    head: ObjectId,
    new: &NewCrypt,
) -> Result<()> {
    let edit = context.edit();
    let (root, users) = match &new.own {
        Some(own) => (dir, own.clone()),
        None => key_above(context, dir).await?,
    };
    let object = NewZap::of(ObjectType::ZAP_METADATA).create(&edit).await?;
    let runtime = context.runtime();
    let master = MasterKey::random(new.cipher, |bytes| runtime.fill_secret(bytes));
    store_key(context, object, &master, root, &users).await?;
    let fields = ZapEdit::new(&edit, object);
    fields.add(crypto_key::REFCOUNT, 1).await?;
    fields.add(crypto_key::VERSION, KEY_VERSION).await?;
    context.zapify(dir).await?;
    ZapEdit::new(&edit, dir).add(dir_field::CRYPTO_KEY_OBJ, object.0).await?;
    if let Some(feature) = Feature::by_name(FEATURE) {
        context.activate_feature(head, feature, ZapValue::from(0)).await?;
    }
    if new.own.is_some() {
        context.keys().learn(dir, users.wrapping).await;
    }
    Ok(())
}

/// Encryption needs its features enabled (`dmu_objset_create_crypt_check`).
pub(crate) async fn check_encryption(context: &SyncContext, name: &str) -> Result<()> {
    for feature in [FEATURE, "bookmark_v2"] {
        if FeatureCounts::of(&context.edit()).count(feature).await?.is_none() {
            let why = format!("Encryption feature not enabled (feature@{feature}).");
            return Err(DatasetError::unsuitable(name, why));
        }
    }
    Ok(())
}

/// A directory's encryption root above it, with the key.
pub(crate) async fn key_above(context: &SyncContext, dir: ObjectId) -> Result<(ObjectId, UsersKey)> {
    let mos = context.mos().await?;
    let above = Dir::open_by_id(&mos, context.dir_phys(dir).await?.parent).await?;
    let why = || context.damaged("a dataset is to take a key from above where there is none");
    let info = above.encryption().await?.ok_or_else(why)?;
    let wrapping = context.keys().wrapping_key(mos.pool().runtime(), &info).await?.ok_or_else(|| {
        DatasetError::KeyMissing { name: above.name().into(), root: info.root.as_str().into() }
    })?;
    let (format, salt, iterations) = (info.keyformat, info.pbkdf2_salt, info.pbkdf2_iters);
    Ok((info.root_dir, UsersKey { wrapping, format, salt, iterations }))
}

/// Stores keys in their object, wrapped by a user's key (`dsl_crypto_key_sync_impl`).
pub(crate) async fn store_key(
    context: &SyncContext,
    object: ObjectId,
    keys: &MasterKey,
    root: ObjectId,
    users: &UsersKey,
) -> Result<()> {
    let mut iv = [0; 12];
    context.runtime().fill_secret(&mut iv);
    let wrapped = keys.wrap(&users.wrapping, iv).map_err(|error| context.damaged(&error.to_string()))?;
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, object);
    for (name, number) in [
        (crypto_key::CRYPTO_SUITE, wrapped.cipher as u64),
        (crypto_key::ROOT_DDOBJ, root.0),
        (crypto_key::GUID, wrapped.guid),
        (crypto_key::KEYFORMAT, users.format),
        (crypto_key::PBKDF2_SALT, users.salt),
        (crypto_key::PBKDF2_ITERS, users.iterations),
    ] {
        fields.update(name, number).await?;
    }
    for (name, bytes) in [
        (crypto_key::IV, &wrapped.iv[..]),
        (crypto_key::MAC, &wrapped.mac[..]),
        (crypto_key::MASTER_KEY, &wrapped.master[..]),
        (crypto_key::HMAC_KEY, &wrapped.hmac[..]),
    ] {
        fields.update(name, &ZapValue::new(1, bytes.to_vec().into())).await?;
    }
    Ok(())
}

/// Shares the origin's keys with a clone (`dsl_crypto_key_clone_sync`).
pub(crate) async fn share_key(context: &mut SyncContext, origin: &Dir, dir: ObjectId) -> Result<()> {
    let Some(key) = origin.field(dir_field::CRYPTO_KEY_OBJ).await?.map(ObjectId) else { return Ok(()) };
    let edit = context.edit();
    ZapEdit::new(&edit, key).increment(crypto_key::REFCOUNT, 1).await?;
    context.zapify(dir).await?;
    ZapEdit::new(&edit, dir).add(dir_field::CRYPTO_KEY_OBJ, key.0).await
}

/// Drops a dataset's reference to its key, and the key with the last one.
pub(crate) async fn leave_key(context: &mut SyncContext, dir: ObjectId) -> Result<()> {
    let edit = context.edit();
    context.keys().forget_root(dir).await;
    if !edit.view().dnode(dir).await?.object_type.is_zap() {
        return Ok(());
    }
    let key = ZapEdit::new(&edit, dir).get(dir_field::CRYPTO_KEY_OBJ).await?;
    let Some(key) = key.and_then(|key| key.as_u64()).map(ObjectId) else { return Ok(()) };
    let fields = ZapEdit::new(&edit, key);
    // Without a reference count the key stays: losing it would lose its users' data.
    let count = fields.get(crypto_key::REFCOUNT).await?.and_then(|count| count.as_u64());
    let Some(count) = count else { return Ok(()) };
    match count {
        0 | 1 => {
            context.keys().forget_key(key).await;
            edit.destroy(key).await
        }
        count => fields.update(crypto_key::REFCOUNT, count - 1).await,
    }
}
