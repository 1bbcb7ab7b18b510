//! `cenote trace ...`: simulates caches on a recorded load.

mod around;
mod record;

use std::path::PathBuf;

use cenote_control::text::parse_bytes;
use cenote_policy::PolicyName;
use cenote_shown::trace;
use cenote_study::StudyError;
use cenote_study::trace::{CacheSize, Draw, SecondSize};
use cenote_study::trace::{Replay as ReplayRequest, Show as ShowRequest};
use clap::{Args, Subcommand};

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, unless_interrupted};

/// Commands on traces.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    cenote trace record --seconds 600 tank evening.csv.zst\n  \
    cenote trace show evening.csv.zst")]
pub enum TraceCommand {
    /// Record the cache look-ups and device operations of a pool that the daemon holds
    Record(record::Record),
    /// Summarise a trace: requests, blocks, footprint, reuse
    Show(Show),
    /// Replay a trace against cache policies and sizes
    Replay(Replay),
    /// Show the hit ratio over cache sizes
    Curve(CurveCommand),
}

impl TraceCommand {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let interrupted = || "nothing was written".into();
        match self {
            // A recording usually ends by an interrupt.
            TraceCommand::Record(record) => record.run(session).await,
            TraceCommand::Show(show) => unless_interrupted(show.run(session), interrupted).await,
            TraceCommand::Replay(replay) => unless_interrupted(replay.run(session), interrupted).await,
            TraceCommand::Curve(curve) => unless_interrupted(curve.run(session), interrupted).await,
        }
    }
}

const FORMATS: &str = "Formats, recognised by content: traces of the ARC paper, lists of block numbers, MSR \
    Cambridge, CSV with a header, fio's iolog, blkparse, libCacheSim's oracleGeneral (by name); also \
    compressed with zstd.";

/// `cenote trace show`
#[derive(Debug, Args)]
#[command(after_help = format!("{FORMATS}\n\nExample: cenote trace show evening.csv.zst"))]
pub struct Show {
    /// The trace
    pub file: PathBuf,
}

/// `cenote trace replay`
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Policies: {}.\n{FORMATS}\n\n\
    Example: cenote trace replay --policy lru,openzfs-2.3 --size 1G,10% evening.csv.zst",
    PolicyName::ALL.map(|name| format!("{name} ({})", name.about())).join("; ")
))]
pub struct Replay {
    /// Policies, comma-separated [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<PolicyName>,
    /// Cache sizes, comma-separated: bytes (4G), or a share of the trace's footprint (10%)
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_values = ["1%", "3%", "10%", "30%"])]
    #[arg(value_parser = size)]
    pub size: Vec<CacheSize>,
    /// Add a cache device of this size (L2ARC), and show the share of requests that either holds
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub l2: Option<CacheSize>,
    /// Write limit of the cache device per second (`l2arc_write_max`)
    #[arg(long, value_name = "SIZE", default_value = "32M", requires = "l2", value_parser = size)]
    pub l2_write: CacheSize,
    /// The trace
    pub file: PathBuf,
}

/// `cenote trace curve`
#[derive(Debug, Args)]
#[command(after_help = format!(
    "{FORMATS}\n\nExample: cenote trace curve --policy openzfs-2.3 --rate 0.01 evening.csv.zst"
))]
pub struct CurveCommand {
    /// The policy
    #[arg(long, value_name = "NAME", default_value = "lru")]
    pub policy: PolicyName,
    /// Share of the blocks to sample, chosen by a hash; 1 is exact
    #[arg(long, default_value_t = 1.0, value_parser = part)]
    pub rate: f64,
    /// Number of sizes, two for each doubling, up to the trace's footprint
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=60))]
    pub points: u16,
    /// The trace
    pub file: PathBuf,
}

fn size(text: &str) -> Result<CacheSize, String> {
    let percent = text.strip_suffix('%').map(|number| number.parse().ok().filter(|p| *p > 0.0));
    match percent {
        Some(percent) => percent.map(CacheSize::Percent),
        None => parse_bytes(text).filter(|&bytes| bytes > 0).map(CacheSize::Bytes),
    }
    .ok_or_else(|| "give a size such as 4G, or a part of the footprint such as 10%".to_owned())
}

fn part(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or_else(|| "give a part above 0 and up to 1".to_owned())
}

fn refused(error: StudyError) -> CliError {
    CliError::Refused(error.to_string())
}

impl Show {
    async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let shown = ShowRequest { file: self.file }.run(session.runtime()).await.map_err(refused)?;
        session.show(|| trace::show(&shown), || &shown)?;
        Ok(Outcome::Done)
    }
}

impl Replay {
    async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Replay { policy, size: sizes, l2, l2_write, file } = self;
        let policies = if policy.is_empty() { PolicyName::ALL.to_vec() } else { policy };
        let second = l2.map(|size| SecondSize { size, per_second: l2_write });
        let columns = sizes.len().max(1);
        let request = ReplayRequest { file, policies, sizes, second };
        let replayed = request.run(session.runtime()).await.map_err(refused)?;
        session.show(|| trace::ratios(&replayed, columns, second.is_some()), || &replayed)?;
        Ok(Outcome::Done)
    }
}

impl CurveCommand {
    async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let CurveCommand { policy, rate, points, file } = self;
        let request = Draw { file, policy, rate, points };
        let drawn = request.run(session.runtime()).await.map_err(refused)?;
        session.show(|| trace::bars(&drawn), || &drawn)?;
        Ok(Outcome::Done)
    }
}
