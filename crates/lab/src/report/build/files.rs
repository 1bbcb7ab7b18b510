//! The evidence in a result folder, as a report lists it.

use super::material::File;
use crate::result::ResultFolder;

/// What may be there, and what it holds.
const KNOWN: [(&str, &str); 8] = [
    ("plan.json", "what was to be done, on which targets, by which version"),
    ("machine.json", "the machine: processors, memory, disks, pools with their properties"),
    ("summary.json", "all figures with their repeats, medians and intervals"),
    ("failures.json", "tests that gave no measurement, and why"),
    ("series.parquet", "what was sampled beside the tests, over time"),
    ("seconds.parquet", "all operations second by second"),
    ("histograms.parquet", "latencies of all operations; histograms that ZFS keeps"),
    ("runs", "each measurement by itself, as it was recorded"),
];

/// The files of a result that are there.
pub fn files(folder: &ResultFolder) -> Vec<File> {
    let there = KNOWN.iter().filter(|(name, _)| folder.path().join(name).exists());
    there.map(|&(path, about)| File { path: path.to_owned(), about: about.to_owned() }).collect()
}
