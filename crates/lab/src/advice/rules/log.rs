//! The intent log: its devices and its traffic.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::facts::Facts;
use crate::advice::item::{Evidence, Gauge, Risk, Severity};
use crate::load::machine::zpool::{Class, Pool};
use crate::unit::Unit;

pub(super) const SLOG_UNMIRRORED: Rule = Rule {
    id: "slog-unmirrored",
    about: "A log device without a mirror.",
    reason: "The log is read only after a crash. Losing a log device alone loses nothing: the pool continues \
        with the log on its data vdevs. Losing it in the same crash loses the last seconds of synchronous \
        writes, which applications believe safe, and the pool then requires `zpool import -m`. A single \
        device with power-loss protection is a defensible choice: since pool version 19, losing it no longer \
        loses the pool.",
    sources: &[
        "zpoolconcepts(7): Intent Log",
        "zpool-import(8): -m",
        "field report 002 (recommends a mirrored SLOG)",
    ],
    check: |facts| with_log(facts).flat_map(unmirrored).collect(),
};

fn with_log(facts: &Facts) -> impl Iterator<Item = &Pool> {
    facts.pools.iter().filter(|pool| pool.class(Class::Log).next().is_some())
}

fn unmirrored(pool: &Pool) -> Vec<Finding> {
    let of = |log: &crate::load::machine::zpool::Vdev| {
        let subject = format!("{}/{}", pool.name, log.name);
        if log.may_lose() > 0 {
            return Finding::fine(subject);
        }
        let problem = Problem {
            severity: Severity::Notice,
            summary: "The log device is not mirrored.".into(),
            evidence: vec![
                Evidence::word("log device", log.shape()),
                Evidence::number(
                    "synchronous commits so far",
                    sum(pool, "zil_commit_count") as f64,
                    Unit::Count,
                ),
            ],
            remedy: remedy(
                &[format!("zpool attach {} {} NEWDISK", pool.name, log.path.as_deref().unwrap_or(&log.name))],
                Risk::Low,
                "NEWDISK is overwritten. Use a separate device of the same kind, not another partition of \
                 this one. `zpool detach` removes it again.",
            ),
        };
        Finding::bad(subject, problem)
    };
    pool.class(Class::Log).map(of).collect()
}

fn sum(pool: &Pool, counter: &str) -> u64 {
    pool.datasets
        .iter()
        .filter_map(|dataset| dataset.counters.as_ref())
        .map(|counters| counters.or_zero(counter))
        .sum()
}

fn has_counters(pool: &Pool) -> bool {
    pool.datasets.iter().any(|dataset| dataset.counters.is_some())
}

const NO_COUNTERS: &str = "its datasets have no kstats (/proc/spl/kstat/zfs/POOL/objset-*): none is mounted, \
    or it belongs to another machine";

/// Counters must run this long before zero means something.
const LONG_S: f64 = 3600.0;

pub(super) const SLOG_UNUSED: Rule = Rule {
    id: "slog-unused",
    about: "An unused log device.",
    reason: "Only synchronous writes go to the intent log (fsync, O_SYNC, NFS, databases, iSCSI with \
        flushes), and they use the log device only with logbias=latency and unless sync=disabled. It is no \
        write cache: ordinary writes never touch it. Without synchronous writes the device is useless here, \
        and might serve as a special vdev or L2ARC.",
    sources: &[
        "zfsprops(7): logbias, sync",
        "zpoolconcepts(7): Intent Log",
        "module/zfs/dataset_kstats.c: zil_itx_metaslab_slog_count",
    ],
    check: |facts| with_log(facts).map(|pool| unused(facts, pool)).collect(),
};

fn unused(facts: &Facts, pool: &Pool) -> Finding {
    if !has_counters(pool) {
        return Finding::unknown(&pool.name, NO_COUNTERS);
    }
    let [commits, slog, normal] =
        ["zil_commit_count", "zil_itx_metaslab_slog_count", "zil_itx_metaslab_normal_count"]
            .map(|name| sum(pool, name));
    let bypassed = normal > slog && normal > 0;
    if slog > 0 && !bypassed {
        return Finding::fine(&pool.name);
    }
    let counted_s = facts.counted_s.unwrap_or(0.0);
    if !bypassed && counted_s < LONG_S {
        return Finding::unknown(&pool.name, "not written yet, but the counters cover less than an hour");
    }
    let throughput: Vec<_> =
        pool.datasets.iter().filter(|d| d.logbias == "throughput").map(|d| d.name.as_str()).collect();
    let log = pool.class(Class::Log).next().map_or("LOG", |log| log.name.as_str());
    let commands = match throughput.first() {
        Some(dataset) if bypassed => format!("zfs inherit logbias {dataset}"),
        _ => format!("zpool remove {} {log}", pool.name),
    };
    Finding::bad(
        &pool.name,
        Problem {
            severity: Severity::Notice,
            summary: if bypassed {
                "Most log writes bypass the log device."
            } else {
                "The log device is not used."
            }
            .into(),
            evidence: vec![
                Evidence::number("log writes to the log device", slog as f64, Unit::Count),
                Evidence::number("log writes to the data vdevs", normal as f64, Unit::Count),
                Evidence::number("commits", commits as f64, Unit::Count),
                Evidence::number("period covered", counted_s * 1e9, Unit::Nanoseconds),
                Evidence::word("datasets with logbias=throughput", throughput.len().to_string()),
            ],
            remedy: remedy(
                &[commands],
                Risk::Low,
                "Removing a log device moves no data, and adding it again undoes it. First check whether \
                 synchronous work happens at other times.",
            ),
        },
    )
}

pub(super) const SYNC_WITHOUT_SLOG: Rule = Rule {
    id: "sync-without-slog",
    about: "Synchronous writes on a pool of spinning disks without a log device.",
    reason: "Each fsync then waits for writes and a cache flush on the data disks, competing with all their \
        other work: milliseconds on spinning disks, against well under one on an SSD with power-loss \
        protection. On a pool of good SSDs, a log device of the same kind gains little. sync=disabled is no \
        remedy: it breaks the promise of fsync.",
    sources: &[
        "OpenZFS documentation, Workload Tuning, Synchronous I/O",
        "zpoolconcepts(7): Intent Log",
        "zfsprops(7): sync",
    ],
    check: |facts| {
        let without = facts.pools.iter().filter(|pool| pool.class(Class::Log).next().is_none());
        without.map(|pool| without_slog(facts, pool)).collect()
    },
};

fn without_slog(facts: &Facts, pool: &Pool) -> Finding {
    let Some(counted_s) = facts.counted_s.filter(|s| *s > 0.0 && has_counters(pool)) else {
        return Finding::unknown(&pool.name, NO_COUNTERS);
    };
    let rotational = facts.rotational(pool);
    if rotational == Some(false) {
        return Finding::fine(&pool.name);
    }
    let commits = sum(pool, "zil_commit_count") as f64;
    let gauge = Gauge { value: commits / counted_s, unit: Unit::PerSecond, raise: 1.0, clear: 0.5 };
    Finding::measured(&pool.name, gauge, || {
        let mut evidence = vec![
            Evidence::number("commits", gauge.value, Unit::PerSecond),
            Evidence::number("period covered", counted_s * 1e9, Unit::Nanoseconds),
            Evidence::number(
                "log bytes written to the data vdevs",
                sum(pool, "zil_itx_metaslab_normal_bytes") as f64,
                Unit::Bytes,
            ),
            Evidence::word(
                "disks",
                if rotational.is_some() { "spinning" } else { "unknown whether they spin" },
            ),
        ];
        let write_ns =
            pool.class(Class::Normal).filter_map(|vdev| vdev.latencies?.write_ns).fold(0.0, f64::max);
        if write_ns > 0.0 {
            evidence.push(Evidence::number(
                "mean write wait of the slowest vdev",
                write_ns,
                Unit::Nanoseconds,
            ));
        }
        Problem {
            severity: if rotational.is_some() { Severity::Warning } else { Severity::Notice },
            summary: "Synchronous writes wait for the data disks.".into(),
            evidence,
            remedy: remedy(
                &[format!("zpool add {} log mirror NEWSSD1 NEWSSD2", pool.name)],
                Risk::Low,
                "Do not omit the word `log`: without it the disks become data vdevs for good. The SSDs need \
                 power-loss protection; a few GiB are enough. `zpool remove` removes a log again.",
            ),
        }
    })
}
