//! `zpool iostat`: traffic of the devices in the daemon's pools.
//!
//! The first report covers the time since the pool was opened, each later one its interval. A vdev with
//! children shows their sum.
//!
//! Source: OpenZFS `zpool_main.c` (`print_iostat`, `print_iostat_header_impl`), zpool-iostat(8).

mod histogram;
pub(crate) mod sample;

use std::fmt::Write as _;

use cenote_control::answers::{Counts, IoClass, Traffic};
use cenote_control::text::time_span;
use cenote_control::zpool::shown::iostat::Counted;
use serde_json::{Map, Value, json};

use super::scripts::Scripts;
use super::tree::{Names, Style};
use crate::json::document;
use crate::numbers::Numbers;
use histogram::Histogram;
use sample::{Line, Sample};

/// Content and form of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    /// How devices are named.
    pub names: Names,
    /// Each device.
    pub verbose: bool,
    /// Average latencies.
    pub long: bool,
    /// Operations waiting and in progress.
    pub queues: bool,
    /// Histograms of latencies.
    pub latencies: bool,
    /// Histograms of request sizes.
    pub sizes: bool,
    /// No header, tabs between columns.
    pub script: bool,
    /// Exact numbers.
    pub parsable: bool,
    /// The header once, not for each report.
    pub one_header: bool,
    /// Columns of scripts.
    pub scripts: Option<&'a Scripts>,
}

/// The counters of pools at some moment, or their change between two.
#[derive(Default)]
pub struct Report(Vec<Sample>);

impl Report {
    /// Whether there are no pools.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The change since an earlier report; everything, for a pool not open then or opened again.
    pub fn since(&self, before: &Report) -> Report {
        Report(self.0.iter().map(|now| now.since_last(&before.0)).collect())
    }
}

/// Columns under one heading.
type Group = (&'static str, &'static [&'static str]);

const GENERAL: [Group; 3] =
    [("capacity", &["alloc", "free"]), ("operations", &["read", "write"]), ("bandwidth", &["read", "write"])];
const LATENCY: [Group; 6] = [
    ("total_wait", &["read", "write"]),
    ("disk_wait", &["read", "write"]),
    ("syncq_wait", &["read", "write"]),
    ("asyncq_wait", &["read", "write"]),
    ("scrub", &["wait"]),
    ("trim", &["wait"]),
];
const QUEUES: [Group; 6] = [
    ("syncq_read", &["pend", "activ"]),
    ("syncq_write", &["pend", "activ"]),
    ("asyncq_read", &["pend", "activ"]),
    ("asyncq_write", &["pend", "activ"]),
    ("scrubq_read", &["pend", "activ"]),
    ("trimq_write", &["pend", "activ"]),
];
/// The classes behind the columns of [`QUEUES`] and behind the last six of [`LATENCY`].
const QUEUED: [IoClass; 6] = [
    IoClass::SyncRead,
    IoClass::SyncWrite,
    IoClass::AsyncRead,
    IoClass::AsyncWrite,
    IoClass::Scrub,
    IoClass::Trim,
];
const READS: [IoClass; 3] = [IoClass::SyncRead, IoClass::AsyncRead, IoClass::Scrub];
const WRITES: [IoClass; 2] = [IoClass::SyncWrite, IoClass::AsyncWrite];
const CELL_CHARS: usize = 5;
const LEAST_NAME_CHARS: usize = 10;

impl Layout<'_> {
    /// The report of these counters, since each pool was opened.
    pub fn report(&self, counted: &[Counted]) -> Report {
        let style = Style { names: self.names, ..Style::default() };
        Report(counted.iter().map(|pool| Sample::of(pool, style)).collect())
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups = GENERAL.to_vec();
        groups.extend(self.long.then_some(LATENCY).into_iter().flatten());
        groups.extend(self.queues.then_some(QUEUES).into_iter().flatten());
        groups
    }

    /// As text. `is_first`: no report was printed before.
    pub fn text(&self, Report(samples): &Report, is_first: bool) -> String {
        let lines =
            |sample: &Sample| if self.verbose { sample.lines.clone() } else { vec![sample.lines[0].clone()] };
        if self.latencies || self.sizes {
            let all = samples.iter().flat_map(lines);
            let histogram =
                Histogram { of_times: self.latencies, script: self.script, numbers: self.numbers() };
            return all.map(|line| histogram.text(&line)).collect();
        }
        let all: Vec<Line> = samples.iter().flat_map(lines).collect();
        let width =
            all.iter().map(|line| line.shown().chars().count()).max().unwrap_or(0).max(LEAST_NAME_CHARS);
        let mut out = String::new();
        if !self.script && (is_first || !self.one_header && (self.verbose || samples.len() > 1)) {
            out += &self.header(width);
        }
        for sample in samples {
            for line in lines(sample) {
                out += &self.row(sample, &line, width);
            }
            if self.verbose && !self.script {
                out += &self.ruler(width);
            }
        }
        if !self.verbose && samples.len() > 1 && !self.script {
            out += &self.ruler(width);
        }
        out
    }

    fn header(&self, width: usize) -> String {
        let mut out = " ".repeat(width);
        for (heading, columns) in self.groups() {
            let room = (CELL_CHARS + 2) * columns.len();
            let before = (room / 2 + 1).saturating_sub(heading.len() / 2);
            let _ = write!(
                out,
                "{:before$}{heading}{:after$}",
                "",
                "",
                after = room.saturating_sub(before + heading.len())
            );
        }
        let _ = write!(out, "\n{:<width$}", "pool");
        for column in self.groups().iter().flat_map(|(_, columns)| columns.iter()) {
            let _ = write!(out, "  {column:>CELL_CHARS$}");
        }
        let more = self.scripts.map_or_else(String::new, Scripts::heading);
        out + &more + "\n" + &self.ruler(width)
    }

    fn ruler(&self, width: usize) -> String {
        let columns = self.groups().iter().map(|(_, columns)| columns.len()).sum();
        let more = self.scripts.map_or_else(String::new, Scripts::dashes);
        "-".repeat(width) + &format!("  {}", "-".repeat(CELL_CHARS)).repeat(columns) + &more + "\n"
    }

    fn row(&self, sample: &Sample, line: &Line, width: usize) -> String {
        let cells = self.cells(sample, line);
        let more = self.scripts.zip(line.device).map_or_else(String::new, |(all, device)| all.cells(device));
        match self.script {
            true => format!("{}\t{}{more}\n", line.name, cells.join("\t")),
            false => {
                let cells: String = cells.iter().map(|cell| format!("  {cell:>CELL_CHARS$}")).collect();
                format!("{:<width$}{cells}{more}\n", line.shown())
            }
        }
    }

    fn cells(&self, sample: &Sample, line: &Line) -> Vec<String> {
        let number = |number: u64| self.numbers().count(number);
        let Some(traffic @ Traffic { read, write, .. }) = &line.traffic else {
            let columns = self.groups().iter().map(|(_, columns)| columns.len()).sum();
            return vec!["-".into(); columns];
        };
        let rate = |count: u64| number(sample.per_second(count));
        let space = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), number);
        let mut cells = vec![
            space(line.space.map(|(allocated, _)| allocated)),
            space(line.space.map(|(_, free)| free)),
            rate(read.operations),
            rate(write.operations),
            rate(read.bytes),
            rate(write.bytes),
        ];
        if self.long {
            let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| self.time(ns));
            let total = |disk: &Counts, classes: &[IoClass]| {
                disk.average_ns().map(|disk| disk + traffic.queued_ns(classes).unwrap_or(0))
            };
            cells.extend([
                time(total(read, &READS)),
                time(total(write, &WRITES)),
                time(read.average_ns()),
                time(write.average_ns()),
            ]);
            cells.extend(QUEUED.map(|class| time(traffic.queued_ns(&[class]))));
        }
        if self.queues {
            let load = |class| {
                let load = traffic.queue(class);
                [number(load.waiting), number(load.active)]
            };
            cells.extend(QUEUED.into_iter().flat_map(load));
        }
        cells
    }

    fn time(&self, ns: u64) -> String {
        if self.parsable { ns.to_string() } else { time_span(ns) }
    }

    fn numbers(&self) -> Numbers {
        Numbers { exact: self.parsable, as_numbers: false }
    }

    /// As JSON.
    pub fn json(&self, Report(samples): &Report) -> Value {
        let mut pools = Map::new();
        for sample in samples {
            let line = |line: &Line| {
                let traffic = line.traffic.clone().unwrap_or_default();
                let of = |counts: &Counts| {
                    json!({
                        "operations_per_second": sample.per_second(counts.operations),
                        "bytes_per_second": sample.per_second(counts.bytes),
                        "average_wait_ns": counts.average_ns(),
                        "active": counts.active,
                    })
                };
                let mut entry =
                    json!({"name": line.name, "read": of(&traffic.read), "write": of(&traffic.write)});
                if let Some((allocated, free)) = line.space {
                    (entry["allocated"], entry["free"]) = (allocated.into(), free.into());
                }
                let classes = IoClass::ALL.into_iter().zip(&traffic.queues);
                let classes = classes.map(|(class, load)| {
                    let wait = load.average_wait_ns();
                    let mut entry =
                        json!({"pending": load.waiting, "active": load.active, "average_wait_ns": wait});
                    if self.sizes {
                        (entry["ind"], entry["agg"]) =
                            (json!(load.alone.to_vec()), json!(load.joined.to_vec()));
                    }
                    (class.name().to_owned(), entry)
                });
                entry["queues"] = Value::Object(classes.collect());
                if self.latencies {
                    entry["read"]["waits"] = json!(traffic.read.times.to_vec());
                    entry["write"]["waits"] = json!(traffic.write.times.to_vec());
                }
                if self.sizes {
                    entry["read"]["sizes"] = json!(traffic.read.sizes.to_vec());
                    entry["write"]["sizes"] = json!(traffic.write.sizes.to_vec());
                }
                if let (Some(scripts), Some(device), Value::Object(entry)) =
                    (self.scripts, line.device, &mut entry)
                {
                    scripts.add_to(entry, device);
                }
                entry
            };
            let mut pool = line(&sample.lines[0]);
            if self.verbose {
                pool["vdevs"] = sample.lines[1..].iter().map(line).collect();
            }
            pools.insert(sample.lines[0].name.clone(), pool);
        }
        document("zpool iostat", "pools", pools)
    }
}
