//! The ARC and its second level: whether they hold what is asked for, and what they cost.

use super::{Finding, Problem, Rule, remedy};
use crate::advice::{Evidence, Facts, Gauge, Risk, Severity};
use crate::machine::zpool::{Class, Counters};
use crate::unit::Unit;

const NO_ARCSTATS: &str = "no /proc/spl/kstat/zfs/arcstats: the ZFS module is not loaded here";
/// How many lookups make a rate worth telling.
const ENOUGH: u64 = 1000;

/// A rule about the ARC: on machines that have pools.
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
    about: "An L2ARC with fewer than 85 % hits.",
    reason: "The L2ARC is asked only for what the ARC did not have, so that its rate is not that of the cache as a whole, and is low while it fills \
        (at most l2arc_write_max a second, 32 MiB by default) and for streams (prefetched reads are not kept unless \
        l2arc_noprefetch=0, and count as misses). If it stays low when the device is full, the device does not hold what \
        is read again: memory would serve better. 85 % is report 002's bar for a cache that virtual machines live from.",
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
        summary: format!(
            "{} of the reads that the ARC had not were found in the L2ARC.",
            Unit::Percent.show(percent)
        ),
        evidence: vec![
            Evidence::number("hit rate", percent, Unit::Percent),
            Evidence::number("hits", hits as f64, Unit::Count),
            Evidence::number("misses", misses as f64, Unit::Count),
            Evidence::number("in the L2ARC", filled as f64, Unit::Bytes),
            Evidence::number("size of the L2ARC", size as f64, Unit::Bytes),
            Evidence::number(
                "ARC hit rate",
                arc.percent("hits", "misses").unwrap_or(f64::NAN),
                Unit::Percent,
            ),
        ],
        remedy: remedy(
            &["zpool iostat -v 10".into(), "zpool remove POOL CACHEDEVICE".into()],
            Risk::Low,
            "Look first whether the device still fills. A cache device can be removed and added at any time; its content is lost, not data.",
        ),
    });
    // A bad rate is to be expected of a device that is less than half full and keeps filling.
    if gauge.bad() && filled < size / 2 && facts.counted_s.is_none_or(|s| s < 86_400.0) {
        finding = Finding::unknown(
            "l2arc",
            format!("{} hits, but it is still filling", Unit::Percent.show(percent)),
        );
    }
    finding
}

pub(super) const L2ARC_HEADERS: Rule = Rule {
    id: "l2arc-headers",
    about: "L2ARC headers that take more than a tenth of the ARC.",
    reason: "Each block in the L2ARC has a header of 96 bytes in memory, which is not evicted: 0.07 % of the L2ARC's size for 128 KiB blocks, \
        1.2 % for 8 KiB. So the common rule of so many GB of memory for so many of L2ARC says nothing without the block size. At 33 % of the ARC \
        (l2arc_meta_percent) OpenZFS stops feeding it.",
    sources: &[
        "zfs(4): l2arc_meta_percent",
        "include/sys/arc_impl.h: arc_buf_hdr_t up to b_l1hdr (HDR_L2ONLY_SIZE)",
    ],
    check: |facts| if has_l2arc(facts) { of_arc(facts, headers) } else { Vec::new() },
};

fn headers(arc: &Counters) -> Finding {
    let (Some(headers), Some(most)) = (arc.get("l2_hdr_size"), arc.get("c_max").filter(|c| *c > 0)) else {
        return Finding::unknown("l2arc", "arcstats without l2_hdr_size or c_max");
    };
    let percent = headers as f64 / most as f64 * 100.0;
    let gauge = Gauge { value: percent, unit: Unit::Percent, raise: 10.0, clear: 8.0 };
    Finding::measured("l2arc", gauge, || Problem {
        severity: if percent >= 25.0 { Severity::Warning } else { Severity::Notice },
        summary: "Headers of the L2ARC take a good part of the ARC.".into(),
        evidence: vec![
            Evidence::number("headers", headers as f64, Unit::Bytes),
            Evidence::number("ARC at most (c_max)", most as f64, Unit::Bytes),
            Evidence::number("part of the ARC", percent, Unit::Percent),
            Evidence::number("in the L2ARC", arc.or_zero("l2_asize") as f64, Unit::Bytes),
        ],
        remedy: remedy(
            &["zfs set secondarycache=metadata DATASET".into(), "zpool remove POOL CACHEDEVICE".into()],
            Risk::Low,
            "For the datasets of small blocks that gain least. Both can be taken back; the L2ARC fills anew.",
        ),
    })
}

pub(super) const ARC_SMALL_FOR_METADATA: Rule = Rule {
    id: "arc-small-for-metadata",
    about: "A full ARC that misses metadata.",
    reason: "A miss of metadata is a small random read before the read that was asked for: on spinning disks some 10 ms each. If the ARC is full and \
        ghost hits grow (blocks asked for again shortly after they were evicted), more memory would have kept them. Advice to raise \
        zfs_arc_meta_limit is for 2.1 and before: since 2.2 there is no such limit, data and metadata are balanced by ghost hits \
        (zfs_arc_meta_balance).",
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
        return Finding::unknown("arc", format!("only {} lookups of metadata so far", hits + misses));
    };
    let (size, target, most) =
        (arc.or_zero("size") as f64, arc.or_zero("c") as f64, arc.or_zero("c_max") as f64);
    let ghosts = arc.or_zero("mru_ghost_hits") + arc.or_zero("mfu_ghost_hits");
    if size < 0.9 * target || ghosts == 0 {
        // It holds all that was ever read: misses are first reads.
        return Finding::fine("arc");
    }
    let gauge = Gauge { value: percent, unit: Unit::Percent, raise: 5.0, clear: 4.0 };
    Finding::measured("arc", gauge, || {
        let mut evidence = vec![
            Evidence::number("demand reads of metadata that missed", percent, Unit::Percent),
            Evidence::number("ARC", size, Unit::Bytes),
            Evidence::number("metadata in it", arc.or_zero("arc_meta_used") as f64, Unit::Bytes),
            Evidence::number("ARC at most (c_max)", most, Unit::Bytes),
            Evidence::number("ghost hits", ghosts as f64, Unit::Count),
        ];
        evidence
            .extend(facts.memory_bytes.map(|bytes| Evidence::number("memory", bytes as f64, Unit::Bytes)));
        Problem {
            severity: Severity::Notice,
            summary: "The ARC is full and does not hold the metadata that is asked for.".into(),
            evidence,
            remedy: remedy(
                &[
                    "echo BYTES > /sys/module/zfs/parameters/zfs_arc_max".into(),
                    "zpool add POOL special mirror NEWSSD1 NEWSSD2".into(),
                ],
                Risk::Medium,
                "Raise the first only as far as programs leave memory free; it can be taken back at any time. A special vdev holds all metadata written \
                 from then on: it must be as redundant as the pool, and can't be removed from a pool with RAID-Z.",
            ),
        }
    })
}
