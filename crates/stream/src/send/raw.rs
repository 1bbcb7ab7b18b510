//! The keys of an encrypted dataset, wrapped as they are on disk, for a raw stream.
//!
//! Source: OpenZFS `dsl_crypt.c` (`dsl_crypto_populate_key_nvlist`).

use cenote_format::dsl::names::{crypto_key, dataset_field};
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_object::Zap;

use super::error::{Result, SendError};
use super::source::SendSource;

/// `ZIO_CRYPT_KEY_CURRENT_VERSION`.
const ZIO_CRYPT_KEY_CURRENT_VERSION: u64 = 1;
/// `ZFS_KEYFORMAT_PASSPHRASE`.
const ZFS_KEYFORMAT_PASSPHRASE: u64 = 3;

/// The data with which a receiver opens the dataset, given its owner's key.
pub(super) async fn crypt_keydata(source: &SendSource) -> Result<Nvlist> {
    let (dataset, mos) = (&source.dataset, source.dataset.mos());
    let objset = mos.objset();
    let not_raw = || SendError::OldKeys { name: dataset.name().to_owned() };
    let info = dataset.dir().encryption().await?.ok_or_else(not_raw)?;
    let key = Zap::open_id(objset, info.key_object).await?;
    let damaged = |name: &str| objset.damaged(info.key_object, format!("the key object has no {name}"));
    let bytes = async |name: &str| -> Result<NvValue> {
        let value = key.lookup(name.as_bytes()).await?;
        let bytes = value.as_ref().and_then(|value| value.as_bytes()).ok_or_else(|| damaged(name))?;
        Ok(NvValue::Uint8Array(bytes.to_vec()))
    };
    let version = key.get_u64(crypto_key::VERSION).await?;
    if version != Some(ZIO_CRYPT_KEY_CURRENT_VERSION) {
        return Err(not_raw());
    }
    let meta =
        source.objset.meta().ok_or_else(|| objset.damaged(info.key_object, "locks an empty dataset"))?;
    let (meta, is_passphrase) = (meta.dnode(), info.keyformat == ZFS_KEYFORMAT_PASSPHRASE);
    let ivset = dataset.field(dataset_field::IVSET_GUID).await?.and_then(|words| words.first().copied());
    let of_passphrase = |number: u64| NvValue::Uint64(if is_passphrase { number } else { 0 });

    let mut list = Nvlist::new();
    let mut number = |name: &str, value: u64| _ = list.insert(name, NvValue::Uint64(value));
    number(crypto_key::CRYPTO_SUITE, info.suite);
    number(crypto_key::GUID, info.key_guid.0);
    number(crypto_key::VERSION, ZIO_CRYPT_KEY_CURRENT_VERSION);
    for name in [crypto_key::MASTER_KEY, crypto_key::HMAC_KEY, crypto_key::IV, crypto_key::MAC] {
        list.insert(name, bytes(name).await?);
    }
    list.insert("portable_mac", NvValue::Uint8Array(source.objset.phys().portable_mac.to_vec()));
    list.insert(crypto_key::KEYFORMAT, NvValue::Uint64(info.keyformat));
    list.insert(crypto_key::PBKDF2_ITERS, of_passphrase(info.pbkdf2_iters));
    list.insert(crypto_key::PBKDF2_SALT, of_passphrase(info.pbkdf2_salt));
    let mut number = |name: &str, value: u64| _ = list.insert(name, NvValue::Uint64(value));
    number("mdn_checksum", meta.checksum_id.into());
    number("mdn_compress", meta.compression_id.into());
    number("mdn_nlevels", meta.levels.into());
    number("mdn_blksz", meta.data_block_bytes.into());
    number("mdn_indblkshift", meta.indirect_block_shift.into());
    number("mdn_nblkptr", meta.blkptr_count.into());
    number("mdn_maxblkid", meta.max_block_id.0);
    number("to_ivset_guid", ivset.unwrap_or(0));
    number("from_ivset_guid", source.ancestor.ivset_guid.0);
    Ok(list)
}
