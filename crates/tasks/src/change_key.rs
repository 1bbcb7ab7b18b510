//! Changes the keys of encrypted datasets: `zfs change-key`.
//!
//! Idea: blocks are encrypted with random keys that never change; only the user's key that wraps them does,
//! for a whole encryption root.
//!
//! Source: OpenZFS `dsl_crypt.c` (`spa_keystore_change_key_sync`), `libzfs_crypto.c` (`zfs_crypto_rewrap`),
//! including the wording.

use cenote_boxed::boxed;
use cenote_dataset::name::is_at_or_below;
use cenote_dataset::{Dataset, EncryptionInfo, Value};
use cenote_engine::{Engine, SyncContext};
use cenote_format::dsl::names::crypto_key;
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, Result, ZapEdit};

use crate::crypt::{PROMPT, UsersKey, Wanted, key_above, store_key};
use crate::new_dataset::Settings;
use crate::set::{forget_setting, store_setting};

/// Changes the key of an encryption root, or makes a dataset one. Options missing from `settings`
/// (`keyformat`, `keylocation`, `pbkdf2iters`) stay as they are.
///
/// # Errors
/// It is not encrypted, or a clone; the old key or the new one is missing.
#[boxed]
pub async fn change_key(engine: &Engine, name: &str, settings: Settings) -> Result<()> {
    let dataset = engine.mos().await?.dataset(name).await?;
    let info = encrypted(&dataset).await?;
    dataset.key().await?;
    let is_root = info.root_dir == dataset.dir().id();
    let mut wanted = Wanted::of(&settings);
    if wanted.format.is_none() && is_root {
        wanted.format = Some(info.keyformat);
    }
    if wanted.format.is_none() {
        let why = "Keyformat required for new encryption root.";
        return Err(DatasetError::unsuitable(name, why));
    }
    let old_location = info.keylocation.clone().filter(|_| is_root);
    wanted.location = wanted.location.or(old_location.as_deref());
    let location = wanted.location.unwrap_or(PROMPT).to_owned();
    let key = wanted.key(engine.runtime(), &engine.new_keys(), name, info.suite).await?;
    let name = name.to_owned();
    engine
        .run(move |context| {
            // Open datasets keep their data keys.
            context.touch_nothing();
            Box::pin(async move { change_key_sync(context, &name, key, location, is_root).await })
        })
        .await
}

/// Makes an encryption root inherit its parent's key.
///
/// # Errors
/// It is no encryption root, the parent is not encrypted, or a key is missing.
#[boxed]
pub async fn inherit_key(engine: &Engine, name: &str) -> Result<()> {
    let dataset = engine.mos().await?.dataset(name).await?;
    let info = encrypted(&dataset).await?;
    if info.root_dir != dataset.dir().id() {
        return Err(DatasetError::unsuitable(
            name,
            "Key inheritting can only be performed on encryption roots.",
        ));
    }
    dataset.key().await?;
    let parent = match dataset.dir().parent() {
        Some(parent) => parent.head().await?,
        None => return Err(DatasetError::unsuitable(name, "Root dataset cannot inherit key.")),
    };
    if parent.key().await?.is_none() {
        return Err(DatasetError::unsuitable(name, "Parent dataset is not encrypted."));
    }
    let name = name.to_owned();
    engine
        .run(move |context| {
            context.touch_nothing();
            Box::pin(async move { inherit_key_sync(context, &name).await })
        })
        .await
}

/// The encryption of a dataset whose key may be changed.
async fn encrypted(dataset: &Dataset) -> Result<EncryptionInfo> {
    let name = dataset.name();
    let why = match dataset.dir().encryption().await? {
        _ if dataset.is_snapshot() => "Key change unsupported for snapshots.",
        None => "Dataset not encrypted.",
        Some(_) if dataset.origin().await?.is_some() => {
            "Key cannot be changed for a clone: it has its origin's."
        }
        Some(info) => return Ok(info),
    };
    Err(DatasetError::unsuitable(name, why))
}

async fn change_key_sync(
    context: &mut SyncContext,
    name: &str,
    key: UsersKey,
    location: String,
    is_root: bool,
) -> Result<()> {
    let dataset = context.mos().await?.dataset(name).await?;
    let (dir, info) = (dataset.dir().id(), encrypted(&dataset).await?);
    // All datasets of this root get the new key, including children of its clones elsewhere.
    let within = (!is_root).then_some(name);
    rewrap(context, info.root_dir, within, dir, &key).await?;
    context.keys().learn(dir, key.wrapping).await;
    store_setting(context, &dataset, "keylocation", &Value::Text(location)).await
}

async fn inherit_key_sync(context: &mut SyncContext, name: &str) -> Result<()> {
    let dataset = context.mos().await?.dataset(name).await?;
    let dir = dataset.dir().id();
    let (root, key) = key_above(context, dir).await?;
    rewrap(context, dir, None, root, &key).await?;
    context.keys().forget_root(dir).await;
    forget_setting(context, &dataset, "keylocation").await
}

/// Rewraps all keys of an encryption root, or only those at and below `within`, with the key of `root`.
async fn rewrap(
    context: &SyncContext,
    old: ObjectId,
    within: Option<&str>,
    root: ObjectId,
    key: &UsersKey,
) -> Result<()> {
    let is_below = |name: &str| within.is_none_or(|top| is_at_or_below(name, top));
    let heads = context.mos().await?.all_datasets().await?;
    for head in heads.into_iter().filter(|head| !head.is_snapshot() && is_below(head.name())) {
        let Some(info) = head.dir().encryption().await?.filter(|info| info.root_dir == old) else {
            continue;
        };
        // A clone shares its origin's keys.
        if head.origin().await?.is_none()
            && let Some(keys) = head.key().await?
        {
            store_key(context, info.key_object, keys.master(), root, key).await?;
        }
    }
    Ok(())
}

/// Makes a promoted clone the encryption root in place of its origin's owner
/// (`dsl_dataset_promote_crypt_sync`).
pub(crate) async fn move_root(context: &mut SyncContext, owner: &Dataset, clone: &Dataset) -> Result<()> {
    let (from, to) = (owner.dir().id(), clone.dir().id());
    let Some(info) = own_root(owner).await? else { return Ok(()) };
    for head in context.mos().await?.all_datasets().await? {
        let other = head.dir().encryption().await?;
        if let Some(other) = other.filter(|other| other.root_dir == from) {
            ZapEdit::new(&context.edit(), other.key_object).update(crypto_key::ROOT_DDOBJ, to.0).await?;
        }
    }
    context.keys().move_root(from, to).await;
    let location = info.keylocation.unwrap_or(PROMPT.into());
    store_setting(context, clone, "keylocation", &Value::Text(location)).await?;
    forget_setting(context, owner, "keylocation").await
}

/// The owner's encryption, if it is an encryption root and no clone.
async fn own_root(owner: &Dataset) -> Result<Option<EncryptionInfo>> {
    let info = owner.dir().encryption().await?;
    let is_clone = owner.origin().await?.is_some();
    Ok(info.filter(|info| info.root_dir == owner.dir().id() && !is_clone))
}

/// Promotion must keep the keys below the same encryption root (`dsl_dataset_promote_crypt_check`).
pub(crate) async fn check_key_stays(owner: &Dataset, clone: &Dataset) -> Result<()> {
    let is_encrypted = owner.dir().encryption().await?.is_some();
    if !is_encrypted || owner.origin().await?.is_some() || own_root(owner).await?.is_some() {
        return Ok(());
    }
    let above = async |dataset: &Dataset| match dataset.dir().parent() {
        Some(parent) => Ok::<_, DatasetError>(parent.encryption().await?.map(|info| info.root_dir)),
        None => Ok(None),
    };
    let (of_owner, of_clone) = (above(owner).await?, above(clone).await?);
    match of_owner.is_some() && of_owner == of_clone {
        true => Ok(()),
        false => Err(DatasetError::unsuitable(clone.name(), "cannot promote across encryption roots")),
    }
}
