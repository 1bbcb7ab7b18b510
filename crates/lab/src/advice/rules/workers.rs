//! How many parallel workers a pool bears.
//!
//! Operations in flight are throughput times latency (Little's law). While disks are free, more workers bring more throughput at the same latency; from some
//! number on they bring only longer waits: that number is the answer. It is measured, or, where it was not, estimated from a pool at work: of the
//! operations in flight, those on the disks are work, the rest is queue.

use super::{Finding, Problem, Rule, remedy};
use crate::advice::facts::{Workers, WorkersPoint};
use crate::advice::{Evidence, Facts, Gauge, Risk, Severity};
use crate::machine::zpool::{Class, Pool};
use crate::unit::Unit;

pub(super) const PARALLEL_WORKERS: Rule = Rule {
    id: "parallel-workers",
    about: "More operations at once than the disks can work on.",
    reason: "Beyond the number that keeps all disks busy more workers bring no throughput, only waiting: by Little's law latency grows in proportion. Random \
        work of a RAID-Z vdev is bounded by one disk, of a mirror's reads by all its disks; a rule of so many workers a disk does not \
        know the work, a measurement does. Report 004 advised at most four workers on a stripe of two hard disks.",
    sources: &[
        "Little's law: L = λW",
        "OpenZFS documentation, Workload Tuning, Pool Geometry",
        "field report 004 (3 to 4 workers on data2)",
    ],
    check: |facts| {
        facts
            .workers
            .iter()
            .map(measured)
            .chain(facts.pools.iter().filter_map(|pool| queued(facts, pool)))
            .collect()
    },
};

/// What more workers must bring to be worth it: throughput within this part of the best is as good as the best.
const AS_GOOD: f64 = 0.9;

/// The fewest operations in flight that are as good as the best, and the point with the most in flight.
fn knee(points: &[WorkersPoint]) -> Option<(WorkersPoint, WorkersPoint)> {
    let best = points.iter().map(|point| point.iops).fold(0.0, f64::max);
    let by = |a: &&WorkersPoint, b: &&WorkersPoint| a.in_flight.total_cmp(&b.in_flight);
    let enough = points.iter().filter(|point| point.iops >= AS_GOOD * best).min_by(by)?;
    Some((*enough, *points.iter().max_by(by)?))
}

fn measured(workers: &Workers) -> Finding {
    let subject = format!("{}: {}", workers.target, workers.work);
    let Some((enough, most)) = knee(&workers.points).filter(|_| workers.points.len() >= 3) else {
        return Finding::unknown(subject, "measured with fewer than three numbers of workers");
    };
    if enough.in_flight >= most.in_flight {
        return Finding::unknown(
            subject,
            format!("still faster at {} in flight: measure with more", most.in_flight),
        );
    }
    let problem = Problem {
        severity: Severity::Notice,
        summary: format!("It bears {} operations at once: more wait, and bring nothing.", enough.in_flight),
        evidence: vec![
            Evidence::number(format!("throughput at {}", enough.in_flight), enough.iops, Unit::PerSecond),
            Evidence::number(
                format!("mean latency at {}", enough.in_flight),
                enough.mean_ns,
                Unit::Nanoseconds,
            ),
            Evidence::number(format!("throughput at {}", most.in_flight), most.iops, Unit::PerSecond),
            Evidence::number(format!("mean latency at {}", most.in_flight), most.mean_ns, Unit::Nanoseconds),
        ],
        remedy: remedy(
            &[],
            Risk::None,
            "Set the application's workers, times what each has in flight, to that number.",
        ),
    };
    Finding::bad(subject, problem)
}

/// What a pool at work shows. None if it was measured: that is better.
fn queued(facts: &Facts, pool: &Pool) -> Option<Finding> {
    if facts.workers.iter().any(|workers| workers.target == pool.name) {
        return None;
    }
    let unknown = || {
        Finding::unknown(
            &pool.name,
            "the pool was idle: `cenote lab run pools` measures it, or look again while it works",
        )
    };
    let (mut in_flight, mut on_disk, mut reads) = (0.0, 0.0, 0.0);
    for leaf in pool.class(Class::Normal).flat_map(|vdev| vdev.leaves()) {
        let Some(latencies) = leaf.latencies else { continue };
        let (Some(total), Some(disk)) = (latencies.read_ns, latencies.disk_read_ns) else { continue };
        in_flight += latencies.reads * total / 1e9;
        on_disk += latencies.reads * disk / 1e9;
        reads += latencies.reads;
    }
    if reads < 10.0 || on_disk <= 0.0 {
        return Some(unknown());
    }
    let gauge = Gauge { value: in_flight / on_disk, unit: Unit::Number, raise: 2.0, clear: 1.5 };
    Some(Finding::measured(&pool.name, gauge, || Problem {
        severity: Severity::Notice,
        summary: "Reads wait longer for the disks than the disks take.".into(),
        evidence: vec![
            Evidence::number("reads of the data disks", reads, Unit::PerSecond),
            Evidence::number("reads in flight, by Little's law", in_flight, Unit::Number),
            Evidence::number("of these on the disks", on_disk, Unit::Number),
            Evidence::number("data vdevs", pool.class(Class::Normal).count() as f64, Unit::Count),
        ],
        remedy: remedy(
            &["cenote lab run pools TARGET".into()],
            Risk::None,
            "Fewer workers give the same throughput with shorter waits: divide their number by the ratio, and measure. It reads and writes test files of its own \
             in the folder that it is given.",
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(points: &[(f64, f64)]) -> Workers {
        let point = |&(in_flight, iops): &(f64, f64)| WorkersPoint {
            in_flight,
            iops,
            mean_ns: in_flight / iops * 1e9,
        };
        Workers { target: "tank".into(), work: "randread".into(), points: points.iter().map(point).collect() }
    }

    #[test]
    fn the_knee_is_where_more_brings_nothing() {
        let curve = workers(&[(1.0, 100.0), (2.0, 190.0), (4.0, 330.0), (8.0, 350.0), (16.0, 352.0)]);
        assert_eq!(
            knee(&curve.points).map(|(enough, most)| (enough.in_flight, most.in_flight)),
            Some((4.0, 16.0))
        );
        assert!(matches!(measured(&curve).verdict, super::super::Verdict::Bad(_)));
        let rising = workers(&[(1.0, 100.0), (2.0, 200.0), (4.0, 400.0)]);
        assert!(matches!(measured(&rising).verdict, super::super::Verdict::Unknown(_)));
    }
}
