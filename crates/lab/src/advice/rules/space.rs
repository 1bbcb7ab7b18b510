//! Pool fill and fragmentation.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::facts::Facts;
use crate::advice::item::{Evidence, Gauge, Risk, Severity};
use crate::load::machine::zpool::{Class, Pool};
use crate::unit::Unit;

pub(super) const FILL_80: Rule = Rule {
    id: "fill-80",
    about: "A pool that is 80 % full or more.",
    reason: "Time to plan, not a cliff: OpenZFS changes nothing at 80 %. A full pool slows down because free \
        space comes in ever smaller pieces, so new data are scattered and need more seeks to read back; the \
        rule `fragmentation` measures that. Only data vdevs count here, while `capacity` in zpool list \
        includes special vdevs. Report 004 found speed falling about linearly to 77 % and collapsing at 91 \
        %.",
    sources: &[
        "field report 004 (xenon): pools at 12, 77, 84 and 91 %",
        "OpenZFS documentation, Workload Tuning, Free Space",
    ],
    // From 90 % on, `fill-90` takes over.
    check: |facts| fill(facts, 80.0, 78.0, Severity::Notice, |percent| percent < 90.0),
};

pub(super) const FILL_90: Rule = Rule {
    id: "fill-90",
    about: "A pool that is 90 % full or more.",
    reason: "Below 4 % of free space in a metaslab, the allocator switches from first fit to best fit \
        (metaslab_df_free_pct), which costs processor time on each allocation. Space is used unevenly, so \
        many metaslabs have reached that point when the pool as a whole is at 90 %. The last 1/32 of the \
        pool (spa_slop_shift) is reserved: writes fail with ENOSPC before 100 %.",
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
            return Some(Finding::unknown(&pool.name, "`zpool status -j` did not report its size"));
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
            "The first two commands only show what uses space and what destroying would free. Without -n, \
             destroying a snapshot cannot be undone, and an added RAID-Z vdev cannot be removed: add vdevs \
             like the existing ones.",
        ),
    }
}

pub(super) const FRAGMENTATION: Rule = Rule {
    id: "fragmentation",
    about: "Free space in small pieces.",
    reason: "The number describes free space, not files: 50 % means that free pieces are about 512 KiB, 64 % \
        128 KiB, 71 % 64 KiB, however much space is free in total. Large blocks, and the long runs that \
        spinning disks need, then no longer fit. From 95 % on, a vdev is skipped while others are better \
        (zfs_mg_fragmentation_threshold). The number says nothing about the fragmentation of existing files, \
        and matters little on SSDs.",
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
            "`zpool get -Hp all` reported no fragmentation: the pool lacks the feature spacemap_histogram, \
             or is imported read-only",
        );
    };
    let gauge = Gauge { value: percent as f64, unit: Unit::Percent, raise: 50.0, clear: 45.0 };
    let send = Facts::send_command(pool, "move");
    let commands = [
        format!("zfs snapshot -r {}@move; {send}", pool.name),
        format!("zpool add -n {} VDEV...", pool.name),
    ];
    Finding::measured(&pool.name, gauge, || Problem {
        severity: if percent >= 71 { Severity::Warning } else { Severity::Notice },
        summary: format!("The pool's free space is fragmented: {percent}%."),
        evidence: vec![
            Evidence::number("fragmentation of free space", percent as f64, Unit::Percent),
            Evidence::number("typical size of free pieces", typical_free_bytes(percent) as f64, Unit::Bytes),
            Evidence::number(
                "data vdevs in use",
                pool.class_percent(Class::Normal).unwrap_or(f64::NAN),
                Unit::Percent,
            ),
        ],
        remedy: remedy(
            &commands,
            Risk::Medium,
            "Nothing defragments a pool in place. Freeing space helps only where it frees adjacent blocks. A \
             new vdev brings unfragmented space, but cannot always be removed again. Copying everything to \
             a new pool is the thorough way.",
        ),
    })
}

/// Sizes of free pieces and their weights in the fragmentation metric (`zfs_frag_table`).
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

/// Piece size that gives this fragmentation if all free pieces are equal.
fn typical_free_bytes(fragmentation_percent: u64) -> u64 {
    let row = FRAGMENTATION_TABLE.iter().find(|row| row.0 <= fragmentation_percent);
    row.map_or(8 << 20, |row| row.1)
}
