//! `zpool status`: pools with their health, the scrubs and other work that they have recorded, their devices,
//! their known errors.
//!
//! Idea: the answer has everything that any option of the command line shows, but for what has to be read
//! for it alone: those parts are asked for.

pub mod circumstances;
pub mod damaged;
pub mod passes;
pub mod reason;
pub mod unopened;
pub mod work;

use std::collections::BTreeMap;

use cenote_dataset::Mos;
use cenote_format::ddt::DdtStat;
use cenote_format::units::{Guid, Txg};
use cenote_pool::{FoundPool, PoolHealth, VdevState};
use serde::{Deserialize, Serialize};

use super::list::TopUsage;
use super::waits::{Waits, waits};
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};
use circumstances::Circumstances;
use damaged::{Damaged, damaged_objects};
use passes::LeafPasses;
use reason::{Reason, judge};
use unopened::Unopened;
use work::Work;

/// Which pools, and what of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// By name or guid; none: all.
    #[serde(default)]
    pub pools: Vec<String>,
    /// The objects with known errors, too.
    #[serde(default)]
    pub damaged: bool,
    /// Deduplicated blocks by number of references, too.
    #[serde(default)]
    pub dedup: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statuses {
    /// The pools.
    pub pools: Vec<PoolStatus>,
    /// Those that the daemon can't open yet.
    pub waiting: Vec<Waits>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
    /// The state of its vdevs.
    pub health: PoolHealth,
    /// What is wrong, and what to do.
    pub reason: Option<Reason>,
    /// What its metadata says; none: it can't be opened, and the rest is what its labels say.
    pub opened: Option<Opened>,
}

/// What the metadata of a pool says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The txg that is shown.
    pub txg: Txg,
    /// The space of its top-level vdevs.
    pub usage: Vec<Space>,
    /// Work that it has recorded.
    pub work: Work,
    /// A resilver is not complete.
    pub resilvering: bool,
    /// How far its leaves are initialized and trimmed.
    pub passes: BTreeMap<Guid, LeafPasses>,
    /// Leaves that lack something, and no resilver that is under way brings it.
    pub lagging: Vec<Guid>,
    /// Blocks in the error log.
    pub data_errors: usize,
    /// The objects that they are of, if those were asked for.
    pub damaged: Vec<Damaged>,
    /// Deduplicated blocks, if those were asked for.
    pub dedup: Option<Dedup>,
}

/// Space of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Raw: with parity.
    pub raw: TopUsage,
    /// The size without parity, as `zfs list` counts.
    pub deflated_bytes: u64,
}

/// Deduplicated blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedup {
    /// Item i: blocks with at least 2^i and fewer than 2^(i+1) references.
    pub buckets: Vec<DdtStat>,
    /// The tables on disk.
    pub table_bytes: u64,
}

impl Verb for Status {
    const NAME: &'static str = "zpool status";
    const NEEDS: Needs = Needs::Nothing;
    const LOOKS: Looks = Looks::Always;
    type Answer = Statuses;

    /// # Errors
    /// None of the pools that are named is there. Those that can't be opened are told of, and shown.
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
        let circumstances = Circumstances { is_open: held.is_some(), ..Circumstances::of_pool(&mos).await? };
        let usage = mos.usage().await?;
        let damaged = if self.damaged { damaged_objects(&mos).await? } else { Vec::new() };
        let dedup = if self.dedup { Some(dedup(&mos).await?) } else { None };
        let passes = passes::of_leaves(&mos).await?;
        // Errors met while reading so far are part of the health.
        let health = mos.pool().status();
        let lagging = if circumstances.resilvering { Vec::new() } else { lagging(&mos, &health) };
        let work = Work::gather(session, &mos, held.as_deref(), &usage).await?;
        let vdevs = mos.pool().vdevs();
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

/// A device that lacks something that no resilver under way brings it is as good as one with old labels: the
/// next command's labels are new, and it lacks that still.
fn lagging(mos: &Mos, health: &PoolHealth) -> Vec<Guid> {
    let (lagging, mut shown) = (mos.pool().lagging_leaves(), Vec::new());
    health.root.walk(&mut |vdev| {
        let is_well = vdev.trouble.is_none() && vdev.state == VdevState::Online;
        shown.extend((is_well && lagging.contains(&vdev.guid)).then_some(vdev.guid));
    });
    shown
}
