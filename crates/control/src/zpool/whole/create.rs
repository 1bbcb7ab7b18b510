//! `zpool create`: a new pool on devices or files.
//!
//! Without a daemon the pool is left exported. The code for all file systems creates its root, so that the
//! kernel can mount it.

use std::path::PathBuf;

use cenote_device::Place;
use cenote_format::units::Txg;
use cenote_fs::write::NewFilesystem;
use cenote_pool::PoolState;
use cenote_pool::create::plan;
use cenote_tasks::{NewPool, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_name;
use crate::error::{ControlError, Outcome};
use crate::session::{Session, check_kernel, this_host};
use crate::verb::{Answered, Looks, Needs, Runs, Verb};
use crate::zfs::properties::settings::{self, Setting};
use crate::zfs::tree::fill;
use crate::zpool::layout::devices::{self, Laid, Opened};
use crate::zpool::layout::{Layout, replication, require_data};
use crate::zpool::properties::options::PoolProperties;

/// The txg that creates a pool, `TXG_INITIAL`.
const FIRST_TXG: Txg = Txg(4);

/// Create a pool on devices or files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Create {
    /// Name.
    pub pool: String,
    /// Vdevs and devices.
    pub layout: Layout,
    /// Pool properties: `ashift`, `comment`, `compatibility`, `feature@NAME`, `autotrim` ...
    #[serde(default)]
    pub properties: Vec<Setting>,
    /// Only features named in `properties`.
    #[serde(default)]
    pub no_features: bool,
    /// Properties of the root file system.
    #[serde(default)]
    pub root_properties: Vec<Setting>,
    /// In the daemon: root of its mount points.
    #[serde(default)]
    pub altroot: Option<PathBuf>,
    /// Accept devices with contents, and mixed redundancy.
    #[serde(default)]
    pub force: bool,
    /// Report only; create nothing.
    #[serde(default)]
    pub dry_run: bool,
}

impl Verb for Create {
    const NAME: &'static str = "zpool create";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const RUNS: Runs = Runs::InDaemon;
    type Answer = Laid;

    /// # Errors
    /// An invalid pool; a device that is unusable or has contents.
    async fn carry_out(self, session: &Session) -> Result<Answered<Laid>, ControlError> {
        let refused = |why: String| ControlError::Usage(format!("cannot create '{}': {why}", self.pool));
        check_name(&self.pool).map_err(|why| refused(why.into()))?;
        let host = this_host(session.runtime());
        let properties = PoolProperties::read(&self.properties, self.no_features, &host).map_err(refused)?;
        let mut root = settings::read_all(&self.root_properties, None).map_err(refused)?;
        let filesystem = settings::filesystem(&mut root, NewFilesystem::default()).map_err(refused)?;
        self.layout.check().map_err(refused)?;
        require_data(&self.layout.groups).map_err(|why| refused(why.into()))?;
        let has = |name: &str| properties.features.iter().any(|feature| feature.name == name);
        self.layout.check_features(has).map_err(|why| refused(why.into()))?;
        check_kernel(&self.pool)?;
        let new = Opened::of(session, &self.layout).await?;
        if !self.force {
            let mut problems = devices::in_the_way(session.runtime(), &self.pool, &new.all()).await;
            let sizes = devices::sizes(&new.vdevs);
            problems.extend(replication::mismatch(&[], &self.layout.groups, &sizes));
            if !problems.is_empty() {
                return Err(refused(format!("use '-f' to override:\n  {}", problems.join("\n  "))));
            }
        }
        let laid = new.laid(&self.layout);
        let outcome = match self.dry_run {
            // Also refuses devices too small.
            true => self.planned(session, &new, &properties).map(|_| Outcome::Done)?,
            false => self.create(session, new, properties, root, filesystem).await?,
        };
        Ok(Answered { answer: laid, outcome })
    }
}

impl Create {
    fn planned(
        &self,
        session: &Session,
        new: &Opened,
        properties: &PoolProperties,
    ) -> Result<cenote_pool::create::Plan, ControlError> {
        let host = this_host(session.runtime());
        let name = (host.id, host.name.as_str());
        Ok(plan(session.runtime(), &self.pool, &new.vdevs, properties.ashift, name, FIRST_TXG)?)
    }

    async fn create(
        &self,
        session: &Session,
        new: Opened,
        properties: PoolProperties,
        mut root: Settings,
        filesystem: NewFilesystem,
    ) -> Result<Outcome, ControlError> {
        let places: Vec<Place> = new.all().iter().map(|new| new.place()).collect();
        let mut plan = self.planned(session, &new, &properties)?;
        let projects = properties.features.iter().any(|feature| feature.name == "project_quota");
        plan.config.comment = properties.comment;
        plan.config.compatibility = properties.compatibility;
        let mut numbers = properties.numbers;
        numbers.extend(properties.ashift.map(|ashift| ("ashift", ashift.into())));
        let fill = fill::filesystem(session, filesystem, projects, settings::take_quotas(&mut root));
        let pool = NewPool {
            plan,
            features: properties.features,
            properties: numbers,
            root_properties: root,
            keys: session.keys(),
            cache: session.cache(),
        };
        let engine = cenote_tasks::create_pool(session.runtime(), pool, fill).await?;
        let Opened { vdevs, spares, cache } = new;
        if !spares.is_empty() {
            cenote_tasks::add_spares(&engine, spares).await?;
        }
        if !cache.is_empty() {
            cenote_tasks::add_cache(&engine, cache).await?;
        }
        session.note_command(&engine);
        engine.ownership().set_state(PoolState::Exported, this_host(session.runtime())).await?;
        let Some(pools) = session.pools() else { return Ok(Outcome::Done) };
        // Closing the devices releases their locks.
        let keys = engine.keys().known().await;
        drop((engine, vdevs));
        let found = session.searching(places).find_on_disks(&self.pool).await?;
        let pool = session.hold(&found, self.altroot.clone()).await?;
        pool.post(&pools.events, "sysevent.fs.zfs.pool_create");
        for (root, key) in keys {
            pool.engine.keys().learn(root, key).await;
        }
        session.mount_all(&pool).await
    }
}
