//! Disks that are slower than those beside them.

use super::{Finding, Problem, Rule, remedy};
use crate::advice::{Evidence, Gauge, Risk, Severity};
use crate::machine::zpool::{Pool, Vdev};
use crate::unit::Unit;

pub(super) const SLOW_DISK: Rule = Rule {
    id: "slow-disk",
    about: "A disk that takes at least twice as long as its siblings.",
    reason: "A RAID-Z and the writes of a mirror wait for their slowest disk, and get equal work: in one vdev disks should take equally long. One that does \
        not is failing, of another kind (shingled, another firmware), or on a bad link. Compared is the time on the disk alone (disk_wait), since \
        queues are longer where more is asked. `zpool status -s` counts operations of more than 30 s (zio_slow_io_ms): far past slow.",
    sources: &["zpool-iostat(8): -l, disk_wait", "zfs(4): zio_slow_io_ms", "zpoolconcepts(7): mirror, raidz"],
    check: |facts| {
        facts.pools.iter().flat_map(|pool| pool.vdevs.iter().flat_map(|vdev| among(pool, vdev))).collect()
    },
};

/// Below this a difference says nothing: a few operations of an SSD.
const MATTERS_NS: f64 = 500_000.0;
/// Operations a second below which a mean says nothing.
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
        let why = "too few operations while it was watched: `zpool iostat -l` during work tells";
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

/// How many times as long as the median of the others that one takes: (ratio, its time, theirs). 1 if the difference does not matter.
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
            Evidence::number(format!("mean time of a {what} on this disk"), own, Unit::Nanoseconds),
            Evidence::number("on its siblings, in the median", others, Unit::Nanoseconds),
            Evidence::number("operations of more than 30 s", leaf.slow_ios as f64, Unit::Count),
            Evidence::number("disks compared", vdev.leaves().len() as f64, Unit::Count),
        ],
        remedy: remedy(
            &[
                format!("smartctl -x {disk}"),
                format!("zpool iostat -vyl {} 10", pool.name),
                format!("zpool replace {} {} NEWDISK", pool.name, leaf.name),
            ],
            Risk::Medium,
            "The first two look: see whether it lasts, and change cable or port first. Replacing overwrites NEWDISK and resilvers for hours.",
        ),
    }
}
