//! Import: from labels to an opened pool, in its newest or an older state.
//!
//! Idea: an uberblock is the root of the pool as of one txg. It leads to the meta object set (MOS), and that
//! to the facts that labels lack: the trusted configuration, active features, mappings of removed vdevs, the
//! checksum salt. If any of these is damaged, a rewind takes the same steps from older uberblocks.
//!
//! ```text
//!   uberblock -> Pool::assemble -> MOS -> object directory
//!                                    features_for_read    unknown ones: refuse, by name
//!                                    config               trusted vdev tree ---> Pool::with_trusted
//!                                    indirect mappings    newest removal first
//!                                    checksum salt
//!                                    root_dataset
//! ```
//!
//! A mapping may lie on a vdev removed later, so mappings are read from the last removal back.
//!
//! Source: OpenZFS `spa.c` (`spa_load_impl`, `spa_ld_*`), `vdev_removal.c`.

mod dirty_times;
mod features;
pub mod indirect;

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_cache::{BlockCache, CacheOptions};
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names, vdev_zap};
use cenote_format::features::spa_version_is_known;
use cenote_format::nvlist::Nvlist;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::{DatasetError, Objset, Result, Zap};
use cenote_pool::{FoundPool, Pool, PoolConfig, Trusted, VdevClass, VdevConfig};
use cenote_runtime::Runtime;

use crate::keys::{KeySource, Keyring};
use crate::mos::Mos;
use crate::salvage;

const CACHE_BYTES: usize = 128 << 20;
/// Bound on a packed configuration; real ones have a few thousand bytes.
const MAX_PACKED_BYTES: u64 = 64 << 20;

/// Names in errors.
const DIRECTORY: &str = "object directory";
const CONFIGURATION: &str = "configuration";

/// State of the pool to open.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Rewind {
    /// Newest, or fail.
    #[default]
    Newest,
    /// The newest whose MOS and dataset heads all open (`zpool import -F`).
    Back,
    /// Newest up to this txg (`-T`).
    Txg(Txg),
}

/// Import options.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// State to open.
    pub rewind: Rewind,
    /// Open the checkpoint instead (`--rewind-to-checkpoint`).
    pub checkpoint: bool,
    /// Block cache.
    pub cache: CacheOptions,
    /// Source of encryption keys.
    pub keys: KeySource,
    /// Rescue: if MOS tables are lost, take the vdevs from the labels and search for the root dataset.
    pub salvage: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions {
            rewind: Rewind::Newest,
            checkpoint: false,
            cache: CacheOptions::metadata(CACHE_BYTES),
            keys: KeySource::default(),
            salvage: false,
        }
    }
}

/// Opens a discovered pool.
///
/// # Errors
/// An unsupported version or feature, no matching uberblock, or damage on the path to the root dataset; with
/// [`Rewind::Back`] only if no uberblock opens.
#[boxed]
pub async fn import(rt: &Runtime, found: &FoundPool, options: &ImportOptions) -> Result<Mos> {
    let cache = Arc::new(BlockCache::new(options.cache));
    import_sharing(rt, found, options, &cache).await
}

/// Like [`import`], with the caller's cache instead of [`ImportOptions::cache`]: several states of a pool
/// then share blocks and one memory budget.
///
/// # Errors
/// Those of [`import`].
#[boxed]
pub async fn import_sharing(
    rt: &Runtime,
    found: &FoundPool,
    options: &ImportOptions,
    cache: &Arc<BlockCache>,
) -> Result<Mos> {
    let candidates = candidates(found, options.rewind)?;
    let mut failure = None;
    for uberblock in candidates {
        let opened = open_at(rt, found, uberblock, cache, options).await;
        let error = match opened {
            Ok(mos) if options.rewind != Rewind::Back => return Ok(mos),
            Ok(mos) => match mos.open_all_heads().await {
                Ok(()) => return Ok(mos),
                Err(error) => error,
            },
            Err(error) => error,
        };
        let refused = matches!(
            error,
            DatasetError::UnsupportedFeatures { .. }
                | DatasetError::UnsupportedVersion { .. }
                | DatasetError::NoCheckpoint { .. }
        );
        if options.rewind != Rewind::Back || refused {
            return Err(error);
        }
        // Report the newest state's error.
        failure.get_or_insert((uberblock.txg, error));
    }
    let (txg, why) = match &failure {
        Some((txg, error)) => (*txg, error.to_string()),
        None => (Txg(0), "no device has a valid uberblock".into()),
    };
    Err(DatasetError::NotOpened { pool: found.name().into(), txg, why: why.into() })
}

fn candidates(found: &FoundPool, rewind: Rewind) -> Result<Vec<&Uberblock>> {
    let wanted = |u: &&Uberblock| match rewind {
        Rewind::Txg(txg) => u.txg <= txg,
        Rewind::Newest | Rewind::Back => true,
    };
    let mut list: Vec<&Uberblock> = found.uberblocks.iter().filter(wanted).collect();
    if let (Rewind::Txg(txg), true) = (rewind, list.is_empty()) {
        return Err(cenote_pool::PoolError::NoUberblock { pool: found.name().into(), txg }.into());
    }
    if rewind != Rewind::Back {
        list.truncate(1);
    }
    Ok(list)
}

async fn open_at(
    rt: &Runtime,
    found: &FoundPool,
    uberblock: &Uberblock,
    cache: &Arc<BlockCache>,
    options: &ImportOptions,
) -> Result<Mos> {
    check_version(found.name(), uberblock.version)?;
    let pool = Pool::assemble(rt, found, uberblock).await?;
    let mos = open_tree(&pool, cache, uberblock, options).await?;
    if !options.checkpoint {
        return Ok(mos);
    }
    let checkpoint =
        mos.checkpoint().await?.ok_or_else(|| DatasetError::NoCheckpoint { pool: found.name().into() })?;
    let pool = Pool::assemble(rt, found, &checkpoint).await?;
    open_tree(&pool, cache, &checkpoint, options).await
}

/// Opens the state of a given uberblock.
#[boxed]
pub async fn import_at(
    rt: &Runtime,
    found: &FoundPool,
    uberblock: &Uberblock,
    options: &ImportOptions,
) -> Result<Mos> {
    let pool = Pool::assemble(rt, found, uberblock).await?;
    open_tree(&pool, &Arc::new(BlockCache::new(options.cache)), uberblock, options).await
}

/// Versions 1 to 28 were released; 5000 means feature flags.
fn check_version(pool: &str, version: u64) -> Result<()> {
    if spa_version_is_known(version) {
        return Ok(());
    }
    Err(DatasetError::UnsupportedVersion { pool: pool.into(), version })
}

/// Opens the MOS with everything needed to read other objects.
async fn open_tree(
    pool: &Pool,
    cache: &Arc<BlockCache>,
    uberblock: &Uberblock,
    options: &ImportOptions,
) -> Result<Mos> {
    match open_by_tables(pool, cache, uberblock, options).await {
        Err(error) if options.salvage && error.is_damage() => {
            open_by_labels(pool, cache, uberblock, options).await.ok_or(error)
        }
        opened => opened,
    }
}

/// Opens a state without its tables. Blocks on removed vdevs are unreadable.
async fn open_by_labels(
    pool: &Pool,
    cache: &Arc<BlockCache>,
    uberblock: &Uberblock,
    options: &ImportOptions,
) -> Option<Mos> {
    let objset = Objset::open(pool, cache, DatasetId(0), uberblock.rootbp, None).await.ok()?;
    let directory = Zap::open_id(&objset, DMU_POOL_DIRECTORY_OBJECT).await;
    let listed = match &directory {
        Ok(directory) => required(&objset, directory, names::ROOT_DATASET).await.ok(),
        Err(_) => None,
    };
    let root_dir = match listed {
        Some(id) => id,
        None => salvage::root_dir(&objset).await?,
    };
    let keyring = Arc::new(Keyring::new(options.keys.clone()));
    Some(Mos::new(objset, directory, Nvlist::new(), root_dir, keyring))
}

async fn open_by_tables(
    pool: &Pool,
    cache: &Arc<BlockCache>,
    uberblock: &Uberblock,
    options: &ImportOptions,
) -> Result<Mos> {
    let without = DatasetError::stops_opening;
    let open = async |pool: &Pool| {
        let objset = Objset::open(pool, cache, DatasetId(0), uberblock.rootbp, None).await;
        objset.map_err(without("meta object set"))
    };
    let open_directory = async |objset: &Objset| {
        let directory = Zap::open_id(objset, DMU_POOL_DIRECTORY_OBJECT).await;
        directory.map_err(without(DIRECTORY))
    };
    let objset = open(pool).await?;
    let directory = open_directory(&objset).await?;

    // Directory and configuration never lie on a removed vdev; anything else may.
    let packed = required(&objset, &directory, names::CONFIG).await.map_err(without(DIRECTORY))?;
    let config = packed_nvlist(&objset, packed).await.map_err(without(CONFIGURATION))?;
    let trusted_config = PoolConfig::from_mos(&config).map_err(|source| objset.format(packed, source));
    let mut trusted_config = trusted_config.map_err(without(CONFIGURATION))?;
    trusted_config.vdevs.iter_mut().for_each(VdevConfig::forget_diagnoses);
    let trusted = Trusted {
        config: trusted_config,
        indirect: Default::default(),
        noted: Default::default(),
        behind: Default::default(),
        checksum_salt: checksum_salt(&directory).await.map_err(without(DIRECTORY))?,
    };
    let trusted = indirect::load(pool, cache, uberblock, &directory, trusted).await;
    let mut trusted = trusted.map_err(without("list of what lay on removed devices"))?;
    let open_by = async |trusted: &Trusted| open(&pool.with_trusted(trusted.clone()).await?).await;
    let mut objset = if trusted.indirect.is_empty() { objset } else { open_by(&trusted).await? };
    let directory = open_directory(&objset).await?;
    features::check(pool, &objset, &directory).await.map_err(without("list of features in use"))?;
    classes(&objset, &mut trusted.config).await.map_err(without("table of a device"))?;
    trusted.config.spares =
        auxiliary(&objset, &directory, names::SPARES).await.map_err(without("list of spares"))?;
    trusted.config.l2cache =
        auxiliary(&objset, &directory, names::L2CACHE).await.map_err(without("list of cache devices"))?;
    objset = open_by(&trusted).await?;
    let times = dirty_times::load(&objset).await;
    (trusted.noted, trusted.behind) = (times.noted, times.behind);
    for leaf in times.lost {
        // The vdev gets a new log.
        trusted
            .config
            .vdevs
            .iter_mut()
            .filter_map(|top| top.leaf_mut(leaf))
            .for_each(|leaf| leaf.dtl = ObjectId(0));
    }
    if !trusted.behind.is_empty() {
        objset = open_by(&trusted).await?;
    }
    let directory = open_directory(&objset).await?;
    let root_dir = required(&objset, &directory, names::ROOT_DATASET).await.map_err(without(DIRECTORY))?;
    Ok(Mos::new(objset, Ok(directory), config, root_dir, Arc::new(Keyring::new(options.keys.clone()))))
}

async fn required(objset: &Objset, directory: &Zap, name: &str) -> Result<ObjectId> {
    let found = directory.get_u64(name).await?.map(ObjectId);
    found.ok_or_else(|| {
        objset.damaged(DMU_POOL_DIRECTORY_OBJECT, format!("the object directory has no '{name}'"))
    })
}

/// Reads a packed nvlist; the bonus holds its length.
#[boxed]
pub async fn packed_nvlist(objset: &Objset, id: ObjectId) -> Result<Nvlist> {
    let object = objset.object(id).await?;
    let bonus = object.dnode().bonus();
    let size = bonus.first_chunk::<8>().map_or(0, |b| object.dnode().endian().u64(*b));
    if size > MAX_PACKED_BYTES.min(object.capacity_bytes()) {
        return Err(objset.damaged(id, format!("claims a packed list of {size} bytes")));
    }
    let packed = object.read(0, size as usize).await?;
    Nvlist::decode(&packed).map_err(|e| objset.format(id, e))
}

/// Reads allocation classes from the vdevs' ZAPs; the MOS configuration lacks them.
async fn classes(objset: &Objset, config: &mut PoolConfig) -> Result<()> {
    for vdev in config.vdevs.iter_mut().filter(|vdev| vdev.top_zap != ObjectId(0)) {
        let zap = Zap::open_id(objset, vdev.top_zap).await?;
        let bias = zap.lookup(vdev_zap::ALLOCATION_BIAS.as_bytes()).await?.and_then(|v| v.as_text());
        if let Some(class) = bias.as_deref().and_then(VdevClass::from_name) {
            vdev.class = class;
        }
    }
    Ok(())
}

impl Mos {
    /// Cache devices of the pool.
    ///
    /// # Errors
    /// Their list is unreadable.
    #[boxed]
    pub async fn cache_devices(&self) -> Result<Vec<VdevConfig>> {
        let directory = Zap::open_id(self.objset(), DMU_POOL_DIRECTORY_OBJECT).await?;
        auxiliary(self.objset(), &directory, names::L2CACHE).await
    }
}

/// Spares or cache devices, which the MOS keeps outside the configuration.
async fn auxiliary(objset: &Objset, directory: &Zap, name: &str) -> Result<Vec<VdevConfig>> {
    let Some(id) = directory.get_u64(name).await?.filter(|&id| id != 0).map(ObjectId) else {
        return Ok(Vec::new());
    };
    let list = packed_nvlist(objset, id).await?;
    VdevConfig::decode_array(&list, name).map_err(|e| objset.format(id, e))
}

async fn checksum_salt(directory: &Zap) -> Result<Option<[u8; 32]>> {
    let value = directory.lookup(names::CHECKSUM_SALT.as_bytes()).await?;
    Ok(value.as_ref().and_then(|v| v.as_bytes()).and_then(|b| b.first_chunk::<32>().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_released_versions_are_opened() {
        for version in [1, 10, 28, 5000] {
            assert!(check_version("p", version).is_ok(), "{version}");
        }
        for version in [0, 29, 999, 4999, 5001, u64::MAX] {
            let error = check_version("p", version).unwrap_err().to_string();
            assert!(error.contains(&version.to_string()), "{error}");
        }
    }
}
