//! Histograms of `zpool iostat -w` and `-r`: a table for each vdev, a line for each power of two.

use cenote_control::answers::{IoClass, SIZE_BUCKETS, TIME_BUCKETS, Traffic};
use cenote_control::text::{nice_number, time_span};

use super::sample::Line;
use crate::numbers::Numbers;

/// The first bucket shown of each histogram: a microsecond, and 512 bytes.
const FIRST_TIME: usize = 10;
const FIRST_SIZE: usize = 9;
const CELL_CHARS: usize = 5;

/// A column: its headings, and the count of a vdev's traffic in a bucket.
type Column = (&'static str, &'static str, fn(&Traffic, usize) -> u64);

/// A column that counts nothing.
const NONE: fn(&Traffic, usize) -> u64 = |_, _| 0;

/// Operations of a class by their time in the queue.
fn waited(traffic: &Traffic, class: IoClass, bucket: usize) -> u64 {
    traffic.queue(class).wait_times()[bucket]
}

const TIMES: [Column; 10] = [
    ("total_wait", "read", |traffic, bucket| traffic.read.times[bucket]),
    ("total_wait", "write", |traffic, bucket| traffic.write.times[bucket]),
    ("disk_wait", "read", |traffic, bucket| traffic.read.times[bucket]),
    ("disk_wait", "write", |traffic, bucket| traffic.write.times[bucket]),
    ("syncq_wait", "read", |traffic, bucket| waited(traffic, IoClass::SyncRead, bucket)),
    ("syncq_wait", "write", |traffic, bucket| waited(traffic, IoClass::SyncWrite, bucket)),
    ("asyncq_wait", "read", |traffic, bucket| waited(traffic, IoClass::AsyncRead, bucket)),
    ("asyncq_wait", "write", |traffic, bucket| waited(traffic, IoClass::AsyncWrite, bucket)),
    ("", "scrub", |traffic, bucket| waited(traffic, IoClass::Scrub, bucket)),
    ("", "trim", |traffic, bucket| traffic.discard.times[bucket]),
];

/// `ind`: operations sent to the device alone; `agg`: aggregated operations, by their joint size.
const SIZES: [Column; 14] = [
    ("sync_read", "ind", |traffic, bucket| traffic.queue(IoClass::SyncRead).alone[bucket]),
    ("sync_read", "agg", |traffic, bucket| traffic.queue(IoClass::SyncRead).joined[bucket]),
    ("sync_write", "ind", |traffic, bucket| traffic.queue(IoClass::SyncWrite).alone[bucket]),
    ("sync_write", "agg", |traffic, bucket| traffic.queue(IoClass::SyncWrite).joined[bucket]),
    ("async_read", "ind", |traffic, bucket| traffic.queue(IoClass::AsyncRead).alone[bucket]),
    ("async_read", "agg", |traffic, bucket| traffic.queue(IoClass::AsyncRead).joined[bucket]),
    ("async_write", "ind", |traffic, bucket| traffic.queue(IoClass::AsyncWrite).alone[bucket]),
    ("async_write", "agg", |traffic, bucket| traffic.queue(IoClass::AsyncWrite).joined[bucket]),
    ("scrub", "ind", |traffic, bucket| traffic.queue(IoClass::Scrub).alone[bucket]),
    ("scrub", "agg", |traffic, bucket| traffic.queue(IoClass::Scrub).joined[bucket]),
    ("trim", "ind", |traffic, bucket| traffic.discard.sizes[bucket]),
    ("trim", "agg", NONE),
    ("rebuild", "ind", |traffic, bucket| traffic.queue(IoClass::Rebuild).alone[bucket]),
    ("rebuild", "agg", |traffic, bucket| traffic.queue(IoClass::Rebuild).joined[bucket]),
];

/// A histogram of each vdev.
pub struct Histogram {
    /// Of latencies rather than of sizes.
    pub of_times: bool,
    /// No header, tabs between columns.
    pub script: bool,
    /// How numbers are printed.
    pub numbers: Numbers,
}

impl Histogram {
    /// The table of one vdev.
    pub fn text(&self, line: &Line) -> String {
        let Some(traffic) = &line.traffic else { return String::new() };
        let (columns, first, buckets): (&[Column], _, _) = match self.of_times {
            true => (&TIMES, FIRST_TIME, TIME_BUCKETS),
            false => (&SIZES, FIRST_SIZE, SIZE_BUCKETS),
        };
        let count = |column: &Column, bucket: usize| column.2(traffic, bucket);
        let mut out = String::new();
        if !self.script {
            out += &header(&line.name, columns, self.of_times);
        }
        for bucket in first..buckets {
            // Smaller values count with the first bucket.
            let counted = |column: &Column| match bucket == first {
                true => (0..=first).map(|bucket| count(column, bucket)).sum(),
                false => count(column, bucket),
            };
            let cells: Vec<String> =
                columns.iter().map(|column| self.numbers.count(counted(column))).collect();
            let label = self.label(1 << bucket);
            out += &match self.script {
                true => format!("{label}\t{}\n", cells.join("\t")),
                false => {
                    let cells: String = cells.iter().map(|cell| format!("  {cell:>CELL_CHARS$}")).collect();
                    format!("{label:<10}{cells}\n")
                }
            };
        }
        out + &ruler(columns.len(), self.script)
    }

    fn label(&self, upper: u64) -> String {
        match (self.numbers.exact, self.of_times) {
            (true, _) => upper.to_string(),
            (false, true) => time_span(upper),
            (false, false) => nice_number(upper),
        }
    }
}

fn header(name: &str, columns: &[Column], of_times: bool) -> String {
    let mut above = format!("{name:<10}");
    for group in columns.chunk_by(|one, next| one.0 == next.0) {
        let width = (CELL_CHARS + 2) * group.len() - 2;
        above += &format!("  {:<width$}", group[0].0);
    }
    let label = if of_times { "latency" } else { "req_size" };
    let below: String = columns.iter().map(|(_, column, _)| format!("  {column:>CELL_CHARS$}")).collect();
    format!("{}\n{label:<10}{below}\n{}", above.trim_end(), ruler(columns.len(), false))
}

fn ruler(columns: usize, script: bool) -> String {
    if script {
        return String::new();
    }
    "-".repeat(10) + &format!("  {}", "-".repeat(CELL_CHARS)).repeat(columns) + "\n"
}
