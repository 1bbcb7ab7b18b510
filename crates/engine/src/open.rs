//! Starting an engine on a pool opened for writing: loads its space maps and claims its logs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cenote_boxed::boxed;
use cenote_cache::{BlockCache, CacheOptions};
use cenote_codec::compress::Compression;
use cenote_dataset::Mos;
use cenote_dataset::keys::Keyring;
use cenote_dataset::spacemaps::LostMap;
use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_format::features::Feature;
use cenote_format::label::PoolConfig;
use cenote_format::objset::{ObjsetPhys, ObjsetType};
use cenote_format::units::{DatasetId, ObjectId, Txg, VdevId};
use cenote_l2arc::CacheDevices;
use cenote_object::{DatasetError, LiveObjset, Objset, Result};
use cenote_pool::alloc::Allocator;
use cenote_pool::{Pool, VdevConfig, VdevState, Waits};

use crate::background::Background;
use crate::engine::{Carried, Engine, OnDisk, Shared, Tasks, Told};
use crate::kstat::Kstats;
use crate::locks::{Rank, Ranked};
use crate::logs::LostLog;
use crate::multihost::obey_fence;
use crate::multihost::state::Multihost;
use crate::pending_frees::Freeing;
use crate::sharing::release::SharedBlocks;
use crate::sharing::tables::Tables;
use crate::space::maps::SpaceMaps;
use crate::space::{checkpoint, removed};
use crate::store::features::Features;
use crate::store::policy::StoragePolicy;
use crate::store::space_delta::SpaceDelta;
use crate::throttle::Throttle;
use crate::txgs::Txgs;
use crate::writable;

/// Parts of the metadata, as named in errors.
const FEATURES: &str = "list of features in use";
const SPACE_MAPS: &str = "list of space maps";

impl Engine {
    /// Starts an engine on a pool whose devices are open for writing and exclusively owned. Claims unreplayed
    /// logs; their datasets can be opened after replay ([`crate::Logs::awaiting_replay`]).
    ///
    /// # Errors
    /// [`DatasetError::Unchangeable`]: lost metadata, or features that can't be written here;
    /// [`DatasetError::LogUnreadable`]. Nothing was written.
    #[boxed]
    pub async fn start(mos: &Mos) -> Result<Engine> {
        let engine = Engine::loaded(mos).await?;
        engine.claim_logs(mos, None).await?;
        Ok(engine)
    }

    /// [`Engine::start`] that gives up unreadable parts of intent logs (`zpool import -m`) and lists them.
    ///
    /// # Errors
    /// Those of [`Engine::start`], except for logs.
    #[boxed]
    pub async fn start_without_lost_logs(mos: &Mos) -> Result<(Engine, Vec<LostLog>)> {
        let (engine, mut lost) = (Engine::loaded(mos).await?, Vec::new());
        engine.claim_logs(mos, Some(&mut lost)).await?;
        Ok((engine, lost))
    }

    /// [`Engine::start`] that discards all intent logs in the first txg, for a state that ends with its last
    /// txg. Their blocks on log devices are not freed.
    ///
    /// # Errors
    /// Those of [`Engine::start`], except for logs.
    #[boxed]
    pub async fn start_without_logs(mos: &Mos) -> Result<Engine> {
        let engine = Engine::loaded(mos).await?;
        engine.give_up_logs(mos).await?;
        Ok(engine)
    }

    /// All but the logs; writes nothing.
    pub(crate) async fn loaded(mos: &Mos) -> Result<Engine> {
        let without = |part| DatasetError::stops_changes(mos.pool().name(), part);
        writable::check(mos).await.map_err(without(FEATURES))?;
        let pool = mos.pool().clone();
        let config = pool_config(mos)?;
        let log = mos.log_spacemaps().await.map_err(without("log of space maps"))?;
        let loaded = mos.allocator_despite_losses(&log).await;
        let (allocator, lost) = loaded.map_err(without(SPACE_MAPS))?;
        for LostMap { vdev: VdevId(vdev), place, why } in &lost {
            let which = format!("the space map of vdev {vdev} metaslab {}", place.index);
            pool.read_errors()
                .note_aside(format!("{which} can't be read ({why}): what was free there stays allocated"));
        }
        checkpoint::keep(mos, &allocator).await.map_err(without("map of what the checkpoint holds"))?;
        removed::follow(mos, &allocator).await.map_err(without("list of what lay on removed devices"))?;
        for log in pool.status().root.children.iter().filter(|top| top.state < VdevState::Degraded) {
            allocator.set_allocates(VdevId(log.id), false);
        }
        let space_maps = SpaceMaps::of(mos, &log, lost).await.map_err(without(SPACE_MAPS))?;
        Ok(Engine::begin(Beginning {
            pool,
            cache: mos.objset().cache().clone(),
            allocator,
            keys: mos.keyring().clone(),
            mos: mos.objset().clone(),
            freeing: Freeing::of(mos).await.map_err(without("list of what is to be freed"))?,
            features: Features::of(mos).await.map_err(without(FEATURES))?,
            config,
            is_multihost: is_multihost(mos).await.map_err(without("list of properties"))?,
            space_maps,
            shared: SharedBlocks::load(mos).await.map_err(without("table of shared blocks"))?,
        }))
    }

    /// An engine for a new pool: the first txg creates it.
    pub fn of_new_pool(new: NewEngine) -> Engine {
        let NewEngine { pool, config, keys, cache, features, allocator } = new;
        let cache = Arc::new(BlockCache::new(cache));
        let mos = Objset::empty(&pool, &cache, DatasetId(0), None, ObjsetPhys::empty(ObjsetType::Meta));
        let has = |name| features.iter().any(|feature| feature.name == name);
        let compression = if has("lz4_compress") { Compression::Lz4 } else { Compression::Lzjb };
        Engine::begin(Beginning {
            pool,
            cache,
            allocator,
            keys: keys.into(),
            mos,
            freeing: Freeing::default(),
            features: Features {
                hole_birth: has("hole_birth"),
                embedded_data: has("embedded_data"),
                large_gang_headers: false,
                compression,
            },
            config,
            is_multihost: false,
            space_maps: SpaceMaps::default(),
            shared: SharedBlocks::default(),
        })
    }

    fn begin(from: Beginning) -> Engine {
        let runtime = from.pool.runtime().clone();
        let synced = from.pool.uberblock().txg;
        from.pool.begin_to_change(&from.allocator);
        let (mos, vdevs) = (from.mos.clone(), from.pool.tree().config());
        let cache_devices = CacheDevices::new(&runtime, from.pool.tree().guid());
        let missed = from.pool.lacking().at_opening().clone();
        let carried = Carried { features: from.features, missed, uncharged: SpaceDelta::default() };
        let on_disk = OnDisk { pool: from.pool, mos, vdevs, renames: 0 };
        let mos = from.mos.in_view(&from.mos.pool().waiting(Waits::AsTxg));
        let mos = LiveObjset::new(mos, Txg(synced.0 + 1));
        let tables = Tables::new(from.shared, mos.clone());
        let shared = Arc::new(Shared {
            cache_devices,
            cache: from.cache,
            allocator: Arc::new(from.allocator),
            keys: from.keys,
            txgs: Arc::new(Txgs::after(synced)),
            room: Arc::default(),
            freeing: from.freeing,
            throttle: Throttle::new(&runtime),
            kstats: Kstats::default(),
            mos,
            mos_policy: Arc::new(StoragePolicy::of_mos()),
            tables,
            datasets: Ranked::new(Rank::Datasets, BTreeMap::new()),
            tasks: Ranked::new(Rank::Tasks, Tasks::default()),
            config: Ranked::new(Rank::Config, from.config),
            carried: Ranked::new(Rank::Carried, carried),
            on_disk: Ranked::new(Rank::OnDisk, on_disk),
            space_maps: from.space_maps.into(),
            txg_times: Default::default(),
            handles: Default::default(),
            snapshots: Default::default(),
            head_deadlists: Default::default(),
            names: tokio::sync::RwLock::default(),
            renames: AtomicU64::new(0),
            background: Background::default(),
            multihost: Multihost::new(&runtime, from.is_multihost),
            turn: tokio::sync::Mutex::default(),
            told: Told::default(),
            runtime,
        });
        obey_fence(&shared);
        Engine::of(shared)
    }
}

/// Parts of a new pool's engine.
pub struct NewEngine {
    /// Its devices, with the uberblock before the first txg.
    pub pool: Pool,
    /// Its configuration.
    pub config: PoolConfig,
    /// Keys of its encrypted datasets.
    pub keys: Keyring,
    /// Options of its block cache.
    pub cache: CacheOptions,
    /// Features to enable.
    pub features: Vec<&'static Feature>,
    /// Its vdevs, all free.
    pub allocator: Allocator,
}

struct Beginning {
    pool: Pool,
    cache: Arc<BlockCache>,
    allocator: Allocator,
    keys: Arc<Keyring>,
    mos: Objset,
    freeing: Freeing,
    features: Features,
    config: PoolConfig,
    is_multihost: bool,
    space_maps: SpaceMaps,
    shared: SharedBlocks,
}

async fn is_multihost(mos: &Mos) -> Result<bool> {
    Ok(pool_number(mos, "multihost").await? == Some(1))
}

/// A property of the pool, if it is set.
pub(crate) async fn pool_number(mos: &Mos, name: &str) -> Result<Option<u64>> {
    let properties = mos.pool_properties().await?;
    Ok(properties.iter().find(|entry| entry.name == name).and_then(|entry| entry.value.as_u64()))
}

pub(crate) fn pool_config(mos: &Mos) -> Result<PoolConfig> {
    let of = |source| mos.objset().format(DMU_POOL_DIRECTORY_OBJECT, source);
    let mut config = PoolConfig::decode(mos.config()).map_err(of)?;
    config.vdev_tree.forget_diagnoses();
    // Lost DTLs are out of use.
    for leaf in mos.pool().tree().config().vdevs.iter().flat_map(VdevConfig::leaves) {
        if leaf.dtl == ObjectId(0) {
            config.vdev_tree.leaf_mut(leaf.guid).into_iter().for_each(|leaf| leaf.dtl = ObjectId(0));
        }
    }
    Ok(config)
}
