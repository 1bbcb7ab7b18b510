//! How full, how scattered.

use super::{Finding, Problem, Rule, remedy};
use crate::advice::{Evidence, Facts, Gauge, Risk, Severity};
use crate::machine::zpool::{Class, Pool};
use crate::unit::Unit;

pub(super) const FILL_80: Rule = Rule {
    id: "fill-80",
    about: "A pool of 80 % or more.",
    reason: "Time to plan, not a cliff: OpenZFS changes nothing at 80 %. What slows a full pool is that free space comes in ever smaller \
        pieces, so that new data are scattered and are read back with more seeks; how far that has gone is what the rule `fragmentation` \
        looks at. Counted are the data vdevs: the `capacity` of zpool list has special vdevs in it. Report 004 found speed falling about linearly to 77 % and collapsing at 91 %.",
    sources: &[
        "field report 004 (xenon): pools at 12, 77, 84 and 91 %",
        "OpenZFS documentation, Workload Tuning, Free Space",
    ],
    // From 90 % on, `fill-90` speaks.
    check: |facts| fill(facts, 80.0, 78.0, Severity::Notice, |percent| percent < 90.0),
};

pub(super) const FILL_90: Rule = Rule {
    id: "fill-90",
    about: "A pool of 90 % or more.",
    reason: "Below 4 % of free space in a metaslab the allocator goes from first fit to best fit (metaslab_df_free_pct), which costs \
        processor time at each allocation; since space is not used evenly, many metaslabs are there when the pool as a whole is at 90 %. \
        The last 1/32 of the pool (spa_slop_shift) is kept back: writes fail with ENOSPC before 100 %.",
    sources: &[
        "OpenZFS documentation, Workload Tuning, Free Space",
        "zfs(4): spa_slop_shift",
        "module/zfs/metaslab.c: metaslab_df_free_pct",
        "field report 004 (xenon): random reads 28 times slower at 91 %",
    ],
    check: |facts| fill(facts, 90.0, 88.0, Severity::Warning, |_| true),
};

fn fill(
    facts: &Facts,
    raise: f64,
    clear: f64,
    severity: Severity,
    concerns: fn(f64) -> bool,
) -> Vec<Finding> {
    let of = |pool: &Pool| {
        let Some(value) = pool.class_percent(Class::Normal) else {
            return Some(Finding::unknown(&pool.name, "`zpool status -j` did not tell its size"));
        };
        let gauge = Gauge { value, unit: Unit::Percent, raise, clear };
        concerns(value).then(|| Finding::measured(&pool.name, gauge, || filled(pool, value, severity)))
    };
    facts.pools.iter().filter_map(of).collect()
}

fn filled(pool: &Pool, percent: f64, severity: Severity) -> Problem {
    let (allocated, size) = pool.space(Class::Normal).unwrap_or_default();
    let name = &pool.name;
    Problem {
        severity: if percent >= 96.0 { Severity::Critical } else { severity },
        summary: format!("The pool is {} full.", Unit::Percent.show(percent)),
        evidence: vec![
            Evidence::number("data vdevs in use", percent, Unit::Percent),
            Evidence::number("allocated on them", allocated as f64, Unit::Bytes),
            Evidence::number("their size", size as f64, Unit::Bytes),
        ],
        remedy: remedy(
            &[
                format!("zfs list -t all -r -o name,used,usedbysnapshots,refer -S used {name}"),
                format!("zfs destroy -nv {name}/DATASET@SNAPSHOT"),
                format!("zpool add -n {name} VDEV..."),
            ],
            Risk::High,
            "The first two only show what uses space and what destroying would free; without -n, destroying a snapshot can't be undone, \
             and an added RAID-Z vdev can't be removed again: add vdevs like those that are there.",
        ),
    }
}

pub(super) const FRAGMENTATION: Rule = Rule {
    id: "fragmentation",
    about: "Free space in small pieces.",
    reason: "The number is about free space, not about files: 50 % means that the free pieces are of about 512 KiB, 64 % of 128 KiB, 71 % \
        of 64 KiB, whatever their sum. Large blocks and the runs that spinning disks need no longer fit then; from 95 % on a vdev is passed \
        over while others are better (zfs_mg_fragmentation_threshold). It says nothing of how scattered existing files are, and \
        matters little on SSDs.",
    sources: &[
        "module/zfs/metaslab.c: zfs_frag_table",
        "zfs(4): zfs_mg_fragmentation_threshold",
        "zpoolprops(7): fragmentation",
    ],
    check: |facts| facts.pools.iter().map(fragmentation).collect(),
};

fn fragmentation(pool: &Pool) -> Finding {
    let Some(percent) = pool.fragmentation_percent else {
        return Finding::unknown(
            &pool.name,
            "`zpool get -Hp all` gave no fragmentation: the pool lacks the feature spacemap_histogram, or is not imported for writing",
        );
    };
    let gauge = Gauge { value: percent as f64, unit: Unit::Percent, raise: 50.0, clear: 45.0 };
    Finding::measured(&pool.name, gauge, || Problem {
        severity: if percent >= 71 { Severity::Warning } else { Severity::Notice },
        summary: format!("The pool's free space lies in small pieces: fragmentation {percent}%."),
        evidence: vec![
            Evidence::number("fragmentation of free space", percent as f64, Unit::Percent),
            Evidence::number("free pieces are of about", typical_free_bytes(percent) as f64, Unit::Bytes),
            Evidence::number(
                "data vdevs in use",
                pool.class_percent(Class::Normal).unwrap_or(f64::NAN),
                Unit::Percent,
            ),
        ],
        remedy: remedy(
            &[
                format!("zfs snapshot -r {0}@move; zfs send -R {0}@move | zfs receive -d NEWPOOL", pool.name),
                format!("zpool add -n {} VDEV...", pool.name),
            ],
            Risk::Medium,
            "Nothing defragments a pool in place. Freeing space helps as far as it frees neighbours; a new vdev brings unbroken space and \
             can't always be removed again; sending everything to a new pool is the thorough way.",
        ),
    })
}

/// Sizes of free pieces and what they count for in the fragmentation (`zfs_frag_table`).
const FRAGMENTATION_TABLE: [(u64, u64); 14] = [
    (100, 512),
    (99, 1 << 10),
    (97, 2 << 10),
    (93, 4 << 10),
    (88, 8 << 10),
    (83, 16 << 10),
    (77, 32 << 10),
    (71, 64 << 10),
    (64, 128 << 10),
    (57, 256 << 10),
    (50, 512 << 10),
    (43, 1 << 20),
    (36, 2 << 20),
    (29, 4 << 20),
];

/// How large free pieces are if all are of one size.
fn typical_free_bytes(fragmentation_percent: u64) -> u64 {
    let row = FRAGMENTATION_TABLE.iter().find(|row| row.0 <= fragmentation_percent);
    row.map_or(8 << 20, |row| row.1)
}
