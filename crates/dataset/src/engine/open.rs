//! From a pool that is opened for writing to an engine: the space of its vdevs is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_codec::compress::Compression;
use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_format::label::PoolConfig;
use cenote_format::units::{Txg, VdevId};
use cenote_pool::VdevState;

use super::freeing::Freeing;
use super::groups::Groups;
use super::missed::Missed;
use super::space::SpaceMaps;
use super::throttle::Throttle;
use super::{Engine, Features, Inner, LostLog, checkpoint, removed, writable};
use crate::error::Result;
use crate::live::LiveObjset;
use crate::mos::{FeatureState, Mos};
use crate::sharing::SharedBlocks;
use crate::sync::blocks::Space;
use crate::sync::policy::StoragePolicy;

impl Mos {
    /// The configuration, as a value.
    pub(super) fn pool_config(&self) -> Result<PoolConfig> {
        let of = |source| self.objset().format(DMU_POOL_DIRECTORY_OBJECT, source);
        PoolConfig::decode(self.config()).map_err(of)
    }
}

impl Engine {
    /// Takes over a pool whose devices are open for writing and which nobody else has. Logs that it was left with are claimed, and to be
    /// replayed ([`Engine::logs_to_replay`]) before their datasets can be opened.
    ///
    /// # Errors
    /// Space maps are damaged or contradict each other; the pool uses what this version can't write; or [`DatasetError::LogUnreadable`].
    ///
    /// [`DatasetError::LogUnreadable`]: crate::DatasetError::LogUnreadable
    pub async fn start(mos: &Mos) -> Result<Engine> {
        let engine = Engine::load(mos).await?;
        engine.claim_logs(mos, None).await?;
        Ok(engine)
    }

    /// The same for a pool whose log devices are lost: of intent logs, what can't be read is given up (`zpool import -m`). Says what that is.
    ///
    /// # Errors
    /// Those of [`Engine::start`], but for logs.
    pub async fn start_without_lost_logs(mos: &Mos) -> Result<(Engine, Vec<LostLog>)> {
        let (engine, mut lost) = (Engine::load(mos).await?, Vec::new());
        engine.claim_logs(mos, Some(&mut lost)).await?;
        Ok((engine, lost))
    }

    /// All but the logs: nothing is written yet.
    pub(super) async fn load(mos: &Mos) -> Result<Engine> {
        writable::check(mos).await?;
        let pool = mos.pool().clone();
        let config = mos.pool_config()?;
        let log = mos.log_spacemaps().await?;
        let allocator = mos.allocator(&log).await?;
        checkpoint::keep(mos, &allocator).await?;
        removed::follow(mos, &allocator).await?;
        for log in pool.status().root.children.iter().filter(|top| top.state < VdevState::Degraded) {
            allocator.set_allocates(VdevId(log.id), false);
        }
        let space_maps = SpaceMaps::of(mos, &log).await?;
        let synced = pool.uberblock().txg;
        let features = features(mos).await?;
        let inner = Inner {
            runtime: pool.runtime().clone(),
            cache: mos.objset().cache().clone(),
            allocator: Arc::new(allocator),
            keys: mos.keyring().clone(),
            groups: Arc::new(Groups::after(synced)),
            mos_on_disk: mos.objset().clone().into(),
            room: Arc::default(),
            freeing: Freeing::of(mos).await?,
            throttle: Throttle::new(pool.runtime()),
            mos: LiveObjset::new(mos.objset().clone(), Txg(synced.0 + 1)),
            mos_policy: Arc::new(StoragePolicy::of_mos()),
            features,
            config: config.into(),
            space_maps: space_maps.into(),
            shared: Arc::new(SharedBlocks::load(mos).await?.into()),
            missed: Missed::default().into(),
            uncharged: Space::default().into(),
            datasets: BTreeMap::new().into(),
            first_tasks: Vec::new().into(),
            tasks: Vec::new().into(),
            names: tokio::sync::RwLock::default(),
            syncing: tokio::sync::Mutex::default(),
            pool: pool.into(),
        };
        Ok(Engine(Arc::new(inner)))
    }
}

async fn features(mos: &Mos) -> Result<Features> {
    let mut features = Features::default();
    for (feature, state) in mos.features().await? {
        match feature.guid {
            "com.delphix:hole_birth" => features.hole_birth = state == FeatureState::Active,
            "org.illumos:lz4_compress" if state == FeatureState::Active => {
                features.compression = Compression::Lz4
            }
            "com.delphix:embedded_data" => features.embedded_data = state != FeatureState::Disabled,
            _ => {}
        }
    }
    Ok(features)
}
