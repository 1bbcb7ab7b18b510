//! Block sizes against the operations that are seen.

use super::{Finding, Problem, Rule, remedy};
use crate::advice::{Evidence, Risk, Severity};
use crate::machine::zpool::{Dataset, DatasetKind};
use crate::unit::Unit;

pub(super) const RECORDSIZE_IO_SIZE: Rule = Rule {
    id: "recordsize-io-size",
    about: "Blocks much larger or smaller than the operations on them.",
    reason: "A write of a part of a block that is not in memory reads the whole block first; a random read reads all of it. Blocks much smaller than the \
        operations mean more metadata, more seeks and less compression. The mean size alone does not tell random operations from streams, which \
        are gathered in memory before they are written and prefetched when read: for streams and appends small operations are harmless. Only files \
        larger than one block have blocks of recordsize; smaller files have one that fits.",
    sources: &[
        "zfsprops(7): recordsize, volblocksize",
        "OpenZFS documentation, Workload Tuning, Dataset recordsize",
        "module/zfs/dataset_kstats.c",
    ],
    check: |facts| facts.pools.iter().flat_map(|pool| &pool.datasets).filter_map(io_size).collect(),
};

/// How many operations make a mean worth telling.
const ENOUGH: u64 = 1000;
/// A block this many times the mean operation, or the other way round, is told.
const FACTOR: f64 = 8.0;

fn io_size(dataset: &Dataset) -> Option<Finding> {
    let Some(counters) = &dataset.counters else {
        return Some(Finding::unknown(&dataset.name, "no kstat of it: not mounted, or another machine's"));
    };
    let mean = |operations: &str, bytes: &str| {
        let count = counters.or_zero(operations);
        (count >= ENOUGH).then(|| counters.or_zero(bytes) as f64 / count as f64)
    };
    let (read, write) = (mean("reads", "nread"), mean("writes", "nwritten"));
    let block = dataset.block_bytes() as f64;
    let sizes = || read.into_iter().chain(write).filter(|mean| *mean > 0.0);
    // Nothing to say of a dataset that hardly anything was done to.
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    if most == 0.0 {
        return None;
    }
    let (summary, wanted) = match () {
        () if block >= FACTOR * most => ("Its blocks are much larger than the operations on it.", most),
        () if least >= FACTOR * block => ("Its blocks are much smaller than the operations on it.", least),
        () => return Some(Finding::fine(&dataset.name)),
    };
    let new = (wanted as u64).next_power_of_two().clamp(16 << 10, 1 << 20);
    let mut evidence = vec![Evidence::number(dataset.block_property(), block, Unit::Bytes)];
    for (operation, mean) in [("read", read), ("write", write)] {
        evidence.extend(mean.map(|mean| Evidence::number(format!("mean {operation}"), mean, Unit::Bytes)));
        evidence.push(Evidence::number(
            format!("{operation}s"),
            counters.or_zero(&format!("{operation}s")) as f64,
            Unit::Count,
        ));
    }
    Some(Finding::bad(
        &dataset.name,
        Problem {
            severity: Severity::Notice,
            summary: summary.into(),
            evidence,
            remedy: resize(dataset, new),
        },
    ))
}

fn resize(dataset: &Dataset, new: u64) -> crate::advice::Remedy {
    match dataset.kind {
        DatasetKind::Filesystem(_) => remedy(
            &[format!("zfs set recordsize={new} {}", dataset.name)],
            Risk::Low,
            "Only for databases, virtual disks and the like, whose operations are random; it concerns only files written from then on: copy the others. Less \
             than 16 KiB costs more in metadata and compression than it gains.",
        ),
        DatasetKind::Volume(_) => remedy(
            &[format!("zfs create -s -V SIZE -o volblocksize={new} {}-new", dataset.name)],
            Risk::Medium,
            "volblocksize is fixed when a volume is made: copy its content while nothing uses it. On RAID-Z see raidz-width-padding first.",
        ),
    }
}
