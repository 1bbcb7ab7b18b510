//! Storage policy: how an object set's blocks are stored, from its properties.
//!
//! Source: OpenZFS `dmu.c` (`dmu_write_policy`), `dmu_objset.c` (the `*_changed_cb`).

use std::sync::Arc;

use cenote_cache::Caching;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_dataset::{Dataset, Mos};
use cenote_format::dnode::ObjectType;
use cenote_format::props::{SPA_COMPRESSBITS, SPA_COMPRESSMASK};
use cenote_format::units::DatasetId;
use cenote_object::Result;
use cenote_pool::DatasetKey;

use crate::store::features::Features;
use crate::zil::policy::LogPolicy;

const ZIO_CHECKSUM_VERIFY: u64 = 1 << 8;
/// `zfs_redundant_metadata_most_ditto_level`.
const MOST_DITTO_LEVEL: u8 = 2;

#[derive(Debug, Clone)]
pub(crate) struct StoragePolicy {
    pub(crate) dataset: DatasetId,
    pub(crate) checksum: Checksum,
    pub(crate) compression: Compression,
    pub(crate) zstd_level: ZstdLevel,
    pub(crate) copies: u8,
    pub(crate) redundant_metadata: RedundantMetadata,
    /// Data blocks up to this size go to special vdevs.
    pub(crate) special_small_blocks: u64,
    /// `refreservation`: least charge of the head.
    pub(crate) reserved_bytes: u64,
    pub(crate) key: Option<Arc<DatasetKey>>,
    /// Encrypted and written without its key.
    pub(crate) raw: bool,
    pub(crate) log: LogPolicy,
    pub(crate) caching: Caching,
    pub(crate) dedup: Option<Dedup>,
}

fn compression_of(number: u64) -> (Compression, ZstdLevel) {
    let algorithm = match Compression::try_from((number & SPA_COMPRESSMASK) as u8) {
        Ok(Compression::Inherit) | Err(_) => Compression::On,
        Ok(compression) => compression,
    };
    let level = ZstdLevel::new((number >> SPA_COMPRESSBITS) as u8).unwrap_or(ZstdLevel::DEFAULT);
    (algorithm, level)
}

/// The compression of a dataset's data written now; [`Compression::On`] is resolved.
///
/// # Errors
/// Properties or features are unreadable.
pub async fn compression_now(mos: &Mos, dataset: &Dataset) -> Result<(Compression, ZstdLevel)> {
    let [number] = dataset.numbers(["compression"]).await?;
    let (compression, level) = compression_of(number);
    let is_on = compression == Compression::On;
    Ok((if is_on { Features::of(mos).await?.compression } else { compression }, level))
}

/// Property `dedup`: how equal blocks are recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dedup {
    pub(crate) checksum: Checksum,
    /// Compares bytes as well.
    pub(crate) verify: bool,
}

impl Dedup {
    fn of(number: u64) -> Option<Dedup> {
        let checksum = match Checksum::try_from(number as u8).ok()? {
            Checksum::On => Checksum::Sha256,
            Checksum::Off | Checksum::Inherit => return None,
            checksum => checksum,
        };
        // Other checksums may collide.
        let is_strong =
            matches!(checksum, Checksum::Sha256 | Checksum::Sha512 | Checksum::Skein | Checksum::Blake3);
        Some(Dedup { checksum, verify: !is_strong || number & ZIO_CHECKSUM_VERIFY != 0 })
    }
}

/// Property `redundant_metadata`: metadata with an extra copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedundantMetadata {
    All,
    Most,
    Some,
    None,
}

impl StoragePolicy {
    /// For the MOS: as many copies as a pointer can hold.
    pub(crate) fn of_mos() -> StoragePolicy {
        StoragePolicy {
            dataset: DatasetId(0),
            checksum: Checksum::Fletcher4,
            compression: Compression::On,
            zstd_level: ZstdLevel::DEFAULT,
            copies: 3,
            redundant_metadata: RedundantMetadata::All,
            special_small_blocks: 0,
            reserved_bytes: 0,
            key: None,
            raw: false,
            dedup: None,
            log: LogPolicy::default(),
            caching: Caching::default(),
        }
    }

    /// From a dataset's present properties.
    ///
    /// # Errors
    /// Properties are unreadable, or the key is missing.
    pub(crate) async fn of(dataset: &Dataset) -> Result<StoragePolicy> {
        let key = dataset.key().await?;
        StoragePolicy::with_key(dataset, key, false).await
    }

    /// For an encrypted dataset written without its key.
    ///
    /// # Errors
    /// Properties are unreadable.
    pub(crate) async fn raw(dataset: &Dataset) -> Result<StoragePolicy> {
        StoragePolicy::with_key(dataset, None, true).await
    }

    async fn with_key(dataset: &Dataset, key: Option<Arc<DatasetKey>>, raw: bool) -> Result<StoragePolicy> {
        let names = [
            "checksum",
            "compression",
            "copies",
            "redundant_metadata",
            "special_small_blocks",
            "refreservation",
            "sync",
            "logbias",
            "dedup",
            "primarycache",
            "secondarycache",
            "prefetch",
        ];
        let [
            checksum,
            compression,
            copies,
            redundant_metadata,
            special_small_blocks,
            reserved_bytes,
            sync,
            logbias,
            dedup,
            primary,
            secondary,
            prefetch,
        ] = dataset.numbers(names).await?;
        let (compression, zstd_level) = compression_of(compression);
        Ok(StoragePolicy {
            dataset: dataset.id(),
            checksum: match Checksum::try_from(checksum as u8) {
                Ok(checksum) if checksum.is_of_pointer() => checksum,
                Ok(_) | Err(_) => Checksum::Fletcher4,
            },
            compression,
            zstd_level,
            copies: copies.clamp(1, 3) as u8,
            redundant_metadata: match redundant_metadata {
                1 => RedundantMetadata::Most,
                2 => RedundantMetadata::Some,
                3 => RedundantMetadata::None,
                _ => RedundantMetadata::All,
            },
            special_small_blocks,
            reserved_bytes,
            // Encryption stores equal bytes differently each time.
            dedup: Dedup::of(dedup).filter(|_| key.is_none() && !raw),
            key,
            raw,
            log: LogPolicy::of_numbers(sync, logbias),
            caching: Caching::of_numbers(primary, secondary, prefetch),
        })
    }

    /// Copies of a metadata block beyond those of data.
    pub(crate) fn extra_copies(&self, object_type: ObjectType, level: u8, is_spill: bool) -> u8 {
        let is_critical = object_type.is_metadata()
            && ![ObjectType::DNODE, ObjectType::DIRECTORY_CONTENTS, ObjectType::SA].contains(&object_type);
        u8::from(match self.redundant_metadata {
            RedundantMetadata::All => true,
            RedundantMetadata::Most => level >= MOST_DITTO_LEVEL || object_type.is_metadata() || is_spill,
            RedundantMetadata::Some => is_critical,
            RedundantMetadata::None => false,
        })
    }
}
