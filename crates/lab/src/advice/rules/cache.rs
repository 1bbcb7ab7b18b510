//! The ARC and L2ARC: their hit rates and their cost.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::facts::Facts;
use crate::advice::item::{Evidence, Gauge, Risk, Severity};
use crate::load::machine::zpool::{Class, Counters};
use crate::unit::Unit;

const NO_ARCSTATS: &str = "no /proc/spl/kstat/zfs/arcstats: the ZFS module is not loaded here";
/// Fewest lookups that give a meaningful rate.
const ENOUGH: u64 = 1000;

/// A rule about the ARC, for machines with pools.
fn of_arc(facts: &Facts, check: impl Fn(&Counters) -> Finding) -> Vec<Finding> {
    match &facts.arc {
        Some(arc) => vec![check(arc)],
        None => vec![Finding::unknown("arc", NO_ARCSTATS)],
    }
}

fn has_l2arc(facts: &Facts) -> bool {
    facts.pools.iter().any(|pool| pool.class(Class::Cache).next().is_some())
}

pub(super) const L2ARC_HIT_RATE: Rule = Rule {
    id: "l2arc-hit-rate",
    about: "An L2ARC hit rate below 85 %.",
    reason: "Only ARC misses reach the L2ARC, so its rate is not that of the cache as a whole. It is low \
        while the device fills (at most l2arc_write_max a second, 32 MiB by default) and for streams \
        (prefetched reads are not stored unless l2arc_noprefetch=0, and count as misses). If it stays low \
        once the device is full, the device is too small for the data that are read again, and memory would \
        serve better. 85 % is report 002's threshold for a cache that virtual machines depend on.",
    sources: &[
        "field report 002 (keep above 85 %)",
        "zfs(4): l2arc_noprefetch, l2arc_write_max",
        "module/zfs/arc.c: arcstat_l2_misses",
    ],
    check: |facts| if has_l2arc(facts) { of_arc(facts, |arc| hit_rate(facts, arc)) } else { Vec::new() },
};

fn hit_rate(facts: &Facts, arc: &Counters) -> Finding {
    let (hits, misses) = (arc.or_zero("l2_hits"), arc.or_zero("l2_misses"));
    let Some(percent) = arc.percent("l2_hits", "l2_misses").filter(|_| hits + misses >= ENOUGH) else {
        return Finding::unknown("l2arc", format!("only {} lookups so far", hits + misses));
    };
    let gauge = Gauge { value: percent, unit: Unit::Percent, raise: 85.0, clear: 88.0 };
    let size: u64 =
        facts.pools.iter().flat_map(|pool| pool.class(Class::Cache)).filter_map(|vdev| vdev.size_bytes).sum();
    let filled = arc.or_zero("l2_asize");
    let mut finding = Finding::measured("l2arc", gauge, || Problem {
        severity: Severity::Notice,
        summary: format!("The L2ARC held {} of the reads that missed the ARC.", Unit::Percent.show(percent)),
        evidence: vec![
            Evidence::number("L2ARC hit rate", percent, Unit::Percent),
            Evidence::number("hits", hits as f64, Unit::Count),
            Evidence::number("misses", misses as f64, Unit::Count),
            Evidence::number("in the L2ARC", filled as f64, Unit::Bytes),
            Evidence::number("L2ARC size", size as f64, Unit::Bytes),
            Evidence::number(
                "ARC hit rate",
                arc.percent("hits", "misses").unwrap_or(f64::NAN),
                Unit::Percent,
            ),
        ],
        remedy: remedy(
            &["zpool iostat -v 10".into(), "zpool remove POOL CACHEDEVICE".into()],
            Risk::Low,
            "First check whether the device is still filling. A cache device can be removed and added at any \
             time; that loses only its cached copies, no data.",
        ),
    });
    // A low rate is normal for a device less than half full and still filling.
    if gauge.bad() && filled < size / 2 && facts.counted_s.is_none_or(|s| s < 86_400.0) {
        finding = Finding::unknown(
            "l2arc",
            format!("hit rate {}, but the device is still filling", Unit::Percent.show(percent)),
        );
    }
    finding
}

pub(super) const L2ARC_HEADERS: Rule = Rule {
    id: "l2arc-headers",
    about: "L2ARC headers that occupy more than a tenth of the ARC.",
    reason: "Each block in the L2ARC has a 96-byte header in memory that is never evicted: 0.07 % of the \
        L2ARC's size for 128 KiB blocks, 1.2 % for 8 KiB. Rules of thumb such as \"so many GB of memory for \
        each GB of L2ARC\" are therefore meaningless without the block size. At 33 % of the ARC \
        (l2arc_meta_percent), OpenZFS stops feeding the L2ARC.",
    sources: &[
        "zfs(4): l2arc_meta_percent",
        "include/sys/arc_impl.h: arc_buf_hdr_t up to b_l1hdr (HDR_L2ONLY_SIZE)",
    ],
    check: |facts| if has_l2arc(facts) { of_arc(facts, headers) } else { Vec::new() },
};

fn headers(arc: &Counters) -> Finding {
    let (Some(headers), Some(most)) = (arc.get("l2_hdr_size"), arc.get("c_max").filter(|c| *c > 0)) else {
        return Finding::unknown("l2arc", "arcstats lack l2_hdr_size or c_max");
    };
    let percent = headers as f64 / most as f64 * 100.0;
    let gauge = Gauge { value: percent, unit: Unit::Percent, raise: 10.0, clear: 8.0 };
    Finding::measured("l2arc", gauge, || Problem {
        severity: if percent >= 25.0 { Severity::Warning } else { Severity::Notice },
        summary: "L2ARC headers occupy a large part of the ARC.".into(),
        evidence: vec![
            Evidence::number("headers", headers as f64, Unit::Bytes),
            Evidence::number("ARC maximum (c_max)", most as f64, Unit::Bytes),
            Evidence::number("share of the ARC", percent, Unit::Percent),
            Evidence::number("in the L2ARC", arc.or_zero("l2_asize") as f64, Unit::Bytes),
        ],
        remedy: remedy(
            &["zfs set secondarycache=metadata DATASET".into(), "zpool remove POOL CACHEDEVICE".into()],
            Risk::Low,
            "Apply it to datasets with small blocks that gain least from the L2ARC. Both commands can be \
             undone; the L2ARC then fills again.",
        ),
    })
}

pub(super) const ARC_SMALL_FOR_METADATA: Rule = Rule {
    id: "arc-small-for-metadata",
    about: "A full ARC with metadata misses.",
    reason: "A metadata miss costs a small random read before the requested read can start: about 10 ms each \
        on spinning disks. If the ARC is full and ghost hits grow (blocks requested again shortly after \
        eviction), more memory would have kept them. Advice to raise zfs_arc_meta_limit applies to 2.1 and \
        older: 2.2 removed that limit and balances data and metadata by ghost hits (zfs_arc_meta_balance).",
    sources: &[
        "zfs(4): zfs_arc_max, zfs_arc_meta_balance",
        "field report 001 (ARC policy and metadata)",
        "field report 000 (special vdev and metadata)",
    ],
    check: |facts| {
        if facts.pools.is_empty() { Vec::new() } else { of_arc(facts, |arc| metadata(facts, arc)) }
    },
};

fn metadata(facts: &Facts, arc: &Counters) -> Finding {
    let (hits, misses) = (arc.or_zero("demand_metadata_hits"), arc.or_zero("demand_metadata_misses"));
    let rate = arc.percent("demand_metadata_misses", "demand_metadata_hits");
    let Some(percent) = rate.filter(|_| hits + misses >= 10 * ENOUGH) else {
        return Finding::unknown("arc", format!("only {} metadata lookups so far", hits + misses));
    };
    let (size, target, most) =
        (arc.or_zero("size") as f64, arc.or_zero("c") as f64, arc.or_zero("c_max") as f64);
    let ghosts = arc.or_zero("mru_ghost_hits") + arc.or_zero("mfu_ghost_hits");
    if size < 0.9 * target || ghosts == 0 {
        // The ARC holds everything ever read: misses are first reads.
        return Finding::fine("arc");
    }
    let gauge = Gauge { value: percent, unit: Unit::Percent, raise: 5.0, clear: 4.0 };
    Finding::measured("arc", gauge, || {
        let mut evidence = vec![
            Evidence::number("demand metadata misses", percent, Unit::Percent),
            Evidence::number("ARC", size, Unit::Bytes),
            Evidence::number("metadata in the ARC", arc.or_zero("arc_meta_used") as f64, Unit::Bytes),
            Evidence::number("ARC maximum (c_max)", most, Unit::Bytes),
            Evidence::number("ghost hits", ghosts as f64, Unit::Count),
        ];
        let more_memory = match facts.is_of_daemon {
            true => "cenote serve --memory SIZE",
            false => "echo BYTES > /sys/module/zfs/parameters/zfs_arc_max",
        };
        evidence
            .extend(facts.memory_bytes.map(|bytes| Evidence::number("memory", bytes as f64, Unit::Bytes)));
        Problem {
            severity: Severity::Notice,
            summary: "The ARC is full but too small for the metadata in use.".into(),
            evidence,
            remedy: remedy(
                &[more_memory.into(), "zpool add POOL special mirror NEWSSD1 NEWSSD2".into()],
                Risk::Medium,
                "Raise the maximum only as far as programs leave memory free; it can be lowered again at any \
                 time. A special vdev takes all metadata written from then on: it must be as redundant as \
                 the pool, and cannot be removed from a pool with RAID-Z.",
            ),
        }
    })
}
