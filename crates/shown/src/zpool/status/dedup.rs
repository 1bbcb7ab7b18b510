//! `zpool status -D`: how many blocks are deduplicated, by number of references.
//!
//! ```text
//!   bucket      allocated: each block once        referenced: as often as it is used
//!   refcnt   blocks  LSIZE PSIZE DSIZE            blocks  LSIZE PSIZE DSIZE
//! ```
//!
//! Source: OpenZFS `print_dedup_stats`, `zpool_dump_ddt`.

use std::fmt::Write as _;

use cenote_control::text::{nice_bytes, nice_number};
use cenote_control::zpool::shown::status::Dedup;
use cenote_format::ddt::DdtStat;

use crate::numbers::Numbers;

/// The paragraph `dedup:`.
pub fn paragraph(dedup: &Dedup, numbers: Numbers) -> String {
    let mut total = DdtStat::default();
    let mut rows = String::new();
    for (power, bucket) in dedup.buckets.iter().enumerate().filter(|(_, bucket)| bucket.blocks > 0) {
        rows += &row(&nice_number(1 << power), bucket);
        total += bucket;
    }
    if total.blocks == 0 {
        return "\n dedup: no DDT entries\n".into();
    }
    let size = numbers.count(dedup.table_bytes);
    let mut out = format!("\n dedup: DDT entries {}, size {size} on disk\n\n", total.blocks);
    out.push_str("bucket              allocated                       referenced          \n");
    let _ = writeln!(out, "{0:_<6}   {0:_<30}   {0:_<30}", "");
    let names = ["blocks", "LSIZE", "PSIZE", "DSIZE"];
    out += &columns("refcnt", names, names);
    let rules = ["------", "-----", "-----", "-----"];
    out += &columns("------", rules, rules);
    out += &rows;
    out += &row("Total", &total);
    out + "\n"
}

fn row(name: &str, stat: &DdtStat) -> String {
    let cells = |blocks: u64, sizes: [u64; 3]| {
        let [logical, physical, device] = sizes.map(nice_bytes);
        [nice_number(blocks), logical, physical, device]
    };
    let allocated = cells(stat.blocks, [stat.lsize_bytes, stat.psize_bytes, stat.dsize_bytes]);
    let sizes = [stat.referenced_lsize_bytes, stat.referenced_psize_bytes, stat.referenced_dsize_bytes];
    let referenced = cells(stat.referenced_blocks, sizes);
    columns(name, allocated.each_ref().map(String::as_str), referenced.each_ref().map(String::as_str))
}

fn columns(name: &str, allocated: [&str; 4], referenced: [&str; 4]) -> String {
    let four = |[blocks, logical, physical, device]: [&str; 4]| {
        format!("{blocks:>6}   {logical:>5}   {physical:>5}   {device:>5}")
    };
    format!("{name:>6}   {}   {}\n", four(allocated), four(referenced))
}
