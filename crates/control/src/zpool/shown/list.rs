//! `zpool list`: pools with their properties, and the space of their vdevs.
//!
//! Source: OpenZFS `list_callback`, `collect_list_stats`.

use cenote_dataset::usage::VdevUsage;
use cenote_dataset::{Mos, Property};
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_pool::{FoundPool, PoolHealth};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::properties::Properties;
use super::waits::{Waits, waits};
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// List pools with their size, allocated and free space, and fragmentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// By name or guid; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Include their vdevs.
    #[serde(default)]
    pub vdevs: bool,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pools {
    /// Pools that are open, or can be opened.
    pub pools: Vec<Listed>,
    /// Pools that the daemon can't open yet.
    pub waiting: Vec<Waits>,
    /// There is no pool, not even one that failed.
    pub is_empty: bool,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Identity and state.
    pub head: Head,
    /// All its properties, in the order of `zpool get all`, after its name.
    pub properties: Vec<Property>,
    /// Vdevs, if requested.
    pub vdevs: Option<Vdevs>,
}

/// Identity and state of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: Guid,
    /// Its state as shown: `ONLINE`.
    pub state: String,
    /// Txg shown.
    pub txg: Txg,
}

impl Head {
    /// The head of an open pool.
    pub fn of(mos: &Mos) -> Head {
        Head {
            name: mos.pool().name().into(),
            guid: mos.pool().tree().guid(),
            state: mos.pool().status().shown_state().into(),
            txg: mos.uberblock().txg,
        }
    }
}

/// The vdevs of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Vdevs {
    /// The tree and auxiliary devices.
    pub health: PoolHealth,
    /// The space of top-level vdevs.
    pub usage: Vec<TopUsage>,
    /// Space of cache devices in use.
    pub cache: Vec<CacheUsage>,
}

/// Space of a top-level vdev, raw: with parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopUsage {
    /// Index.
    pub vdev: VdevId,
    /// Whole metaslabs.
    pub size_bytes: u64,
    /// Allocated.
    pub allocated_bytes: u64,
    /// Freed, but kept by the checkpoint.
    pub checkpoint_bytes: u64,
    /// Fragmentation of free space; none: not counted.
    pub fragmentation_percent: Option<u64>,
}

/// Space of a cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheUsage {
    /// Device.
    pub vdev: Guid,
    /// Capacity.
    pub capacity_bytes: u64,
    /// Space used.
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
    /// None of the named pools is found. Failures of pools are reported.
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
        let cache = held.map(|pool| pool.engine.l2arc().devices().usage()).unwrap_or_default().into_iter();
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
