//! `cenote arcstat`: activity of the caches of the daemon's pools, per interval.
//!
//! The first line covers the time since the pools were opened, each later one its interval.
//!
//! Source: OpenZFS's `arcstat` (its default columns).

mod report;

use std::cell::RefCell;

use cenote_control::running::arcstat::{Arcstat as Request, ClassStats, L2Stats, PrefetchStats, Sample};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::command::json::document;
use crate::command::zpool::shown::repeat::{Repeat, Round};
use crate::outcome::{CliError, Outcome};
use crate::render::{Align, Table, date, nice_bytes, nice_number};
use crate::session::{Session, print, print_json};

/// `cenote arcstat`
#[derive(Debug, Args)]
#[command(after_help = "Needs a daemon (`cenote serve`) that holds pools.\n\n\
        Columns:\n  \
        read, h%       look-ups, and the share of hits\n  \
        ddread, ddh%   the same for blocks of files and volumes\n  \
        dmread, dmh%   the same for all other blocks\n  \
        pread, ph%     blocks to prefetch, and the share of them already cached\n  \
        used%          share of prefetched blocks that were used\n  \
        evicted        blocks evicted from memory\n  \
        blocks         blocks in memory\n  \
        size, c        size of the caches, and its limit\n  \
        l2read, l2h%   with cache devices: look-ups there, and the share of hits\n  \
        l2bytes        bytes read from cache devices\n  \
        l2asize        bytes that cache devices hold\n  \
        l2hdr          memory for their headers\n\n\
        Example: cenote arcstat -v 5 3")]
pub struct Arcstat {
    /// Report each pool's cache, the hit ratio of other sizes, and recommended changes
    #[arg(long)]
    pub report: bool,
    /// Show each pool, and the values that its policy adapts
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Print exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Interval and count
    #[command(flatten)]
    pub repeat: Repeat,
    /// An interval in seconds and a count [default: endless]
    #[arg(value_name = "INTERVAL [COUNT]")]
    pub schedule: Vec<String>,
}

impl Arcstat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.report {
            return Self::report(session).await;
        }
        let before = RefCell::new(Vec::<Sample>::new());
        let show = async |words: &[String], round: Round| {
            if let Some(word) = words.first() {
                return Err(CliError::Usage(format!("{word}: give an interval in seconds, then a count")));
            }
            let now = self.samples(session).await?;
            let shown: Vec<Sample> = now.iter().map(|now| now.since(&before.borrow())).collect();
            before.replace(now);
            match session.json() {
                true => print_json(&round.stamp(as_json(&shown)))?,
                false => print(self.as_text(&shown, session, round.is_first))?,
            }
            Ok(Outcome::Done)
        };
        self.repeat.run(session, &self.schedule, show).await
    }

    async fn report(session: &Session) -> Result<Outcome, CliError> {
        let samples = session.control().run(Request { outlook: true }).await?.answer;
        match session.json() {
            true => {
                let entries = samples.iter().map(|of| (of.pool.clone(), report::as_json(of)));
                print_json(&document("arcstat", "caches", entries.collect()))?;
            }
            false => print(samples.iter().map(report::text).collect::<Vec<_>>().join("\n"))?,
        }
        Ok(Outcome::Done)
    }

    async fn samples(&self, session: &Session) -> Result<Vec<Sample>, CliError> {
        let all = session.control().run(Request { outlook: false }).await?.answer;
        let total = Sample::sum("total", &all);
        Ok(if self.verbose { all.into_iter().chain([total]).collect() } else { vec![total] })
    }

    fn as_text(&self, shown: &[Sample], session: &Session, is_first: bool) -> String {
        const COLUMNS: [&str; 13] = [
            "read", "h%", "ddread", "ddh%", "dmread", "dmh%", "pread", "ph%", "used%", "evicted", "blocks",
            "size", "c",
        ];
        let head = [("time", Align::Left)].into_iter().chain(self.verbose.then_some(("pool", Align::Left)));
        let has_second = shown.iter().any(|sample| sample.second.devices > 0);
        let second: &[&str] =
            if has_second { &["l2read", "l2h%", "l2bytes", "l2asize", "l2hdr"] } else { &[] };
        let columns = COLUMNS.iter().chain(second);
        let mut table = Table::new(head.chain(columns.map(|name| (*name, Align::Right))));
        let now = date((session.runtime().unix_time_ns() / 1_000_000_000).cast_signed());
        let time = now.split_whitespace().find(|word| word.contains(':')).unwrap_or(&now).to_owned();
        let count = |count: u64| if self.parsable { count.to_string() } else { nice_number(count) };
        let bytes = |bytes: u64| if self.parsable { bytes.to_string() } else { nice_bytes(bytes) };
        let mut gauges = String::new();
        for Sample { pool, stats, second, .. } in shown {
            let (data, metadata) = (&stats.data, &stats.metadata);
            let both = ClassStats { hits: stats.hits(), misses: stats.misses(), content_bytes: 0 };
            let reads = [&both, data, metadata]
                .into_iter()
                .flat_map(|class| [count(class.hits + class.misses), percent(class)]);
            let PrefetchStats { io_issued, found, used, iohits, .. } = stats.prefetch;
            let ahead = ClassStats { hits: found, misses: io_issued, content_bytes: 0 };
            // Some blocks used in an interval were read before it.
            let used = (used + iohits).min(io_issued);
            let useful = ClassStats { hits: used, misses: io_issued - used, content_bytes: 0 };
            let reads = reads.chain([count(found + io_issued), percent(&ahead), percent(&useful)]);
            let rest =
                [count(stats.evictions), count(stats.blocks), bytes(stats.bytes), bytes(stats.budget_bytes)];
            let pool_cell = self.verbose.then(|| pool.clone());
            let L2Stats { hits, misses, read_bytes, asize, hdr_size, .. } = *second;
            let from_second = ClassStats { hits, misses, content_bytes: 0 };
            let second = [
                count(hits + misses),
                percent(&from_second),
                bytes(read_bytes),
                bytes(asize),
                bytes(hdr_size),
            ];
            let second = second.into_iter().filter(|_| has_second);
            table.row([time.clone()].into_iter().chain(pool_cell).chain(reads).chain(rest).chain(second));
            if let Some(policy) = stats.policy {
                let adapted: Vec<String> =
                    stats.gauges.iter().map(|(name, value)| format!("{name} {}", bytes(*value))).collect();
                gauges += &format!("  {pool}: {policy}: {}\n", adapted.join(", "));
            }
        }
        let text = match (self.script, is_first || self.verbose) {
            (true, _) => table.text(true),
            (false, true) => table.aligned(),
            (false, false) => table.aligned_rows(),
        };
        if self.script { text } else { text + &gauges }
    }
}

fn percent(class: &ClassStats) -> String {
    match class.hits + class.misses {
        0 => "-".into(),
        reads => format!("{:.0}", class.hits as f64 * 100.0 / reads as f64),
    }
}

fn prefetch(stats: &PrefetchStats) -> Value {
    json!({
        "hits": stats.hits,
        "future": stats.future,
        "stride": stats.stride,
        "past": stats.past,
        "misses": stats.misses,
        "max_streams": stats.max_streams,
        "io_issued": stats.io_issued,
        "active_bytes": stats.active_bytes,
        "found": stats.found,
        "used": stats.used,
        "iohits": stats.iohits,
        "wasted": stats.wasted,
    })
}

fn as_json(shown: &[Sample]) -> Value {
    let class = |class: &ClassStats| {
        let ClassStats { hits, misses, content_bytes } = class;
        json!({"hits": hits, "misses": misses, "content_bytes": content_bytes})
    };
    let entry = |Sample { pool, stats, second, .. }: &Sample| {
        let second: Map<String, Value> =
            second.all().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let gauges: Map<String, Value> =
            stats.gauges.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let entry = json!({
            "data": class(&stats.data),
            "metadata": class(&stats.metadata),
            "evictions": stats.evictions,
            "evict_l2_eligible": stats.evicted_l2_eligible_bytes,
            "evict_l2_ineligible": stats.evicted_l2_ineligible_bytes,
            "prefetch": prefetch(&stats.prefetch),
            "blocks": stats.blocks,
            "bytes": stats.bytes,
            "budget_bytes": stats.budget_bytes,
            "policy": stats.policy.map(|policy| policy.name()),
            "gauges": gauges,
            "l2": second,
        });
        (pool.clone(), entry)
    };
    document("arcstat", "caches", shown.iter().map(entry).collect())
}
