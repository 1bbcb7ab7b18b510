//! Disks slower than their siblings.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::item::{Evidence, Gauge, Risk, Severity};
use crate::load::machine::zpool::{Pool, Vdev};
use crate::unit::Unit;

pub(super) const SLOW_DISK: Rule = Rule {
    id: "slow-disk",
    about: "A disk that is at least twice as slow as its siblings.",
    reason: "A RAID-Z vdev and a mirror's writes wait for their slowest disk. The disks of a vdev get equal \
        work, so they should take equally long. One that does not is failing, of another kind (shingled, \
        other firmware) or on a bad link. The rule compares time on the disk alone (disk_wait), because \
        queues depend on demand. `zpool status -s` counts operations of more than 30 s (zio_slow_io_ms), \
        which is far beyond merely slow.",
    sources: &["zpool-iostat(8): -l, disk_wait", "zfs(4): zio_slow_io_ms", "zpoolconcepts(7): mirror, raidz"],
    check: |facts| {
        facts.pools.iter().flat_map(|pool| pool.vdevs.iter().flat_map(|vdev| among(pool, vdev))).collect()
    },
};

/// Below this, a difference means nothing: a few SSD operations.
const MATTERS_NS: f64 = 500_000.0;
/// Operations per second below which a mean means nothing.
const ENOUGH_PER_SECOND: f64 = 1.0;

fn among(pool: &Pool, vdev: &Vdev) -> Vec<Finding> {
    let leaves = vdev.leaves();
    if leaves.len() < 2 {
        return Vec::new();
    }
    let reads = times(&leaves, |leaf| leaf.latencies.filter(|l| l.reads >= ENOUGH_PER_SECOND)?.disk_read_ns);
    let writes =
        times(&leaves, |leaf| leaf.latencies.filter(|l| l.writes >= ENOUGH_PER_SECOND)?.disk_write_ns);
    if reads.len() < 2 && writes.len() < 2 {
        let why = "too few operations were observed; run `zpool iostat -l` while the pool is busy";
        return vec![Finding::unknown(format!("{}/{}", pool.name, vdev.name), why)];
    }
    let of = |leaf: &&Vdev| {
        let find = |times: &[(String, f64)]| worst(times, &leaf.name);
        let (ratio, own, others, what) = [(find(&reads), "read"), (find(&writes), "write")]
            .into_iter()
            .filter_map(|(found, what)| found.map(|(ratio, own, others)| (ratio, own, others, what)))
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let gauge = Gauge { value: ratio, unit: Unit::Number, raise: 2.0, clear: 1.5 };
        Some(Finding::measured(format!("{}/{}", pool.name, leaf.name), gauge, || {
            slow(pool, vdev, leaf, (ratio, own, others, what))
        }))
    };
    leaves.iter().filter_map(of).collect()
}

fn times(leaves: &[&Vdev], of: impl Fn(&Vdev) -> Option<f64>) -> Vec<(String, f64)> {
    leaves.iter().filter_map(|leaf| Some((leaf.name.clone(), of(leaf)?))).collect()
}

/// Worst ratio of a disk's time to the median of the others, as (ratio, its time, theirs). 1 if the
/// difference is negligible.
fn worst(times: &[(String, f64)], name: &str) -> Option<(f64, f64, f64)> {
    let own = times.iter().find(|time| time.0 == name)?.1;
    let mut others: Vec<f64> = times.iter().filter(|time| time.0 != name).map(|time| time.1).collect();
    others.sort_by(f64::total_cmp);
    let median = *others.get(others.len() / 2)?;
    let ratio = if own - median < MATTERS_NS { 1.0 } else { own / median.max(1.0) };
    Some((ratio, own, median))
}

fn slow(pool: &Pool, vdev: &Vdev, leaf: &Vdev, (ratio, own, others, what): (f64, f64, f64, &str)) -> Problem {
    let disk = leaf.path.as_deref().unwrap_or(&leaf.name);
    Problem {
        severity: if ratio >= 4.0 { Severity::Warning } else { Severity::Notice },
        summary: format!(
            "Its {what}s take {} times as long as those of its siblings in {}.",
            crate::unit::digits(ratio),
            vdev.name
        ),
        evidence: vec![
            Evidence::number(format!("mean {what} time on this disk"), own, Unit::Nanoseconds),
            Evidence::number("median of its siblings", others, Unit::Nanoseconds),
            Evidence::number("operations longer than 30 s", leaf.slow_ios as f64, Unit::Count),
            Evidence::number("disks compared", vdev.leaves().len() as f64, Unit::Count),
        ],
        remedy: remedy(
            &[
                format!("smartctl -x {disk}"),
                format!("zpool iostat -vyl {} 10", pool.name),
                format!("zpool replace {} {} NEWDISK", pool.name, leaf.name),
            ],
            Risk::Medium,
            "The first two commands only read: check whether the problem persists, and change cable or port \
             first. Replacing overwrites NEWDISK and resilvers for hours.",
        ),
    }
}
