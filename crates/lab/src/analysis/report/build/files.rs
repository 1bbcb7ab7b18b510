//! The evidence in a result folder, as listed in a report.

use super::material::File;
use crate::load::result::ResultFolder;

const KNOWN: [(&str, &str); 8] = [
    ("plan.json", "the plan: tests, targets, program version"),
    ("machine.json", "the machine: processors, memory, disks, pools with their properties"),
    ("summary.json", "all figures with their repeats, medians and intervals"),
    ("failures.json", "tests without a measurement, and why"),
    ("series.parquet", "samples taken during the tests, over time"),
    ("seconds.parquet", "all operations, second by second"),
    ("histograms.parquet", "latencies of all operations; ZFS's own histograms"),
    ("runs", "each measurement as it was recorded"),
];

pub fn files(folder: &ResultFolder) -> Vec<File> {
    let there = KNOWN.iter().filter(|(name, _)| folder.path().join(name).exists());
    there.map(|&(path, about)| File { path: path.to_owned(), about: about.to_owned() }).collect()
}
