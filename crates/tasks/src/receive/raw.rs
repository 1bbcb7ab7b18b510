//! Raw streams: keys of an encrypted dataset, wrapped by a user's key that may be unknown here.
//!
//! Idea: a raw stream carries the wrapped keys and a MAC of the whole object set. A new dataset stores the
//! keys at once and becomes an encryption root. An existing one must have the same keys, possibly wrapped by
//! another user's key by now; it gets the stream's wrapping at the end.
//!
//! Source: OpenZFS `dsl_crypt.c` (`dsl_crypto_recv_raw_key_check`, `dsl_crypto_recv_raw_key_sync`,
//! `dsl_crypto_recv_raw_objset_check`).

use cenote_boxed::boxed;
use cenote_codec::crypto::Cipher;
use cenote_dataset::keys::KeyFormat;
use cenote_dataset::name::is_at_or_below;
use cenote_dataset::{Dataset, Value};
use cenote_engine::{Engine, SyncContext};
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{crypto_key, dataset_field, dir_field};
use cenote_format::features::Feature;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::{BlockId, ObjectId};
use cenote_object::objset::RawHead;
use cenote_object::{DatasetError, NewZap, Result, ZapEdit, ZapValue};

use crate::crypt::PROMPT;
use crate::set::{forget_setting, store_setting};

/// `ZIO_CRYPT_KEY_CURRENT_VERSION`: older keys cannot be sent raw.
const KEY_VERSION: u64 = 1;
/// Byte strings of a key, with their lengths.
const PARTS: [(&str, usize); 4] =
    [(crypto_key::MASTER_KEY, 32), (crypto_key::HMAC_KEY, 64), (crypto_key::IV, 12), (crypto_key::MAC, 16)];
/// Numbers in a key object.
const NUMBERS: [&str; 5] = [
    crypto_key::CRYPTO_SUITE,
    crypto_key::GUID,
    crypto_key::KEYFORMAT,
    crypto_key::PBKDF2_SALT,
    crypto_key::PBKDF2_ITERS,
];

/// A raw stream's keys and the shape of its object set.
#[derive(Debug, Clone)]
pub struct RawKeys {
    numbers: [u64; NUMBERS.len()],
    parts: [Vec<u8>; PARTS.len()],
    to_ivset: u64,
    from_ivset: u64,
    levels: u8,
    indirect_block_shift: u8,
    max_block_id: BlockId,
    checksum_id: u8,
    compression_id: u8,
    portable_mac: [u8; 32],
}

impl RawKeys {
    /// Reads a BEGIN's `crypt_keydata`.
    ///
    /// # Errors
    /// Why a field is missing or unsupported.
    pub fn of(list: &Nvlist) -> Result<RawKeys, &'static str> {
        const BAD: &str = "stream uses crypto parameters not compatible with this pool";
        let number = |name: &str| list.get_u64(name).ok_or(BAD);
        let byte = |name: &str| u8::try_from(number(name)?).map_err(|_| BAD);
        let bytes = |name: &str, len: usize| match list.get(name) {
            Some(NvValue::Uint8Array(bytes)) if bytes.len() == len => Ok(bytes.clone()),
            _ => Err(BAD),
        };
        let mut numbers = [0; NUMBERS.len()];
        for (slot, name) in numbers.iter_mut().zip(NUMBERS) {
            *slot = number(name)?;
        }
        let [suite, _, format, salt, iterations] = numbers;
        let is_stretched = match KeyFormat::from_number(format) {
            Some(format) => format == KeyFormat::Passphrase,
            None => return Err(BAD),
        };
        let is_odd = is_stretched == (salt == 0) || is_stretched == (iterations == 0);
        if Cipher::try_from(suite).is_err() || number(crypto_key::VERSION)? != KEY_VERSION || is_odd {
            return Err(BAD);
        }
        let is_usual = number("mdn_blksz")? == 16384 && number("mdn_nblkptr")? == 3;
        let (levels, indirect_block_shift) = (byte("mdn_nlevels")?, byte("mdn_indblkshift")?);
        if !is_usual || !(1..=32).contains(&levels) || !(12..=17).contains(&indirect_block_shift) {
            return Err(BAD);
        }
        let [master, hmac, iv, mac] = PARTS.map(|(name, len)| bytes(name, len));
        Ok(RawKeys {
            numbers,
            parts: [master?, hmac?, iv?, mac?],
            to_ivset: list.get_u64("to_ivset_guid").unwrap_or(0),
            from_ivset: list.get_u64("from_ivset_guid").unwrap_or(0),
            levels,
            indirect_block_shift,
            max_block_id: BlockId(number("mdn_maxblkid")?.min(1 << 43)),
            checksum_id: byte("mdn_checksum")?,
            compression_id: byte("mdn_compress")?,
            portable_mac: bytes("portable_mac", 32)?.try_into().map_err(|_| BAD)?,
        })
    }

    /// Parameters of the object set's head.
    pub fn head(&self) -> RawHead {
        RawHead {
            levels: self.levels,
            indirect_block_shift: self.indirect_block_shift,
            max_block_id: self.max_block_id,
            checksum_id: self.checksum_id,
            compression_id: self.compression_id,
            portable_mac: self.portable_mac,
            dnodes: Default::default(),
        }
    }
}

/// A raw increment must apply to the same ciphertext and keys it was sent from.
pub(super) async fn check_base(
    context: &SyncContext,
    keys: &RawKeys,
    target: &Dataset,
    base: &Dataset,
) -> Result<()> {
    let refuse = |why: &str| Err(DatasetError::unsuitable(target.name(), why));
    let here = base.field(dataset_field::IVSET_GUID).await?.and_then(|words| words.first().copied());
    match here.unwrap_or(0) {
        _ if !context.scan_settings().checks_ivsets() => {}
        0 => {
            return refuse(
                "IV set guid missing. See errata 4 at \
                 https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER.",
            );
        }
        here if keys.from_ivset != here => {
            return refuse(
                "IV set guid mismatch. See the 'zfs receive' man page section\n discussing the limitations \
                 of raw encrypted send streams.",
            );
        }
        _ => {}
    }
    let [_, guid, ..] = keys.numbers;
    let info = target.dir().encryption().await?;
    match info.is_some_and(|info| info.key_guid.0 == guid) {
        true => Ok(()),
        false => refuse("encryption key does not match existing key"),
    }
}

/// Stores the stream's keys for a new directory.
pub(super) async fn store_new(
    context: &mut SyncContext,
    dir: ObjectId,
    head: ObjectId,
    keys: &RawKeys,
) -> Result<()> {
    let edit = context.edit();
    let object = NewZap::of(ObjectType::ZAP_METADATA).create(&edit).await?;
    let fields = ZapEdit::new(&edit, object);
    fields.add(crypto_key::REFCOUNT, 1).await?;
    fields.add(crypto_key::VERSION, KEY_VERSION).await?;
    fields.add(crypto_key::ROOT_DDOBJ, dir.0).await?;
    context.zapify(dir).await?;
    ZapEdit::new(&edit, dir).add(dir_field::CRYPTO_KEY_OBJ, object.0).await?;
    if let Some(feature) = Feature::by_name("encryption") {
        context.activate_feature(head, feature, ZapValue::from(0)).await?;
    }
    let props = context.dir_phys(dir).await?.props_zap;
    ZapEdit::new(&edit, props).update("keylocation", &ZapValue::from_text(PROMPT)).await?;
    store(context, object, keys).await
}

/// Makes a raw-received dataset an encryption root, or else part of the root above, together with all below
/// of the same root: the sender's keys wrap them already. Does nothing for clones, which have their origin's
/// keys.
///
/// # Errors
/// No such dataset.
///
/// Source: OpenZFS `dsl_crypt.c` (`DCP_CMD_FORCE_NEW_KEY`, `DCP_CMD_FORCE_INHERIT`).
#[boxed]
pub async fn move_to_root(engine: &Engine, name: &str, is_root: bool) -> Result<()> {
    let name = name.to_owned();
    engine
        .run(move |context| {
            context.touch_nothing();
            Box::pin(async move { move_to_root_sync(context, &name, is_root).await })
        })
        .await
}

async fn move_to_root_sync(context: &mut SyncContext, name: &str, is_root: bool) -> Result<()> {
    let dataset = context.mos().await?.dataset(name).await?;
    let dir = dataset.dir().id();
    let above = match dataset.dir().parent() {
        Some(parent) => parent.encryption().await?,
        None => None,
    };
    let (Some(own), None) = (dataset.dir().encryption().await?, dataset.origin().await?) else {
        return Ok(());
    };
    let to = match above {
        _ if is_root => dir,
        Some(above) if own.root_dir == dir => above.root_dir,
        _ => return Ok(()),
    };
    if own.root_dir == to {
        return Ok(());
    }
    let heads = context.mos().await?.all_datasets().await?;
    for head in heads.into_iter().filter(|head| !head.is_snapshot() && is_at_or_below(head.name(), name)) {
        let info = head.dir().encryption().await?.filter(|info| info.root_dir == own.root_dir);
        if let (Some(info), None) = (info, head.origin().await?) {
            ZapEdit::new(&context.edit(), info.key_object).update(crypto_key::ROOT_DDOBJ, to.0).await?;
        }
    }
    if is_root {
        return store_setting(context, &dataset, "keylocation", &Value::Text(PROMPT.into())).await;
    }
    context.keys().forget_root(dir).await;
    forget_setting(context, &dataset, "keylocation").await
}

/// Stores the stream's wrapping in the key object of an existing encrypted dataset.
pub(super) async fn store_again(context: &SyncContext, target: &Dataset, keys: &RawKeys) -> Result<()> {
    match target.dir().encryption().await? {
        Some(info) => store(context, info.key_object, keys).await,
        None => Ok(()),
    }
}

async fn store(context: &SyncContext, object: ObjectId, keys: &RawKeys) -> Result<()> {
    let edit = context.edit();
    let fields = ZapEdit::new(&edit, object);
    for (name, number) in NUMBERS.iter().zip(keys.numbers) {
        fields.update(*name, number).await?;
    }
    for ((name, _), bytes) in PARTS.iter().zip(&keys.parts) {
        fields.update(*name, &ZapValue::new(1, bytes.clone().into())).await?;
    }
    Ok(())
}

/// Gives the snapshot the sent one's IV set guid.
pub(super) async fn note_ivset(context: &mut SyncContext, snapshot: ObjectId, keys: &RawKeys) -> Result<()> {
    if keys.to_ivset == 0 {
        return Ok(());
    }
    context.zapify(snapshot).await?;
    ZapEdit::new(&context.edit(), snapshot).update(dataset_field::IVSET_GUID, keys.to_ivset).await
}
