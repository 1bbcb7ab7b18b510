//! `zpool_*`: pools and vdevs under the names of OpenZFS's `zpool_influxdb`, for Prometheus and in the Influx
//! line protocol, as that program prints them.
//!
//! ```text
//!   zpool_stats        space, operations, bytes, errors of each vdev     zpool_latency   duration histograms
//!   zpool_scan_stats   the last scrub or resilver                        zpool_io_size   size histograms
//!   zpool_vdev_stats, zpool_vdev_queue   pending and active operations by class
//! ```
//!
//! Labels: `name` is the pool; `vdev` is the path in the tree (`root/mirror-0/file-1`); a leaf also has its
//! `path`. For Prometheus each field is a metric, such as `zpool_stats_alloc`. Latencies of classes are times
//! in the queue; those of `disk` and `total` are the device's.
//!
//! Source: OpenZFS `zpool_influxdb.c`.

use std::fmt::Write as _;

use cenote_dataset::usage::{PoolUsage, VdevUsage};
use cenote_format::scan::{ScanFunc, ScanPhys, ScanState};
use cenote_format::units::VdevId;
use cenote_host::pools::{OpenPool, Pools};
use cenote_host::traffic::{Loads, Traffic, loads};
use cenote_pool::{IoClass, VdevStatus};

use super::families::{Families, Histogram, Kind};

/// `MIN_LAT_INDEX`: about a microsecond.
const FIRST_TIME: usize = 10;
/// `MIN_SIZE_INDEX`.
const FIRST_SIZE: usize = 9;

const HELP: &str = "As zpool_influxdb names it.";
const TIME_HELP: &str = "How long operations took, in seconds.";
const SIZE_HELP: &str =
    "How large operations were, in bytes; the sum counts each as its bucket's lower bound.";

/// A line of a measurement.
pub struct Point {
    measurement: &'static str,
    labels: Vec<(&'static str, String)>,
    fields: Vec<(&'static str, f64)>,
}

/// A histogram field with power-of-two buckets.
struct Counted {
    name: &'static str,
    counts: Vec<u64>,
    sum: f64,
}

/// A measurement with one line per bucket.
pub struct Distribution {
    measurement: &'static str,
    labels: Vec<(&'static str, String)>,
    /// Buckets of nanoseconds; else of bytes.
    is_of_times: bool,
    fields: Vec<Counted>,
}

/// All measurements of all pools.
#[derive(Default)]
pub struct Figures {
    points: Vec<Point>,
    distributions: Vec<Distribution>,
}

impl Figures {
    /// Current measurements.
    pub async fn of(pools: &Pools) -> Figures {
        let mut figures = Figures::default();
        for pool in pools.all() {
            // Skips pools that cannot be read now.
            if let Ok(mos) = pool.engine.mos().await
                && let Ok(usage) = mos.usage().await
            {
                let loads = loads(&pool);
                if let Ok(Some(scan)) = mos.scan_status().await {
                    figures.points.push(scanned(&pool, &scan));
                }
                figures.vdev(&pool, &loads, &usage, &mos.pool().status().root, None);
            }
        }
        figures
    }

    /// Adds a vdev and its children.
    fn vdev(
        &mut self,
        pool: &OpenPool,
        loads: &Loads,
        usage: &[VdevUsage],
        vdev: &VdevStatus,
        parent: Option<&str>,
    ) {
        let kind = vdev.kind.name();
        let place = parent.map_or_else(|| kind.into(), |parent| format!("{parent}/{kind}-{}", vdev.id));
        let mut labels = vec![("name", pool.name.clone())];
        labels.extend(vdev.path.clone().filter(|_| vdev.children.is_empty()).map(|path| ("path", path)));
        labels.push(("vdev", place.clone()));
        let traffic = Traffic::of(pool, loads, vdev);
        self.points.push(stats(vdev, usage, parent, &labels, &traffic));
        let queues = queues(&traffic);
        if parent.is_none() {
            let fields = queues.iter().map(|(_, name, count)| (*name, *count)).collect();
            self.points.push(Point { measurement: "zpool_vdev_stats", labels: labels.clone(), fields });
        }
        let fields = queues.iter().map(|(name, _, count)| (*name, *count)).collect();
        self.points.push(Point { measurement: "zpool_vdev_queue", labels: labels.clone(), fields });
        let (measurement, fields) = ("zpool_latency", latencies(&traffic));
        self.distributions.push(Distribution {
            measurement,
            labels: labels.clone(),
            is_of_times: true,
            fields,
        });
        let (measurement, fields) = ("zpool_io_size", sizes(&traffic));
        self.distributions.push(Distribution { measurement, labels, is_of_times: false, fields });
        for child in &vdev.children {
            self.vdev(pool, loads, usage, child, Some(&place));
        }
    }

    /// Adds the measurements to the Prometheus families.
    pub fn add(&self, families: &mut Families) {
        for Point { measurement, labels, fields } in &self.points {
            let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
            for (field, value) in fields {
                families.add(&format!("{measurement}_{field}"), (Kind::Untyped, HELP), &labels, *value);
            }
        }
        for Distribution { measurement, labels, is_of_times, fields } in &self.distributions {
            let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
            for Counted { name, counts, sum } in fields.iter().filter(|field| field.sum > 0.0) {
                let histogram = match is_of_times {
                    true => Histogram::of_times(counts, *sum),
                    false => Histogram {
                        counts,
                        shown: (FIRST_SIZE, counts.len() - 2),
                        unit: 1.0,
                        unit_log2: 0,
                        sum: *sum,
                    },
                };
                let help = if *is_of_times { TIME_HELP } else { SIZE_HELP };
                families.add_histogram(&format!("{measurement}_{name}"), help, &labels, &histogram);
            }
        }
    }

    /// Formats all as Influx lines. `now_ns`: nanoseconds since 1970.
    pub fn lines(&self, now_ns: u64) -> String {
        let mut out = String::new();
        for Point { measurement, labels, fields } in &self.points {
            head(&mut out, measurement, labels, None);
            let field = |(name, value): &(&str, f64)| match *name {
                "pct_done" => format!("{name}={value:.2}"),
                _ => format!("{name}={value}u"),
            };
            end(&mut out, fields.iter().map(field), now_ns);
        }
        for Distribution { measurement, labels, is_of_times, fields } in &self.distributions {
            let first = if *is_of_times { FIRST_TIME } else { FIRST_SIZE };
            let last = fields.first().map_or(0, |field| field.counts.len()) - 1;
            for bucket in first..=last {
                let bound = match is_of_times {
                    _ if bucket == last => "+Inf".into(),
                    true => format!("{:.6}", (1u64 << bucket) as f64 * 1e-9),
                    false => (1u64 << bucket).to_string(),
                };
                head(&mut out, measurement, labels, Some(&bound));
                let count = |field: &Counted| match bucket == first {
                    // Smaller values count in the first bucket.
                    true => field.counts[..=first].iter().sum(),
                    false => field.counts[bucket],
                };
                end(&mut out, fields.iter().map(|field| format!("{}={}u", field.name, count(field))), now_ns);
            }
        }
        out
    }
}

fn head(out: &mut String, measurement: &str, labels: &[(&str, String)], bound: Option<&str>) {
    *out += measurement;
    if let Some(bound) = bound {
        // Writing to a string cannot fail.
        let _ = write!(out, ",le={bound}");
    }
    for (name, value) in labels {
        let _ = write!(out, ",{name}=");
        for char in value.chars() {
            if matches!(char, ' ' | ',' | '=' | '\\') {
                out.push('\\');
            }
            out.push(char);
        }
    }
    out.push(' ');
}

fn end(out: &mut String, fields: impl Iterator<Item = String>, now_ns: u64) {
    *out += &fields.collect::<Vec<_>>().join(",");
    let _ = writeln!(out, " {now_ns}");
}

fn stats(
    vdev: &VdevStatus,
    usage: &[VdevUsage],
    parent: Option<&str>,
    labels: &[(&'static str, String)],
    traffic: &Traffic,
) -> Point {
    let own = match parent {
        None => {
            let sum = PoolUsage::sum(usage);
            Some((sum.allocated_bytes, sum.size_bytes, sum.fragmentation_percent))
        }
        Some("root") => usage
            .iter()
            .find(|usage| usage.vdev == VdevId(vdev.id))
            .map(|usage| (usage.allocated_bytes, usage.size_bytes, usage.fragmentation_percent)),
        Some(_) => None,
    };
    let (alloc, size, fragmentation) = own.unwrap_or_default();
    let mut labels = labels.to_vec();
    labels.insert(1, ("state", vdev.state.to_string()));
    let fields = [
        ("alloc", alloc),
        ("free", size.saturating_sub(alloc)),
        ("size", size),
        ("read_bytes", traffic.read.bytes),
        ("read_errors", vdev.errors.read),
        ("read_ops", traffic.read.operations),
        ("write_bytes", traffic.write.bytes),
        ("write_errors", vdev.errors.write),
        ("write_ops", traffic.write.operations),
        ("checksum_errors", vdev.errors.checksum),
        // zpool_influxdb prints `UINT64_MAX` here.
        ("fragmentation", fragmentation.unwrap_or(0)),
    ];
    let fields = fields.map(|(name, count)| (name, count as f64)).to_vec();
    Point { measurement: "zpool_stats", labels, fields }
}

fn scanned(pool: &OpenPool, scan: &ScanPhys) -> Point {
    let function = match ScanFunc::from(scan.func) {
        ScanFunc::Scrub => "scrub",
        ScanFunc::Resilver => "resilver",
        ScanFunc::None => "none_requested",
        _ => "scan",
    };
    let state = match ScanState::from(scan.state) {
        ScanState::Scanning => "scanning",
        ScanState::Finished => "finished",
        ScanState::Canceled => "canceled",
        _ => "none",
    };
    let done = scan.examined_bytes as f64 * 100.0 / scan.to_examine_bytes.max(1) as f64;
    let labels =
        vec![("function", function.to_owned()), ("name", pool.name.clone()), ("state", state.to_owned())];
    let fields = vec![
        ("end_ts", scan.end_time_s as f64),
        ("errors", scan.errors as f64),
        ("examined", scan.examined_bytes as f64),
        ("skipped", scan.skipped_bytes as f64),
        ("issued", scan.examined_bytes as f64),
        ("pct_done", done.min(100.0)),
        ("processed", scan.processed_bytes as f64),
        ("start_ts", scan.start_time_s as f64),
        ("to_examine", scan.to_examine_bytes as f64),
    ];
    Point { measurement: "zpool_scan_stats", labels, fields }
}

/// Field names in `zpool_vdev_queue` and `zpool_vdev_stats`, and counts.
fn queues(traffic: &Traffic) -> Vec<(&'static str, &'static str, f64)> {
    const NAMES: [(IoClass, [&str; 2], [&str; 2]); 6] = [
        (IoClass::SyncRead, ["sync_r_active", "sync_r_pend"], ["sync_r_active_queue", "sync_r_pend_queue"]),
        (IoClass::SyncWrite, ["sync_w_active", "sync_w_pend"], ["sync_w_active_queue", "sync_w_pend_queue"]),
        (
            IoClass::AsyncRead,
            ["async_r_active", "async_r_pend"],
            ["async_r_active_queue", "async_r_pend_queue"],
        ),
        (
            IoClass::AsyncWrite,
            ["async_w_active", "async_w_pend"],
            ["async_w_active_queue", "async_w_pend_queue"],
        ),
        (
            IoClass::Scrub,
            ["async_scrub_active", "async_scrub_pend"],
            ["async_scrub_active_queue", "async_scrub_pend_queue"],
        ),
        (
            IoClass::Rebuild,
            ["rebuild_active", "rebuild_pend"],
            ["rebuild_active_queue", "rebuild_pend_queue"],
        ),
    ];
    let active = NAMES.map(|(class, short, long)| (short[0], long[0], traffic.queue(class).active as f64));
    let pending = NAMES.map(|(class, short, long)| (short[1], long[1], traffic.queue(class).waiting as f64));
    active.into_iter().chain(pending).collect()
}

fn latencies(traffic: &Traffic) -> Vec<Counted> {
    let Traffic { read, write, discard, .. } = traffic;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let device = [
        ("total_read", read),
        ("total_write", write),
        ("disk_read", read),
        ("disk_write", write),
        ("trim", discard),
    ];
    let of_device = device.map(|(name, counts)| Counted {
        name,
        counts: counts.times.to_vec(),
        sum: seconds(counts.busy_ns),
    });
    let classes = [
        ("sync_read", IoClass::SyncRead),
        ("sync_write", IoClass::SyncWrite),
        ("async_read", IoClass::AsyncRead),
        ("async_write", IoClass::AsyncWrite),
        ("scrub", IoClass::Scrub),
        ("rebuild", IoClass::Rebuild),
    ];
    let of_class = classes.map(|(name, class)| {
        let load = traffic.queue(class);
        Counted { name, counts: load.wait_times().to_vec(), sum: seconds(load.waited_ns) }
    });
    of_device.into_iter().chain(of_class).collect()
}

fn sizes(traffic: &Traffic) -> Vec<Counted> {
    const NAMES: [(IoClass, &str, &str); 6] = [
        (IoClass::SyncRead, "sync_read_ind", "sync_read_agg"),
        (IoClass::SyncWrite, "sync_write_ind", "sync_write_agg"),
        (IoClass::AsyncRead, "async_read_ind", "async_read_agg"),
        (IoClass::AsyncWrite, "async_write_ind", "async_write_agg"),
        (IoClass::Scrub, "scrub_read_ind", "scrub_read_agg"),
        (IoClass::Rebuild, "rebuild_write_ind", "rebuild_write_agg"),
    ];
    let counted = |name, counts: &[u64]| {
        let sum = counts.iter().enumerate().map(|(size, count)| (*count << size) as f64).sum();
        Counted { name, counts: counts.to_vec(), sum }
    };
    let of_class = NAMES.iter().flat_map(|(class, alone, joined)| {
        let load = traffic.queue(*class);
        [counted(*alone, &load.alone), counted(*joined, &load.joined)]
    });
    let trim = counted("trim_write_ind", &traffic.discard.sizes);
    of_class.chain([trim]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_influx_protocol() {
        let labels = vec![("name", "tank".to_owned()), ("path", "/a b,c=d".to_owned())];
        let points = vec![Point {
            measurement: "zpool_stats",
            labels: labels.clone(),
            fields: vec![("alloc", 7.0), ("pct_done", 12.345)],
        }];
        let counts = [vec![0; FIRST_SIZE - 1], vec![2, 3, 0, 1]].concat();
        let fields = vec![Counted { name: "trim_write_ind", counts, sum: 1.0 }];
        let distributions =
            vec![Distribution { measurement: "zpool_io_size", labels, is_of_times: false, fields }];
        let lines = Figures { points, distributions }.lines(5);
        let tags = "name=tank,path=/a\\ b\\,c\\=d";
        let wanted = format!(
            "zpool_stats,{tags} alloc=7u,pct_done=12.35 5\nzpool_io_size,le=512,{tags} trim_write_ind=5u 5\n\
             zpool_io_size,le=1024,{tags} trim_write_ind=0u 5\n\
             zpool_io_size,le=+Inf,{tags} trim_write_ind=1u 5\n"
        );
        assert_eq!(lines, wanted);
    }
}
