//! `cenote trace ...`: what a cache would have done with a recorded load.

mod around;
mod record;

use std::path::PathBuf;
use std::sync::Arc;

use cenote_policy::PolicyName;
use cenote_policy::curve::{self, Curve};
use cenote_policy::replay::{Second, replay_with};
use cenote_policy::trace::{Part, Parts, Sum, Summary, Trace};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, duration, nice_bytes, parse_bytes};
use crate::session::{Session, print, print_json, unless_interrupted};

pub use around::{Around, Planned};

/// Commands on traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record what goes through the cache and to the devices of a pool that a daemon holds
    Record(record::Record),
    /// Summarise a trace: requests, blocks, footprint, reuse
    Show(Show),
    /// Replay a trace against cache policies and sizes
    Replay(Replay),
    /// Show the hit ratio over cache sizes: what more memory would bring
    Curve(CurveCommand),
}

impl TraceCommand {
    /// The command around which is to be recorded.
    pub fn around(&self) -> Option<Planned> {
        match self {
            TraceCommand::Record(record) if !record.command.is_empty() => {
                Some(Planned::new(&record.file, &record.command))
            }
            _ => None,
        }
    }

    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let interrupted = || "nothing was written".into();
        match self {
            // An interrupt is how it usually ends.
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
#[command(after_help = format!("{FORMATS}\n\nExample: cenote trace show OLTP.lis.zst"))]
pub struct Show {
    /// The trace
    pub file: PathBuf,
}

/// `cenote trace replay`
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Policies: {}.\n{FORMATS}\n\nExample: cenote trace replay --policy lru,openzfs-2.3 --size 1G,10% msr.csv",
    PolicyName::ALL.map(|name| format!("{name} ({})", name.about())).join("; ")
))]
pub struct Replay {
    /// Policies, comma-separated [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<PolicyName>,
    /// Cache sizes, comma-separated: bytes (4G), or a part of the trace's footprint (10%)
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_values = ["1%", "3%", "10%", "30%"])]
    pub size: Vec<CacheSize>,
    /// A cache device of this size behind the cache (L2ARC): shows the part of requests that either has
    #[arg(long, value_name = "SIZE")]
    pub l2: Option<CacheSize>,
    /// What the cache device takes in a second (`l2arc_write_max`)
    #[arg(long, value_name = "SIZE", default_value = "32M", requires = "l2")]
    pub l2_write: CacheSize,
    /// The trace
    pub file: PathBuf,
}

/// `cenote trace curve`
#[derive(Debug, Args)]
#[command(after_help = format!(
    "{FORMATS}\n\nExample: cenote trace curve --policy openzfs-2.3 --rate 0.01 OLTP.lis.zst"
))]
pub struct CurveCommand {
    /// The policy
    #[arg(long, value_name = "NAME", default_value = "lru")]
    pub policy: PolicyName,
    /// Part of the blocks that is looked at, chosen by a hash; 1 is exact
    #[arg(long, default_value_t = 1.0, value_parser = part)]
    pub rate: f64,
    /// Number of sizes, two for each doubling, up to the trace's footprint
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=60))]
    pub points: u16,
    /// The trace
    pub file: PathBuf,
}

/// A cache size as it is typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CacheSize {
    /// Bytes.
    Bytes(u64),
    /// Percent of the footprint.
    Percent(f64),
}

impl std::str::FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSize, String> {
        let percent = text.strip_suffix('%').map(|number| number.parse().ok().filter(|p| *p > 0.0));
        match percent {
            Some(percent) => percent.map(CacheSize::Percent),
            None => parse_bytes(text).filter(|&bytes| bytes > 0).map(CacheSize::Bytes),
        }
        .ok_or_else(|| "give a size such as 4G, or a part of the footprint such as 10%".to_owned())
    }
}

impl CacheSize {
    fn bytes(self, footprint_bytes: u64) -> u64 {
        match self {
            CacheSize::Bytes(bytes) => bytes,
            CacheSize::Percent(percent) => (footprint_bytes as f64 * percent / 100.0) as u64,
        }
        .max(1)
    }
}

fn part(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1.0);
    rate.ok_or_else(|| "give a part above 0 and up to 1".to_owned())
}

async fn read(session: &Session, file: PathBuf) -> Result<(Arc<Trace>, Summary), CliError> {
    let read = session.runtime().blocking(move || {
        let trace = Trace::read(&file)?;
        let summary = trace.summary();
        Ok::<_, cenote_policy::trace::TraceError>((Arc::new(trace), summary))
    });
    let (trace, summary) = read.await.map_err(|error| CliError::Refused(error.to_string()))?;
    if summary.requests == 0 {
        return Err(CliError::Refused("the trace has no requests".into()));
    }
    Ok((trace, summary))
}

/// The JSON of a summary.
#[derive(Debug, Serialize)]
struct Shown {
    requests: u64,
    writes: u64,
    blocks: u64,
    bytes: u64,
    footprint_bytes: u64,
    duration_ns: u64,
    requests_per_block: f64,
    device_reads: u64,
    device_read_bytes: u64,
    device_writes: u64,
    device_write_bytes: u64,
    parts: Vec<ShownPart>,
}

/// Requests of a dataset and class.
#[derive(Debug, Serialize)]
struct ShownPart {
    dataset: String,
    class: &'static str,
    requests: u64,
    missed: u64,
    missed_bytes: u64,
}

impl Show {
    async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (trace, Summary { requests, writes, blocks, bytes, footprint_bytes, duration_ns }) =
            read(session, self.file).await?;
        let requests_per_block = requests as f64 / blocks.max(1) as f64;
        if session.json() {
            let [read, written] = trace.devices;
            let shown = Shown {
                requests,
                writes,
                blocks,
                bytes,
                footprint_bytes,
                duration_ns,
                requests_per_block,
                device_reads: read.operations,
                device_read_bytes: read.bytes,
                device_writes: written.operations,
                device_write_bytes: written.bytes,
                parts: trace.parts.list().into_iter().map(ShownPart::from).collect(),
            };
            print_json(&shown)?;
            return Ok(Outcome::Done);
        }
        let mut table = Table::new([("", Align::Left), ("", Align::Right)]);
        table.row(["requests".to_owned(), requests.to_string()]);
        table.row(["writes".to_owned(), writes.to_string()]);
        table.row(["blocks".to_owned(), blocks.to_string()]);
        table.row(["requests per block".to_owned(), format!("{requests_per_block:.1}")]);
        table.row(["requested".to_owned(), nice_bytes(bytes)]);
        table.row(["footprint".to_owned(), nice_bytes(footprint_bytes)]);
        for (op, moved) in ["device reads", "device writes"].iter().zip(trace.devices) {
            if moved.operations > 0 {
                let moved = format!("{} of {}", moved.operations, nice_bytes(moved.bytes));
                table.row([(*op).to_owned(), moved]);
            }
        }
        table.row(["duration".to_owned(), duration(std::time::Duration::from_nanos(duration_ns))]);
        print(table.aligned_rows() + &by_part(&trace.parts))?;
        Ok(Outcome::Done)
    }
}

impl From<Part> for ShownPart {
    fn from(Part { dataset, class, sum: Sum { requests, missed, missed_bytes } }: Part) -> ShownPart {
        ShownPart { dataset, class: class.name(), requests, missed, missed_bytes }
    }
}

/// Whose requests they were, and what a special vdev would take of them.
fn by_part(parts: &Parts) -> String {
    let Some([metadata, all]) = parts.special() else { return String::new() };
    let columns = [("DATASET", Align::Left), ("CLASS", Align::Left), ("REQUESTS", Align::Right)];
    let missed = [("MISSED", Align::Right), ("HITS", Align::Right), ("FROM DEVICES", Align::Right)];
    let mut table = Table::new([columns[0], columns[1], columns[2], missed[0], missed[1], missed[2]]);
    for Part { dataset, class, sum } in parts.list() {
        let hits = 100.0 * (sum.requests - sum.missed) as f64 / sum.requests.max(1) as f64;
        let (requests, missed) = (sum.requests.to_string(), sum.missed.to_string());
        let bytes = nice_bytes(sum.missed_bytes);
        table.row([dataset, class.name().into(), requests, missed, format!("{hits:.1}%"), bytes]);
    }
    let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    format!(
        "\n{}\nA special vdev would take {:.0}% of these reads from devices ({:.0}% of the bytes).\n",
        table.aligned(),
        percent(metadata.missed, all.missed),
        percent(metadata.missed_bytes, all.missed_bytes)
    )
}

/// One cell of the table of replays.
#[derive(Debug, Serialize)]
struct Replayed {
    policy: &'static str,
    cache_bytes: u64,
    requests: u64,
    hits: u64,
    hit_ratio: f64,
    byte_hit_ratio: f64,
    /// Of the cache and the cache device together.
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio_with_l2: Option<f64>,
}

impl Replay {
    async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (trace, summary) = read(session, self.file).await?;
        let policies = if self.policy.is_empty() { PolicyName::ALL.to_vec() } else { self.policy };
        let sizes: Vec<u64> = self.size.iter().map(|size| size.bytes(summary.footprint_bytes)).collect();
        let bytes = |size: CacheSize| size.bytes(summary.footprint_bytes);
        let second = self.l2.map(|l2| Second { bytes: bytes(l2), bytes_per_s: bytes(self.l2_write) });
        let mut replayed = Vec::new();
        for &policy in &policies {
            for &cache_bytes in &sizes {
                let trace = trace.clone();
                let run = move || replay_with(&trace, policy, cache_bytes, second);
                let run = session.runtime().blocking(run);
                let outcome = run.await;
                replayed.push(Replayed {
                    policy: policy.name(),
                    cache_bytes,
                    requests: outcome.requests,
                    hits: outcome.hits,
                    hit_ratio: 1.0 - outcome.miss_ratio(),
                    byte_hit_ratio: 1.0 - outcome.byte_miss_ratio(),
                    hit_ratio_with_l2: second.map(|_| 1.0 - outcome.device_ratio()),
                });
            }
        }
        if session.json() {
            print_json(&replayed)?;
            return Ok(Outcome::Done);
        }
        let head = sizes.iter().map(|&size| (nice_bytes(size), Align::Right));
        let title = if second.is_some() { "HIT RATIO WITH L2" } else { "HIT RATIO" };
        let mut table = Table::new([(title.to_owned(), Align::Left)].into_iter().chain(head));
        for row in replayed.chunks(sizes.len().max(1)) {
            let cells = row.iter().map(|cell| percent(cell.hit_ratio_with_l2.unwrap_or(cell.hit_ratio)));
            table.row([row[0].policy.to_owned()].into_iter().chain(cells));
        }
        print(table.aligned())?;
        Ok(Outcome::Done)
    }
}

/// The JSON of a curve.
#[derive(Debug, Serialize)]
struct Drawn {
    policy: &'static str,
    rate: f64,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    cache_bytes: u64,
    hit_ratio: f64,
}

impl CurveCommand {
    async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let CurveCommand { policy, rate, points, file } = self;
        let (trace, summary) = read(session, file).await?;
        // Two sizes for each doubling: most changes where caches are small.
        let size = |halves: u16| summary.footprint_bytes as f64 / 2_f64.powf(f64::from(halves) / 2.0);
        let sizes: Vec<u64> = (0..points).rev().map(|halves| (size(halves) as u64).max(1)).collect();
        let Curve { points } = session.runtime().blocking(move || draw(&trace, policy, &sizes, rate)).await;
        if session.json() {
            let point = |&(cache_bytes, miss): &(u64, f64)| Point { cache_bytes, hit_ratio: 1.0 - miss };
            print_json(&Drawn { policy: policy.name(), rate, points: points.iter().map(point).collect() })?;
            return Ok(Outcome::Done);
        }
        let mut table = Table::new([("CACHE", Align::Right), ("HIT RATIO", Align::Right), ("", Align::Left)]);
        for (size, miss) in points {
            let bar = "#".repeat(((1.0 - miss) * 50.0).round() as usize);
            table.row([nice_bytes(size), percent(1.0 - miss), bar]);
        }
        print(table.aligned())?;
        Ok(Outcome::Done)
    }
}

fn draw(trace: &Trace, policy: PolicyName, sizes: &[u64], rate: f64) -> Curve {
    match policy {
        PolicyName::Lru if rate >= 1.0 => curve::exact_lru(trace, sizes),
        PolicyName::Lru => curve::sampled_lru(trace, sizes, rate),
        _ => curve::sampled(trace, policy, sizes, rate),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}
