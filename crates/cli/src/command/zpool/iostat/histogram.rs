//! Histograms of `zpool iostat -w` and `-r`: a table a vdev, a line a power of two.

use cenote_device::{Counts, SIZE_BUCKETS, TIME_BUCKETS};

use super::{Iostat, Line, Traffic};
use crate::render::{nice_number, time_span};

/// The first bucket of each that is shown: a microsecond, and 512 bytes.
const FIRST_TIME: usize = 10;
const FIRST_SIZE: usize = 9;
const CELL_CHARS: usize = 5;

/// A column: its heading and where its numbers come from; `None`: nothing is ever counted there.
type Column = (&'static str, &'static str, Option<fn(&Traffic) -> &Counts>);

const READ: Option<fn(&Traffic) -> &Counts> = Some(|traffic| &traffic.read);
const WRITE: Option<fn(&Traffic) -> &Counts> = Some(|traffic| &traffic.write);
const DISCARD: Option<fn(&Traffic) -> &Counts> = Some(|traffic| &traffic.discard);

const TIMES: [Column; 10] = [
    ("total_wait", "read", READ),
    ("total_wait", "write", WRITE),
    ("disk_wait", "read", READ),
    ("disk_wait", "write", WRITE),
    ("syncq_wait", "read", None),
    ("syncq_wait", "write", None),
    ("asyncq_wait", "read", None),
    ("asyncq_wait", "write", None),
    ("", "scrub", None),
    ("", "trim", DISCARD),
];

/// `ind`: single operations; `agg`: those that were joined, which are counted as what they became.
const SIZES: [Column; 12] = [
    ("sync_read", "ind", READ),
    ("sync_read", "agg", None),
    ("sync_write", "ind", WRITE),
    ("sync_write", "agg", None),
    ("async_read", "ind", None),
    ("async_read", "agg", None),
    ("async_write", "ind", None),
    ("async_write", "agg", None),
    ("scrub", "ind", None),
    ("scrub", "agg", None),
    ("trim", "ind", DISCARD),
    ("trim", "agg", None),
];

/// The table of one vdev.
pub fn text(options: &Iostat, line: &Line) -> String {
    let Some(traffic) = &line.traffic else { return String::new() };
    let (columns, first, buckets): (&[Column], _, _) = match options.latencies {
        true => (&TIMES, FIRST_TIME, TIME_BUCKETS),
        false => (&SIZES, FIRST_SIZE, SIZE_BUCKETS),
    };
    let count = |column: &Column, bucket: usize| {
        let counts = column.2.map(|of| of(traffic));
        counts.map_or(0, |counts| if options.latencies { counts.times[bucket] } else { counts.sizes[bucket] })
    };
    let mut out = String::new();
    if !options.script {
        out += &header(&line.name, columns, options.latencies);
    }
    for bucket in first..buckets {
        // What is smaller counts with the first.
        let counted = |column: &Column| match bucket == first {
            true => (0..=first).map(|bucket| count(column, bucket)).sum(),
            false => count(column, bucket),
        };
        let number = |number: u64| if options.parsable { number.to_string() } else { nice_number(number) };
        let cells: Vec<String> = columns.iter().map(|column| number(counted(column))).collect();
        let upper = 1u64 << bucket;
        let label = match (options.parsable, options.latencies) {
            (true, _) => upper.to_string(),
            (false, true) => time_span(upper),
            (false, false) => nice_number(upper),
        };
        out += &match options.script {
            true => format!("{label}\t{}\n", cells.join("\t")),
            false => {
                let cells: String = cells.iter().map(|cell| format!("  {cell:>CELL_CHARS$}")).collect();
                format!("{label:<10}{cells}\n")
            }
        };
    }
    out + &ruler(columns.len(), options.script)
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
