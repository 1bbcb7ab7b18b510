//! Block sizes compared with the operations observed.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::item::{Evidence, Risk, Severity};
use crate::load::machine::zpool::{Dataset, DatasetKind};
use crate::unit::Unit;

pub(super) const RECORDSIZE_IO_SIZE: Rule = Rule {
    id: "recordsize-io-size",
    about: "Blocks much larger or much smaller than the operations on them.",
    reason: "A partial write to a block that is not in memory first reads the whole block; a random read \
        always reads the whole block. Blocks much smaller than the operations mean more metadata, more seeks \
        and less compression. The mean size alone does not distinguish random operations from streams. Small \
        operations are harmless in streams and appends: writes are gathered in memory first, and reads are \
        prefetched. Only files larger than one block have blocks of recordsize; a smaller file has one block \
        that fits.",
    sources: &[
        "zfsprops(7): recordsize, volblocksize",
        "OpenZFS documentation, Workload Tuning, Dataset recordsize",
        "module/zfs/dataset_kstats.c",
    ],
    check: |facts| facts.pools.iter().flat_map(|pool| &pool.datasets).filter_map(io_size).collect(),
};

/// Fewest operations that give a meaningful mean.
const ENOUGH: u64 = 1000;
/// Ratio of block size to mean operation, either way, that is reported.
const FACTOR: f64 = 8.0;

fn io_size(dataset: &Dataset) -> Option<Finding> {
    let Some(counters) = &dataset.counters else {
        return Some(Finding::unknown(
            &dataset.name,
            "it has no kstat: it is not mounted, or belongs to another machine",
        ));
    };
    let mean = |operations: &str, bytes: &str| {
        let count = counters.or_zero(operations);
        (count >= ENOUGH).then(|| counters.or_zero(bytes) as f64 / count as f64)
    };
    let (read, write) = (mean("reads", "nread"), mean("writes", "nwritten"));
    let block = dataset.block_bytes() as f64;
    let sizes = || read.into_iter().chain(write).filter(|mean| *mean > 0.0);
    // A nearly idle dataset has no meaningful mean.
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
            "Only for databases, virtual disks and other random workloads. It applies to files written from \
             then on; rewrite existing ones to convert them. Below 16 KiB, metadata and lost compression \
             cost more than is gained.",
        ),
        DatasetKind::Volume(_) => remedy(
            &[format!("zfs create -s -V SIZE -o volblocksize={new} {}-new", dataset.name)],
            Risk::Medium,
            "volblocksize is fixed when a volume is created: copy its content while nothing uses it. On \
             RAID-Z, first see raidz-width-padding.",
        ),
    }
}
