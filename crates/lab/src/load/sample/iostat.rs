//! Samples `zpool iostat`: rates, waits and queues of pools and vdevs over time, and histograms for the whole
//! measurement.
//!
//! One `zpool iostat -v -l -q` runs during the whole sampling. A vdev's subject is `POOL/mirror-0`. Queue
//! lengths are instantaneous; waits are means over the interval, without a point if idle. Histograms of
//! latencies and request sizes count since the import; their growth is recorded.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Result;
use crate::load::machine::zpool::{Histogram, Zpool};
use crate::load::samples::Kind::Gauge;
use crate::load::samples::SampledHistogram;
use crate::unit::Unit;

use super::recorder::{Head, Recorder};

/// Columns of `zpool iostat -Hpv`, after the name.
const PLAIN: [(&str, Unit); 6] = [
    ("allocated", Unit::Bytes),
    ("free", Unit::Bytes),
    ("read_ops", Unit::PerSecond),
    ("write_ops", Unit::PerSecond),
    ("read_bytes", Unit::BytesPerSecond),
    ("write_bytes", Unit::BytesPerSecond),
];
/// Columns added by `-l`, which are also those of `-w`.
const WAITS: [&str; 11] = [
    "total_wait.read",
    "total_wait.write",
    "disk_wait.read",
    "disk_wait.write",
    "syncq_wait.read",
    "syncq_wait.write",
    "asyncq_wait.read",
    "asyncq_wait.write",
    "scrub_wait",
    "trim_wait",
    "rebuild_wait",
];
/// Queues for which `-q` adds the columns `pending` and `active`; `-r` has `individual` and `aggregated`.
const QUEUES: [&str; 7] =
    ["sync_read", "sync_write", "async_read", "async_write", "scrub", "trim", "rebuild"];

/// Columns after the name in a line of `zpool iostat -Hpvlq`.
fn columns() -> impl Iterator<Item = (String, Unit)> {
    let queues = QUEUES.iter().flat_map(|q| [format!("{q}.pending"), format!("{q}.active")]);
    let plain = PLAIN.iter().map(|(name, unit)| ((*name).to_owned(), *unit));
    let waits = WAITS.iter().map(|name| ((*name).to_owned(), Unit::Nanoseconds));
    plain.chain(waits).chain(queues.map(|name| (name, Unit::Count)))
}

/// Latest line of `zpool iostat` for each pool and vdev.
#[derive(Debug, Default)]
pub struct Lines {
    pools: Vec<String>,
    pool: String,
    last: HashMap<String, Vec<Option<f64>>>,
}

impl Lines {
    pub fn of(pools: &[String]) -> Lines {
        Lines { pools: pools.to_vec(), ..Lines::default() }
    }

    /// Takes a line of a pool, or of a vdev of the preceding pool. Empty lines separate classes of vdevs.
    pub fn take(&mut self, line: &str) {
        let mut cells = line.split('\t');
        let Some(name) = cells.next().map(str::trim).filter(|name| !name.is_empty()) else { return };
        if self.pools.iter().any(|pool| pool == name) {
            name.clone_into(&mut self.pool);
        }
        let subject = if name == self.pool { self.pool.clone() } else { format!("{}/{name}", self.pool) };
        self.last.insert(subject, cells.map(|cell| cell.trim().parse().ok()).collect());
    }

    /// Records lines that arrived since the last call.
    pub fn note(&mut self, recorder: &mut Recorder) {
        for (subject, values) in self.last.drain() {
            let head = Head { source: "iostat", subject: &subject, kind: Gauge };
            // The program prints the space of leaves as 0 and 0.
            let skipped = if values.get(..2) == Some(&[Some(0.0); 2][..]) { 2 } else { 0 };
            for ((name, unit), value) in columns().zip(values).skip(skipped) {
                if let Some(value) = value {
                    recorder.note(head, &name, unit, value);
                }
            }
        }
    }
}

#[derive(Debug)]
pub struct Follower {
    child: Child,
    lines: Arc<Mutex<Lines>>,
    reader: Option<JoinHandle<()>>,
}

impl Follower {
    pub fn start(zpool: &Zpool, pools: &[String], interval: Duration) -> Result<Follower> {
        let mut child = zpool.follow_iostat(pools, interval)?;
        let lines = Arc::new(Mutex::new(Lines::of(pools)));
        let reader = child.stdout.take().map(|stdout| {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                    lines.lock().unwrap_or_else(PoisonError::into_inner).take(&line);
                }
            })
        });
        Ok(Follower { child, lines, reader })
    }

    /// Records its output since the last call; once it has ended, records the reason.
    pub fn note(&mut self, recorder: &mut Recorder) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).note(recorder);
        if let Ok(Some(_)) = self.child.try_wait() {
            let mut said = String::new();
            if let Some(mut stderr) = self.child.stderr.take() {
                let _ = stderr.read_to_string(&mut said);
            }
            recorder.missing("iostat", format!("zpool iostat ended: {}", said.trim()));
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Histograms of a pool and its vdevs since the import: latencies (source `iostat_latency`) and request sizes
/// (`iostat_size`).
pub fn histograms(zpool: &Zpool, pool: &str) -> Result<Vec<SampledHistogram>> {
    let waits = WAITS.map(str::to_owned);
    let sizes: Vec<String> =
        QUEUES.iter().flat_map(|q| [format!("{q}.individual"), format!("{q}.aggregated")]).collect();
    // Both have power-of-two buckets; `-w` labels them by their last value, `-r` by their first.
    let by_last = |last: f64| ((last / 2.0).ceil(), last);
    let by_first = |first: f64| (first, first * 2.0 - 1.0);
    let latency = zpool.iostat_histogram(pool, Histogram::Latency)?;
    let size = zpool.iostat_histogram(pool, Histogram::Size)?;
    let mut all = parse(&latency, pool, "iostat_latency", Unit::Nanoseconds, &waits, by_last);
    all.extend(parse(&size, pool, "iostat_size", Unit::Bytes, &sizes, by_first));
    Ok(all)
}

/// The tables are consecutive: a line with a name, then lines with a bucket's label and its counts.
fn parse(
    text: &str,
    pool: &str,
    source: &str,
    unit: Unit,
    columns: &[String],
    bounds: impl Fn(f64) -> (f64, f64),
) -> Vec<SampledHistogram> {
    let mut all: Vec<SampledHistogram> = Vec::new();
    for line in text.lines() {
        let mut cells = line.split('\t').map(str::trim);
        let Some(first) = cells.next().filter(|first| !first.is_empty()) else { continue };
        let counts: Vec<u64> = cells.filter_map(|cell| cell.parse().ok()).collect();
        if counts.is_empty() {
            let subject = if first == pool { pool.to_owned() } else { format!("{pool}/{first}") };
            all.extend(columns.iter().map(|name| SampledHistogram {
                source: source.to_owned(),
                subject: subject.clone(),
                name: name.clone(),
                unit,
                buckets: Vec::new(),
            }));
        } else if let (Ok(bound), Some(start)) = (first.parse(), all.len().checked_sub(columns.len())) {
            let (lower, upper) = bounds(bound);
            for (histogram, count) in all[start..].iter_mut().zip(counts) {
                histogram.buckets.push((lower, upper, count));
            }
        }
    }
    all
}

/// Growth of each histogram from `before` to `after`; only buckets and histograms that grew.
pub fn growth(before: &[SampledHistogram], after: Vec<SampledHistogram>) -> Vec<SampledHistogram> {
    let key = |h: &SampledHistogram| (h.source.clone(), h.subject.clone(), h.name.clone());
    let old: HashMap<_, &SampledHistogram> = before.iter().map(|h| (key(h), h)).collect();
    let grown = after.into_iter().map(|mut histogram| {
        if let Some(old) = old.get(&key(&histogram)) {
            for bucket in &mut histogram.buckets {
                let had = old.buckets.iter().find(|b| b.0 == bucket.0).map_or(0, |b| b.2);
                bucket.2 = bucket.2.saturating_sub(had);
            }
        }
        histogram.buckets.retain(|bucket| bucket.2 > 0);
        histogram
    });
    grown.filter(|histogram| !histogram.buckets.is_empty()).collect()
}
