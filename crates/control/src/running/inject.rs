//! `inject`: makes devices of open pools fail on request, for drills and experiments.
//!
//! Idea: a fault is a rule at a device ([`cenote_device::Fault`]) that lasts until it is cleared or the pool
//! is exported. A fault in a file's blocks becomes a rule for each of their current locations. Reads from the
//! cache still succeed.
//!
//! Source: OpenZFS `zinject.c`, as the familiar model.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cenote_device::{Fault, Op};
use cenote_format::units::{BlockId, Guid};
use cenote_fs::LastLink;
use cenote_host::pools::OpenPool;
use cenote_inspect::InspectError;
use cenote_pool::{LeafIoTable, Pool, VdevConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::files::Target;
use crate::session::{Session, dataset};
use crate::verb::{Answered, Looks, Needs, Runs, Verb};
use crate::zpool::leaves::meant::leaf;

/// Rules per request.
const MAX_RULES: usize = 10_000;
/// Effects per request.
const MAX_EFFECTS: usize = 100;
/// The longest duration, to avoid overflow of the clock: ten years.
const MAX_SECONDS: u64 = 10 * 365 * 86_400;

/// Inject faults into devices of open pools, like zinject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inject {
    /// A pool, or a file in one; none: all pools.
    #[serde(default)]
    pub target: Option<Target>,
    /// A device: path, last path component, or guid.
    #[serde(default)]
    pub device: Option<String>,
    /// Operation.
    pub order: Order,
}

/// An operation on faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// List them.
    List,
    /// Clear them.
    Clear,
    /// Add some.
    Add(Faults),
}

/// Effects, frequency and duration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Faults {
    /// Effects.
    pub effects: Vec<Effect>,
    /// Probability per operation, from 0 to 1; none: always.
    pub chance: Option<f64>,
    /// Fraction of sectors affected, from 0 to 1: always the same sectors.
    pub sectors: Option<f64>,
    /// Affected bytes of the device, labels included; none: all.
    pub bytes: Option<Range<u64>>,
    /// Affected blocks of the file; none: all.
    pub blocks: Option<Range<u64>>,
    /// Level of these blocks; 0 is content.
    pub level: u8,
    /// Maximum number of affected operations.
    pub times: Option<u64>,
    /// Duration.
    pub seconds: Option<u64>,
}

/// An effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Operations fail with EIO.
    Error(Operation),
    /// Operations never end.
    Hang(Operation),
    /// Operations are delayed.
    Delay {
        /// The delay.
        milliseconds: u64,
    },
    /// Reads return a wrong bit.
    Corrupt,
    /// Only the first sectors of a write reach the device.
    TornWrites,
    /// Writes reach nothing.
    LostWrites,
}

/// A device operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
}

/// An active fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Pool.
    pub pool: String,
    /// Device's path.
    pub device: String,
    /// Guid.
    pub guid: Guid,
    /// Affected operations.
    pub struck: u64,
    /// Description.
    pub fault: String,
}

impl From<Operation> for Op {
    fn from(operation: Operation) -> Op {
        match operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            Operation::Flush => Op::Flush,
            Operation::Discard => Op::Discard,
        }
    }
}

impl Verb for Inject {
    const NAME: &'static str = "inject";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const RUNS: Runs = Runs::InDaemon;
    const SEES_ALL: bool = true;
    /// Active faults, unless some were added.
    type Answer = Vec<Listed>;

    /// # Errors
    /// No daemon; the pool, device or file is missing, or the file has nothing on disk.
    async fn carry_out(self, session: &Session) -> Result<Answered<Vec<Listed>>, ControlError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), and without one no pool stays open";
            return Err(ControlError::Refused(format!("cannot inject faults: {why}")));
        };
        let pools: Vec<Arc<OpenPool>> = match &self.target {
            None => pools.all(),
            Some(target) => match pools.get(target.pool()) {
                Some(pool) => vec![pool],
                None => {
                    let why = "no such pool is open in the daemon";
                    return Err(ControlError::NotFound(format!("cannot open '{}': {why}", target.pool())));
                }
            },
        };
        match (&self.order, &self.target, &pools[..]) {
            (Order::Add(faults), Some(target), [pool]) => {
                self.add(session, target, pool, faults).await?;
                Ok(Vec::new().into())
            }
            (Order::Add(_), ..) => {
                Err(ControlError::Usage("name the pool and device, or the file, that shall fail".into()))
            }
            (Order::List | Order::Clear, ..) => Ok(self.list(session, &pools)?.into()),
        }
    }
}

impl Faults {
    fn rules(&self, session: &Session) -> Result<Vec<Fault>, ControlError> {
        let is_part = |part: &f64| (0.0..=1.0).contains(part);
        let is_empty = |range: &Range<u64>| range.is_empty();
        if !self.chance.iter().chain(&self.sectors).all(is_part)
            || self.bytes.iter().chain(&self.blocks).any(is_empty)
            || self.effects.len() > MAX_EFFECTS
        {
            return Err(ControlError::Usage("give parts from 0 to 1, and ranges that are not empty".into()));
        }
        let runtime = session.runtime();
        let rules = self.effects.iter().flat_map(|effect| match *effect {
            Effect::Error(of) => vec![Fault::error(of.into())],
            Effect::Hang(of) => vec![Fault::hang_for_now(of.into(), runtime)],
            Effect::Delay { milliseconds } => {
                let slow = |op| {
                    Fault::delay(op, Duration::from_millis(milliseconds.min(MAX_SECONDS * 1000)), runtime)
                };
                [Op::Read, Op::Write, Op::Flush].map(slow).into()
            }
            Effect::Corrupt => vec![Fault::corruption()],
            Effect::TornWrites => vec![Fault::torn_write()],
            Effect::LostWrites => vec![Fault::lost_write()],
        });
        let restricted = rules.map(|rule| {
            let rule = self.chance.map_or(rule.clone(), |chance| rule.chance(chance));
            let rule = self.sectors.map_or(rule.clone(), |share| rule.sectors(share));
            self.times.map_or(rule.clone(), |times| rule.times(times))
        });
        Ok(restricted.collect())
    }
}

impl Inject {
    async fn add(
        &self,
        session: &Session,
        target: &Target,
        pool: &OpenPool,
        faults: &Faults,
    ) -> Result<(), ControlError> {
        let rules = faults.rules(session)?;
        let tree = pool.engine.pool();
        let device = self.device.as_deref().map(|typed| named(session, &tree, typed)).transpose()?;
        let places = match (&target.path, device) {
            (Some(_), _) => {
                let mut places = places(session, target, faults).await?;
                places.retain(|(leaf, _)| device.is_none_or(|only| only == *leaf));
                places
            }
            (None, Some(leaf)) => vec![(leaf, faults.bytes.clone().unwrap_or(0..u64::MAX))],
            (None, None) => return Err(ControlError::Usage("name the device that shall fail".into())),
        };
        if places.is_empty() {
            return Err(ControlError::Refused("nothing of it lies there on disk".into()));
        }
        if places.len() * rules.len() > MAX_RULES {
            let why = "lies in too many places for one order: name some of its --blocks";
            return Err(ControlError::Refused(format!("{} {why}", target.dataset)));
        }
        let taps = leaf_io(pool)?;
        for (leaf, range) in places {
            for rule in &rules {
                let of_device = taps.of(leaf).faults;
                let number = of_device.add(rule.clone().within(range.clone()));
                if let Some(seconds) = faults.seconds {
                    let runtime = session.runtime().clone();
                    // It outlives this verb.
                    _ = session.runtime().spawn(async move {
                        runtime.sleep(Duration::from_secs(seconds.min(MAX_SECONDS))).await;
                        of_device.remove(number);
                    });
                }
            }
        }
        Ok(())
    }

    fn list(&self, session: &Session, pools: &[Arc<OpenPool>]) -> Result<Vec<Listed>, ControlError> {
        let mut listed = Vec::new();
        for pool in pools {
            let (tree, taps) = (pool.engine.pool(), leaf_io(pool)?);
            let only = self.device.as_deref().map(|typed| named(session, &tree, typed)).transpose()?;
            for (guid, device) in
                leaves(&tree).into_iter().filter(|(leaf, _)| only.is_none_or(|only| only == *leaf))
            {
                let rules = taps.of(guid).faults;
                if self.order == Order::Clear {
                    rules.heal();
                }
                listed.extend(rules.rules().into_iter().map(|rule| {
                    let (struck, fault) = (rule.struck, rule.fault.to_string());
                    Listed { pool: pool.name.clone(), device: device.clone(), guid, struck, fault }
                }));
            }
        }
        Ok(listed)
    }
}

/// Locations of a file's blocks, each once.
async fn places(
    session: &Session,
    target: &Target,
    faults: &Faults,
) -> Result<Vec<(Guid, Range<u64>)>, ControlError> {
    let dataset = dataset(&session.open_pool(target.pool()).await?, &target.dataset).await?;
    let fs = session.filesystem(&dataset).await?;
    let found = fs.resolve(target.path_in(&fs).await, LastLink::Follow).await;
    let object = fs.objset().object(found.map_err(InspectError::from)?).await?;
    let shift = (u32::from(faults.level) * object.dnode().fanout_shift()).min(63);
    let last = object.dnode().max_block_id.0 >> shift;
    let wanted = faults.blocks.clone().unwrap_or(0..u64::MAX);
    let mut places = Vec::new();
    for block in wanted.start..wanted.end.min(last.saturating_add(1)) {
        let bp = object.blkptr(faults.level, BlockId(block)).await?;
        places.extend(object.objset().pool().tree().vdevs().places_of(&bp));
        if places.len() > MAX_RULES {
            break;
        }
    }
    places.sort_by_key(|(leaf, range)| (*leaf, range.start));
    places.dedup();
    Ok(places)
}

fn leaf_io(pool: &OpenPool) -> Result<Arc<LeafIoTable>, ControlError> {
    let none = || ControlError::Refused(format!("pool '{}' was not opened for good", pool.name));
    pool.engine.pool().counters().leaf_io().ok_or_else(none)
}

fn named(session: &Session, pool: &Pool, typed: &str) -> Result<Guid, ControlError> {
    leaf(session.caller(), pool, typed)?.ok_or_else(|| {
        ControlError::Refused(format!("cannot inject faults into {typed}: no such device in pool"))
    })
}

fn leaves(pool: &Pool) -> BTreeMap<Guid, String> {
    let vdevs = pool.tree().vdevs();
    let all = vdevs.tops().flat_map(VdevConfig::leaves);
    all.map(|leaf| (leaf.guid, leaf.path.clone().unwrap_or_else(|| leaf.guid.to_string()))).collect()
}
