//! How many parallel workers a pool can use.
//!
//! Operations in flight equal throughput times latency (Little's law). While disks have capacity, more
//! workers bring more throughput at the same latency; beyond some number they only wait longer. A sweep
//! measures that number; otherwise it is estimated from a busy pool, as the operations in flight on the
//! disks.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::facts::{Bears, Facts, Workers};
use crate::advice::item::{Evidence, Gauge, Risk, Severity};
use crate::load::machine::zpool::{Class, Pool};
use crate::unit::Unit;

pub(super) const PARALLEL_WORKERS: Rule = Rule {
    id: "parallel-workers",
    about: "More operations in flight than the disks can process.",
    reason: "Once all disks are busy, more workers bring no throughput, only waiting: by Little's law \
        latency grows in proportion. Random work on a RAID-Z vdev is limited to the speed of one disk; reads \
        on a mirror use all its disks. A fixed number of workers per disk ignores the workload, a \
        measurement does not. Report 004 recommended at most four workers on a stripe of two hard disks.",
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

fn measured(workers: &Workers) -> Finding {
    let subject = format!("{}: {}", workers.target, workers.work);
    let (enough, most) = match workers.bears() {
        Bears::Enough { enough, most } => (enough, most),
        Bears::More { most } => {
            let why = format!("throughput still grows at {} in flight: measure with more", most.in_flight);
            return Finding::unknown(subject, why);
        }
        Bears::NoSweep { depths } => {
            let few = if depths == 1 { "one depth was".to_owned() } else { format!("{depths} depths were") };
            let how = "a sweep of depths is needed (cenote lab run depth)";
            return Finding::unknown(subject, format!("{few} measured: {how}"));
        }
    };
    let problem = Problem {
        severity: Severity::Notice,
        summary: format!("It can use {} operations in flight; more only wait.", enough.in_flight),
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
            "Set the application's total number of operations in flight (workers times the depth of each) to \
             that number.",
        ),
    };
    Finding::bad(subject, problem)
}

/// Queue of a busy pool. None if a sweep measured the pool, which is better.
fn queued(facts: &Facts, pool: &Pool) -> Option<Finding> {
    if facts.workers.iter().any(|workers| workers.target == pool.name) {
        return None;
    }
    let unknown = || {
        Finding::unknown(
            &pool.name,
            "the pool was idle: run `cenote lab run depth`, or look again while it is busy",
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
        summary: "Reads spend more time queued than on the disks.".into(),
        evidence: vec![
            Evidence::number("reads from the data disks", reads, Unit::PerSecond),
            Evidence::number("reads in flight, by Little's law", in_flight, Unit::Number),
            Evidence::number("on the disks", on_disk, Unit::Number),
            Evidence::number("data vdevs", pool.class(Class::Normal).count() as f64, Unit::Count),
        ],
        remedy: remedy(
            &["cenote lab run depth TARGET".into()],
            Risk::None,
            "Reads queue. How many operations in flight the pool can use, only a sweep of depths shows. It \
             reads and writes its own test files in the given folder.",
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::facts::WorkersPoint;
    use crate::advice::rules::rule::Verdict;

    fn workers(points: &[(f64, f64)]) -> Workers {
        let point = |&(in_flight, iops): &(f64, f64)| WorkersPoint {
            in_flight,
            iops,
            mean_ns: in_flight / iops * 1e9,
        };
        Workers {
            target: "tank".into(),
            work: "randread".into(),
            job: crate::load::job::Job::default(),
            points: points.iter().map(point).collect(),
        }
    }

    #[test]
    fn the_knee_is_where_more_workers_add_nothing() {
        let curve = workers(&[(1.0, 100.0), (2.0, 190.0), (4.0, 330.0), (8.0, 350.0), (16.0, 352.0)]);
        let Bears::Enough { enough, most } = curve.bears() else { panic!("{:?}", curve.bears()) };
        assert_eq!((enough.in_flight, most.in_flight), (4.0, 16.0));
        assert!(matches!(measured(&curve).verdict, Verdict::Bad(_)));
        let one_depth =
            workers(&[(128.0, 300.0), (128.0, 340.0), (128.0, 310.0), (128.0, 305.0), (128.0, 320.0)]);
        let Verdict::Unknown(why) = measured(&one_depth).verdict else { panic!("{one_depth:?}") };
        assert!(why.contains("one depth was measured") && why.contains("lab run depth"), "{why}");
        let rising = workers(&[(1.0, 100.0), (2.0, 200.0), (4.0, 400.0)]);
        assert!(matches!(measured(&rising).verdict, Verdict::Unknown(_)));
    }
}
