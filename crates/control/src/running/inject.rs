//! `inject`: devices of open pools that fail on order, for drills and experiments.
//!
//! Idea: a fault is a rule at a device ([`cenote_device::Fault`]), which lasts until it is cleared or the
//! pool is exported. One that is about data (a file's blocks) becomes a rule for each place where these lie
//! now. What is in the cache is still read from there.
//!
//! Source: OpenZFS `zinject.c` for what people expect of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cenote_device::{Fault, Op};
use cenote_format::units::{BlockId, Guid};
use cenote_fs::LastLink;
use cenote_host::pools::OpenPool;
use cenote_inspect::InspectError;
use cenote_pool::{Pool, Taps, VdevConfig};
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::files::Target;
use crate::session::{Session, dataset};
use crate::verb::{Answered, Looks, Needs, Runs, Verb};
use crate::zpool::leaves::meant::leaf;

/// Rules that one order may make.
const MAX_RULES: usize = 10_000;
/// Effects that one order may have.
const MAX_EFFECTS: usize = 100;
/// The longest time, by which a clock can still be added up: ten years.
const MAX_SECONDS: u64 = 10 * 365 * 86_400;

/// What is to be done, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inject {
    /// A pool, or a file in one; none: all pools.
    #[serde(default)]
    pub target: Option<Target>,
    /// A device of the pool: its path, the last component of that, or its guid.
    #[serde(default)]
    pub device: Option<String>,
    /// What.
    pub order: Order,
}

/// What is done with faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// They are listed.
    List,
    /// They end.
    Clear,
    /// There are more of them.
    Add(Faults),
}

/// What happens, how often, and for how long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// What happens.
    pub effects: Vec<Effect>,
    /// The probability that an operation is struck, from 0 to 1; none: each is.
    pub chance: Option<f64>,
    /// The part of all sectors that is struck, from 0 to 1: always the same ones.
    pub sectors: Option<f64>,
    /// Bytes of the device that are struck, labels included; none: all.
    pub bytes: Option<Range<u64>>,
    /// Blocks of the file that are struck; none: all.
    pub blocks: Option<Range<u64>>,
    /// The level of the file's tree that they are of; 0 is its content.
    pub level: u8,
    /// The most operations that are struck.
    pub times: Option<u64>,
    /// How long.
    pub seconds: Option<u64>,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Operations fail with EIO.
    Error(Operation),
    /// Operations never end.
    Hang(Operation),
    /// Operations begin so much later.
    Delay {
        /// How much.
        milliseconds: u64,
    },
    /// Reads return a wrong bit.
    Corrupt,
    /// Only the first sectors of a write reach the device.
    TornWrites,
    /// Writes reach nothing.
    LostWrites,
}

/// An operation of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
}

/// A fault that there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The pool.
    pub pool: String,
    /// The device's path.
    pub device: String,
    /// Its guid.
    pub guid: Guid,
    /// Operations that were struck.
    pub struck: u64,
    /// What it is, in words.
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
    /// The faults that there are, unless some were added.
    type Answer = Vec<Listed>;

    /// # Errors
    /// No daemon runs; the pool, device or file is not there, or nothing of it is on disk.
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
    /// As a device takes them.
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
        let taps = taps(pool)?;
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
            let (tree, taps) = (pool.engine.pool(), taps(pool)?);
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

/// Where the blocks of a file lie, each place once.
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
        places.extend(object.objset().pool().vdevs().places_of(&bp));
        if places.len() > MAX_RULES {
            break;
        }
    }
    places.sort_by_key(|(leaf, range)| (*leaf, range.start));
    places.dedup();
    Ok(places)
}

fn taps(pool: &OpenPool) -> Result<Arc<Taps>, ControlError> {
    let none = || ControlError::Refused(format!("pool '{}' was not opened for good", pool.name));
    pool.engine.pool().taps().ok_or_else(none)
}

fn named(session: &Session, pool: &Pool, typed: &str) -> Result<Guid, ControlError> {
    leaf(session.caller(), pool, typed)?.ok_or_else(|| {
        ControlError::Refused(format!("cannot inject faults into {typed}: no such device in pool"))
    })
}

/// The leaves of a pool, by guid, with the paths that the pool has.
fn leaves(pool: &Pool) -> BTreeMap<Guid, String> {
    let vdevs = pool.vdevs();
    let all = vdevs.tops().flat_map(VdevConfig::leaves);
    all.map(|leaf| (leaf.guid, leaf.path.clone().unwrap_or_else(|| leaf.guid.to_string()))).collect()
}
