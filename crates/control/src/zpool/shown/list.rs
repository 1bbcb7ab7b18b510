//! `zpool list`: pools with their properties, and the space of their vdevs.
//!
//! Source: OpenZFS `list_callback`, `collect_list_stats`.

use cenote_dataset::usage::VdevUsage;
use cenote_dataset::{Mos, Property};
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_pool::{FoundPool, PoolHealth};
use serde::{Deserialize, Serialize};

use super::properties::Properties;
use super::waits::{Waits, waits};
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Which pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// By name or guid; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Their vdevs, too.
    #[serde(default)]
    pub vdevs: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// Those that are open, or can be opened.
    pub pools: Vec<Listed>,
    /// Those that the daemon can't open yet.
    pub waiting: Vec<Waits>,
    /// There is no pool: none that could not be shown, either.
    pub is_empty: bool,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// What it is called, and how it is.
    pub head: Head,
    /// All its properties, in the order of `zpool get all`, after its name.
    pub properties: Vec<Property>,
    /// Its vdevs, if those were asked for.
    pub vdevs: Option<Vdevs>,
}

/// What is known of every pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
    /// Its state, as it is shown: `ONLINE`.
    pub state: String,
    /// The txg that is shown.
    pub txg: Txg,
}

impl Head {
    /// That of an open pool.
    pub fn of(mos: &Mos) -> Head {
        Head {
            name: mos.pool().name().into(),
            guid: mos.pool().guid(),
            state: mos.pool().status().shown_state().into(),
            txg: mos.uberblock().txg,
        }
    }
}

/// The vdevs of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdevs {
    /// The tree, and the devices beside it.
    pub health: PoolHealth,
    /// The space of top-level vdevs.
    pub usage: Vec<TopUsage>,
    /// The space of cache devices that are in use.
    pub cache: Vec<CacheUsage>,
}

/// Space of a top-level vdev, raw: with parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUsage {
    /// Its index.
    pub vdev: VdevId,
    /// Whole metaslabs.
    pub size_bytes: u64,
    /// Allocated.
    pub allocated_bytes: u64,
    /// Freed since, but kept by the checkpoint.
    pub checkpoint_bytes: u64,
    /// How small the free pieces are; none: that is not counted.
    pub fragmentation_percent: Option<u64>,
}

/// Space of a cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUsage {
    /// The device.
    pub vdev: Guid,
    /// What it can hold.
    pub capacity_bytes: u64,
    /// What it holds.
    pub used_bytes: u64,
}

impl From<VdevUsage> for TopUsage {
    fn from(usage: VdevUsage) -> TopUsage {
        let VdevUsage { vdev, size_bytes, allocated_bytes, checkpoint_bytes, fragmentation_percent, .. } =
            usage;
        TopUsage { vdev, size_bytes, allocated_bytes, checkpoint_bytes, fragmentation_percent }
    }
}

impl Verb for List {
    const NAME: &'static str = "zpool list";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Pools;

    /// # Errors
    /// None of the pools that are named is there. Those that can't be shown are told of.
    async fn carry_out(self, session: &Session) -> Result<Answered<Pools>, ControlError> {
        let (all, mut outcome) = session.find_pools_to_show(&self.pools).await?;
        let waiting = waits(session, &self.pools);
        let is_empty = all.is_empty() && waiting.is_empty();
        let mut pools = Vec::new();
        for found in all {
            match self.look(session, &found).await {
                Ok(pool) => pools.push(pool),
                Err(error) => outcome = outcome.and(session.caller().tell(found.name(), &error)),
            }
        }
        Ok(Answered { answer: Pools { pools, waiting, is_empty }, outcome })
    }
}

impl List {
    async fn look(&self, session: &Session, found: &FoundPool) -> Result<Listed, ControlError> {
        let mos = session.open_without_asking(found).await?;
        let (usage, health) = (mos.usage().await?, mos.pool().status());
        let held = session.held(found);
        let properties = Properties::with_usage(&mos, &health, &usage, held.as_deref()).await?;
        let head = Head::of(&mos);
        let cache = held.map(|pool| pool.engine.cache_devices().usage()).unwrap_or_default().into_iter();
        let cache = cache.map(|device| CacheUsage {
            vdev: device.vdev,
            capacity_bytes: device.capacity_bytes,
            used_bytes: device.used_bytes,
        });
        let vdevs = self.vdevs.then(|| Vdevs {
            health,
            usage: usage.into_iter().map(TopUsage::from).collect(),
            cache: cache.collect(),
        });
        Ok(Listed { head, properties: properties.list, vdevs })
    }
}
