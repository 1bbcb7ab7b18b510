//! `cenote inject`: devices of open pools that fail on order, for drills and experiments.
//!
//! Idea: a fault is a rule at a device ([`cenote_device::Fault`]), which lasts until it is cleared or the
//! pool is exported. One that is about data (a file's blocks) becomes a rule for each place where these lie
//! now. What is in the cache is still read from there.
//!
//! Source: OpenZFS `zinject.c` for what people expect of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cenote_control::zpool::leaves::meant::leaf;
use cenote_device::{Fault, Op};
use cenote_format::units::{BlockId, Guid};
use cenote_fs::LastLink;
use cenote_host::pools::OpenPool;
use cenote_pool::{Pool, Taps, VdevConfig};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::json::version;
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table};
use crate::session::{Session, Target, print, print_json};

/// Rules that one order may make.
const MAX_RULES: usize = 10_000;

/// `cenote inject`
#[derive(Debug, Args)]
#[command(
    after_help = "A daemon (`cenote serve`) has to run and have the pool open. Without a fault, lists those \
        that there are. They last until they are cleared or the pool is exported. What is in the cache is \
        still read from there.\n\n\
        Examples:\n  \
        cenote inject tank /img/b --error read --sectors 0.5   # a worn disk: 0.5 % of it can't be read\n  \
        cenote inject tank b --delay 200 --seconds 60          # slow for a minute\n  \
        cenote inject tank/home:/mail b --corrupt              # wrong bits where that file lies on b\n  \
        cenote inject --clear tank"
)]
pub struct Inject {
    /// Operations fail with EIO
    #[arg(long, value_name = "OPERATION", value_delimiter = ',')]
    pub error: Vec<Operation>,
    /// Operations never end
    #[arg(long, value_name = "OPERATION", value_delimiter = ',')]
    pub hang: Vec<Operation>,
    /// Operations begin so many milliseconds later
    #[arg(long, value_name = "MS")]
    pub delay: Option<u64>,
    /// Reads return a wrong bit
    #[arg(long)]
    pub corrupt: bool,
    /// Only the first sectors of a write reach the device, which says nothing about it
    #[arg(long)]
    pub torn_writes: bool,
    /// Writes reach nothing, and the device says nothing about it
    #[arg(long)]
    pub lost_writes: bool,
    /// Strike operations with this probability, in percent
    #[arg(long, value_name = "PERCENT", conflicts_with = "sectors")]
    pub chance: Option<f64>,
    /// Strike this share of all sectors, in percent: always the same ones
    #[arg(long, value_name = "PERCENT")]
    pub sectors: Option<f64>,
    /// Strike only these bytes of the device, labels included
    #[arg(long, value_name = "FROM-TO")]
    pub range: Option<String>,
    /// Strike only these blocks of the file, or this one [default: all]
    #[arg(long, value_name = "FROM-TO")]
    pub blocks: Option<String>,
    /// Strike blocks of this level of the file's tree; 0 is its content
    #[arg(long, value_name = "LEVEL", default_value_t = 0)]
    pub level: u8,
    /// Strike at most so often
    #[arg(long, value_name = "COUNT")]
    pub times: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Clear faults: all, those of the pool or of the device
    #[arg(long)]
    pub clear: bool,
    /// A pool, or a file in one: POOL/DATASET:/PATH
    #[arg(value_name = "POOL|FILE")]
    pub target: Option<OsString>,
    /// A device: path, the last component of it, or guid
    pub device: Option<String>,
}

/// An operation of a device.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
}

impl Operation {
    fn op(self) -> Op {
        match self {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            Operation::Flush => Op::Flush,
            Operation::Discard => Op::Discard,
        }
    }
}

impl Inject {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), and without one no pool stays open";
            return Err(CliError::Refused(format!("cannot inject faults: {why}")));
        };
        let target = self.target.as_deref().map(Target::parse).transpose().map_err(CliError::Usage)?;
        let pools: Vec<Arc<OpenPool>> = match &target {
            None => pools.all(),
            Some(target) => match pools.get(target.pool()) {
                Some(pool) => vec![pool],
                None => {
                    let why = "no such pool is open in the daemon";
                    return Err(CliError::NotFound(format!("cannot open '{}': {why}", target.pool())));
                }
            },
        };
        let faults = self.faults(session)?;
        match (&target, &pools[..]) {
            _ if faults.is_empty() => self.show_or_clear(session, &pools).await,
            (Some(target), [pool]) if !self.clear => self.order(session, target, pool, faults).await,
            _ => Err(CliError::Usage("name the pool and device, or the file, that shall fail".into())),
        }
    }

    /// What is to happen, wherever it does.
    fn faults(&self, session: &Session) -> Result<Vec<Fault>, CliError> {
        let mut faults: Vec<Fault> = self.error.iter().map(|of| Fault::error(of.op())).collect();
        faults.extend(self.hang.iter().map(|of| Fault::hang_for_now(of.op(), session.runtime())));
        if let Some(ms) = self.delay {
            let slow = |op| Fault::delay(op, Duration::from_millis(ms), session.runtime());
            faults.extend([Op::Read, Op::Write, Op::Flush].map(slow));
        }
        faults.extend(self.corrupt.then(Fault::corruption));
        faults.extend(self.torn_writes.then(Fault::torn_write));
        faults.extend(self.lost_writes.then(Fault::lost_write));
        let share = |percent: f64| match (0.0..=100.0).contains(&percent) {
            true => Ok(percent / 100.0),
            false => Err(CliError::Usage(format!("{percent} is no percentage: give 0 to 100"))),
        };
        let (chance, sectors) = (self.chance.map(share).transpose()?, self.sectors.map(share).transpose()?);
        for fault in &mut faults {
            *fault = chance.map_or(fault.clone(), |chance| fault.clone().chance(chance));
            *fault = sectors.map_or(fault.clone(), |share| fault.clone().sectors(share));
            *fault = self.times.map_or(fault.clone(), |times| fault.clone().times(times));
        }
        Ok(faults)
    }

    async fn order(
        &self,
        session: &Session,
        target: &Target,
        pool: &OpenPool,
        faults: Vec<Fault>,
    ) -> Result<Outcome, CliError> {
        let tree = pool.engine.pool();
        let device = self.device.as_deref().map(|typed| named(session, &tree, typed)).transpose()?;
        let places = match (&target.path, device) {
            (Some(_), _) => {
                let mut places = self.places(session, target).await?;
                places.retain(|(leaf, _)| device.is_none_or(|only| only == *leaf));
                places
            }
            (None, Some(leaf)) => vec![(leaf, self.range.as_deref().map_or(Ok(0..u64::MAX), range)?)],
            (None, None) => return Err(CliError::Usage("name the device that shall fail".into())),
        };
        if places.is_empty() {
            return Err(CliError::Refused("nothing of it lies there on disk".into()));
        }
        if places.len() * faults.len() > MAX_RULES {
            let why = "lies in too many places for one order: name some of its --blocks";
            return Err(CliError::Refused(format!("{} {why}", target.dataset)));
        }
        let taps = taps(pool)?;
        for (leaf, range) in places {
            for fault in &faults {
                let rules = taps.of(leaf).faults;
                let number = rules.add(fault.clone().within(range.clone()));
                if let Some(seconds) = self.seconds {
                    let runtime = session.runtime().clone();
                    // It outlives this command.
                    _ = session.runtime().spawn(async move {
                        runtime.sleep(Duration::from_secs(seconds)).await;
                        rules.remove(number);
                    });
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// Where the blocks of a file lie, each place once.
    async fn places(&self, session: &Session, target: &Target) -> Result<Vec<(Guid, Range<u64>)>, CliError> {
        let dataset = session.open_dataset(target).await?;
        let fs = session.filesystem(&dataset).await?;
        let id = fs
            .resolve(target.path_in(&fs).await, LastLink::Follow)
            .await
            .map_err(cenote_inspect::InspectError::from)?;
        let object = fs.objset().object(id).await?;
        let all =
            object.dnode().max_block_id.0 >> (u32::from(self.level) * object.dnode().fanout_shift()).min(63);
        let wanted = self.blocks.as_deref().map_or(Ok(0..u64::MAX), range)?;
        let mut places = Vec::new();
        for block in wanted.start..wanted.end.min(all.saturating_add(1)) {
            let bp = object.blkptr(self.level, BlockId(block)).await?;
            places.extend(object.objset().pool().vdevs().places_of(&bp));
            if places.len() > MAX_RULES {
                break;
            }
        }
        places.sort_by_key(|(leaf, range)| (*leaf, range.start));
        places.dedup();
        Ok(places)
    }

    async fn show_or_clear(&self, session: &Session, pools: &[Arc<OpenPool>]) -> Result<Outcome, CliError> {
        let mut table = Table::new([
            ("POOL", Align::Left),
            ("DEVICE", Align::Left),
            ("STRUCK", Align::Right),
            ("FAULT", Align::Left),
        ]);
        let mut listed = Vec::new();
        for pool in pools {
            let (tree, taps) = (pool.engine.pool(), taps(pool)?);
            let only = self.device.as_deref().map(|typed| named(session, &tree, typed)).transpose()?;
            for (leaf, name) in
                leaves(&tree).into_iter().filter(|(leaf, _)| only.is_none_or(|only| only == *leaf))
            {
                let rules = taps.of(leaf).faults;
                if self.clear {
                    rules.heal();
                }
                for rule in rules.rules() {
                    let (struck, fault) = (rule.struck, rule.fault.to_string());
                    listed.push(json!({"pool": pool.name, "device": name, "guid": leaf.to_string(),
                        "struck": struck, "fault": fault}));
                    table.row([pool.name.clone(), name.clone(), struck.to_string(), fault]);
                }
            }
        }
        if session.json() {
            print_json(&json!({"output_version": version("inject"), "faults": Value::Array(listed)}))?;
        } else if !listed.is_empty() {
            print(table.text(false))?;
        }
        Ok(Outcome::Done)
    }
}

fn taps(pool: &OpenPool) -> Result<Arc<Taps>, CliError> {
    let none = || CliError::Refused(format!("pool '{}' was not opened for good", pool.name));
    pool.engine.pool().taps().ok_or_else(none)
}

fn named(session: &Session, pool: &Pool, typed: &str) -> Result<Guid, CliError> {
    leaf(session.caller(), pool, typed)?.ok_or_else(|| {
        CliError::Refused(format!("cannot inject faults into {typed}: no such device in pool"))
    })
}

/// The leaves of a pool, by guid, with the paths that the pool has.
fn leaves(pool: &Pool) -> BTreeMap<Guid, String> {
    let vdevs = pool.vdevs();
    let all = vdevs.tops().flat_map(VdevConfig::leaves);
    all.map(|leaf| (leaf.guid, leaf.path.clone().unwrap_or_else(|| leaf.guid.to_string()))).collect()
}

/// `FROM-TO`, the end not included, or one number.
fn range(typed: &str) -> Result<Range<u64>, CliError> {
    let wrong = || CliError::Usage(format!("'{typed}' is no range: give FROM-TO, or one number"));
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    match typed.split_once('-') {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(typed).map(|at| at..at.saturating_add(1)),
    }
    .and_then(|range| if range.is_empty() { Err(wrong()) } else { Ok(range) })
}
