//! `zpool status`: pools with health, recorded scrubs and other work, devices and known errors.
//!
//! Idea: the answer contains everything that an option can show; parts that need extra reads, only on
//! request.

pub mod damaged;
pub mod diagnosis;
pub mod passes;
pub mod problems;
pub mod progress;
pub mod unopened;

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_format::ddt::DdtStat;
use cenote_format::units::{Guid, Txg};
use cenote_pool::{FoundPool, PoolHealth, VdevState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::TopUsage;
use super::waits::{Waits, waits};
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use damaged::{Damaged, damaged_objects};
use diagnosis::{Reason, judge};
use passes::LeafPasses;
use problems::Problems;
use progress::PoolProgress;
use unopened::Unopened;

/// Show the state of pools and devices, with reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// By name or guid; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Include objects with known errors.
    #[serde(default)]
    pub damaged: bool,
    /// Include deduplicated blocks by reference count.
    #[serde(default)]
    pub dedup: bool,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Statuses {
    /// Pools.
    pub pools: Vec<PoolStatus>,
    /// Pools that the daemon can't open yet.
    pub waiting: Vec<Waits>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: Guid,
    /// The state of its vdevs.
    pub health: PoolHealth,
    /// The worst problem and its remedy.
    pub reason: Option<Reason>,
    /// Its metadata; none: the pool can't be opened, and the rest comes from its labels.
    pub opened: Option<Opened>,
}

/// A pool's state from its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Opened {
    /// Txg shown.
    pub txg: Txg,
    /// Space of top-level vdevs.
    pub usage: Vec<Space>,
    /// Recorded work.
    pub work: PoolProgress,
    /// Resilver is incomplete.
    pub resilvering: bool,
    /// Initialize and trim progress of leaves.
    pub passes: BTreeMap<Guid, LeafPasses>,
    /// Leaves with missing data that no running resilver restores.
    pub lagging: Vec<Guid>,
    /// Blocks in the error log.
    pub data_errors: usize,
    /// The objects with these errors, if requested.
    pub damaged: Vec<Damaged>,
    /// Deduplicated blocks, if requested.
    pub dedup: Option<Dedup>,
}

/// Space of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// Raw: with parity.
    pub raw: TopUsage,
    /// Size without parity, as in `zfs list`.
    pub deflated_bytes: u64,
}

/// Deduplicated blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dedup {
    /// Item i: blocks with at least 2^i and fewer than 2^(i+1) references.
    pub buckets: Vec<DdtStat>,
    /// Bytes of the tables on disk.
    pub table_bytes: u64,
}

impl Verb for Status {
    const NAME: &'static str = "zpool status";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Statuses;

    /// # Errors
    /// None of the named pools is found. Unopenable pools are reported and shown.
    async fn carry_out(self, session: &Session) -> Result<Answered<Statuses>, ControlError> {
        let (found, mut outcome) = session.find_pools_to_show(&self.pools).await?;
        let waiting = waits(session, &self.pools);
        let mut pools = Vec::with_capacity(found.len());
        for found in found {
            pools.push(match self.look(session, &found).await {
                Ok(pool) => pool,
                Err(error) => {
                    outcome = outcome.and(session.caller().tell_cause(found.name(), &error));
                    let unopened = Unopened::look(session, &found, &error).await;
                    let (reason, health) = (unopened.reason(), unopened.health);
                    PoolStatus { name: found.name().into(), guid: found.guid(), health, reason, opened: None }
                }
            });
        }
        Ok(Answered { answer: Statuses { pools, waiting }, outcome })
    }
}

impl Status {
    async fn look(&self, session: &Session, found: &FoundPool) -> Result<PoolStatus, ControlError> {
        let mos = session.open_without_asking(found).await?;
        let held = session.held(found);
        let circumstances = Problems { is_open: held.is_some(), ..Problems::of_pool(&mos).await? };
        let usage = mos.usage().await?;
        let damaged = if self.damaged { damaged_objects(&mos).await? } else { Vec::new() };
        let dedup = if self.dedup { Some(dedup(&mos).await?) } else { None };
        let passes = passes::of_leaves(&mos).await?;
        // Includes errors met while reading so far.
        let health = mos.pool().status();
        let lagging = if circumstances.resilvering { Vec::new() } else { lagging(&mos, &health) };
        let work = PoolProgress::gather(session, &mos, held.as_deref(), &usage).await?;
        let vdevs = mos.pool().tree().vdevs();
        let space = usage.into_iter().map(|usage| Space {
            deflated_bytes: vdevs.deflate(usage.vdev, usage.size_bytes),
            raw: usage.into(),
        });
        let opened = Opened {
            txg: mos.uberblock().txg,
            usage: space.collect(),
            work,
            resilvering: circumstances.resilvering,
            passes,
            lagging,
            data_errors: circumstances.data_errors,
            damaged,
            dedup,
        };
        Ok(PoolStatus {
            name: mos.pool().name().into(),
            guid: found.guid(),
            reason: judge(&health, circumstances),
            health,
            opened: Some(opened),
        })
    }
}

async fn dedup(mos: &Mos) -> Result<Dedup, ControlError> {
    let buckets = mos.dedup_histogram().await?.buckets.to_vec();
    Ok(Dedup { buckets, table_bytes: mos.dedup_table_bytes().await? })
}

/// A leaf with missing data that no running resilver restores counts like one with stale labels: the next
/// command renews labels, but no data.
fn lagging(mos: &Mos, health: &PoolHealth) -> Vec<Guid> {
    let (lagging, mut shown) = (mos.pool().lacking().lagging(), Vec::new());
    health.root.walk(&mut |vdev| {
        let is_well = vdev.trouble.is_none() && vdev.state == VdevState::Online;
        shown.extend((is_well && lagging.contains(&vdev.guid)).then_some(vdev.guid));
    });
    shown
}
