//! `trace`: recorded loads, and cache policies on them.

use std::time::Duration;

use cenote_control::text::{duration, nice_bytes};
use cenote_study::trace::{Drawn, Point, Replayed, Shown, ShownPart};

use crate::numbers::percent;
use crate::table::{Align, Table};

/// A trace: totals, then requests by part of the pool.
pub fn show(shown: &Shown) -> String {
    summary(shown) + &by_part(shown)
}

/// A row for each policy, a column for each size.
pub fn ratios(replayed: &[Replayed], sizes: usize, with_l2: bool) -> String {
    let head = replayed.iter().take(sizes).map(|cell| (nice_bytes(cell.cache_bytes), Align::Right));
    let title = if with_l2 { "HIT RATIO WITH L2" } else { "HIT RATIO" };
    let mut table = Table::new([(title.to_owned(), Align::Left)].into_iter().chain(head));
    for row in replayed.chunks(sizes) {
        let cells = row.iter().map(|cell| percent(cell.hit_ratio_with_l2.unwrap_or(cell.hit_ratio)));
        table.row([row[0].policy.to_owned()].into_iter().chain(cells));
    }
    table.aligned()
}

/// A bar for each cache size.
pub fn bars(drawn: &Drawn) -> String {
    let mut table = Table::new([("CACHE", Align::Right), ("HIT RATIO", Align::Right), ("", Align::Left)]);
    for Point { cache_bytes, hit_ratio } in &drawn.points {
        let bar = "#".repeat((hit_ratio * 50.0).round() as usize);
        table.row([nice_bytes(*cache_bytes), percent(*hit_ratio), bar]);
    }
    table.aligned()
}

fn summary(shown: &Shown) -> String {
    let mut table = Table::new([("", Align::Left), ("", Align::Right)]);
    table.row(["requests".to_owned(), shown.requests.to_string()]);
    table.row(["writes".to_owned(), shown.writes.to_string()]);
    table.row(["blocks".to_owned(), shown.blocks.to_string()]);
    table.row(["requests per block".to_owned(), format!("{:.1}", shown.requests_per_block)]);
    table.row(["requested".to_owned(), nice_bytes(shown.bytes)]);
    table.row(["footprint".to_owned(), nice_bytes(shown.footprint_bytes)]);
    let reads = ("device reads", shown.device_reads, shown.device_read_bytes);
    let writes = ("device writes", shown.device_writes, shown.device_write_bytes);
    for (op, operations, bytes) in [reads, writes].into_iter().filter(|(_, operations, _)| *operations > 0) {
        table.row([op.to_owned(), format!("{operations} of {}", nice_bytes(bytes))]);
    }
    table.row(["duration".to_owned(), duration(Duration::from_nanos(shown.duration_ns))]);
    table.aligned_rows()
}

/// The requests by part of the pool, and the share that a special vdev would take.
fn by_part(shown: &Shown) -> String {
    let Some([metadata, all]) = shown.special else { return String::new() };
    let columns = [("DATASET", Align::Left), ("CLASS", Align::Left), ("REQUESTS", Align::Right)];
    let missed = [("MISSED", Align::Right), ("HITS", Align::Right), ("FROM DEVICES", Align::Right)];
    let mut table = Table::new(columns.into_iter().chain(missed));
    for ShownPart { dataset, class, requests, missed, missed_bytes } in &shown.parts {
        let hits = 100.0 * (requests - missed) as f64 / (*requests).max(1) as f64;
        let (requests, missed) = (requests.to_string(), missed.to_string());
        let bytes = nice_bytes(*missed_bytes);
        table.row([dataset.clone(), (*class).into(), requests, missed, format!("{hits:.1}%"), bytes]);
    }
    let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    format!(
        "\n{}\nA special vdev would take {:.0}% of these reads from devices ({:.0}% of the bytes).\n",
        table.aligned(),
        percent(metadata.missed, all.missed),
        percent(metadata.missed_bytes, all.missed_bytes)
    )
}
