//! What the pool is made of: sector sizes, unlike vdevs.

use std::collections::BTreeSet;

use super::{Finding, Problem, Rule, remedy};
use crate::advice::{Evidence, Facts, Risk, Severity};
use crate::machine::zpool::{Class, Pool, Vdev};
use crate::unit::Unit;

pub(super) const ASHIFT: Rule = Rule {
    id: "ashift",
    about: "A vdev made for sectors smaller than its disks have.",
    reason: "The disk then reads, changes and writes a whole sector for each part of one that is written. ashift is fixed when a vdev is made: the pool's \
        property `ashift` only counts for vdevs to come, and replacing disks doesn't change it. With ashift=9 disks of 4 KiB sectors without \
        512-byte emulation can't be attached at all. More than needed costs only space: small blocks are rounded up.",
    sources: &["zpoolprops(7): ashift", "OpenZFS documentation, Workload Tuning, Alignment Shift"],
    check: |facts| facts.pools.iter().flat_map(|pool| ashift(facts, pool)).collect(),
};

fn ashift(facts: &Facts, pool: &Pool) -> Vec<Finding> {
    let matters = |vdev: &&Vdev| !matches!(vdev.class, Class::Cache | Class::Spare);
    pool.vdevs.iter().filter(matters).map(|vdev| ashift_of(facts, pool, vdev)).collect()
}

fn ashift_of(facts: &Facts, pool: &Pool, vdev: &Vdev) -> Finding {
    let subject = format!("{}/{}", pool.name, vdev.name);
    let leaves = vdev.leaves();
    let Some(ashift) = vdev.ashift.or_else(|| leaves.iter().find_map(|leaf| leaf.ashift)) else {
        return Finding::unknown(
            subject,
            format!("`zpool get -Hp all {} all-vdevs` did not tell its ashift", pool.name),
        );
    };
    // What `zpool status` compares, or what the system says of the disk.
    let physical = |leaf: &&Vdev| {
        // The first device under the leaf: that is whom ZFS asked.
        let first = facts.disks(leaf).first().and_then(|disk| disk.physical_sector_bytes);
        leaf.physical_ashift.max(first.filter(|bytes| bytes.is_power_of_two()).map(u64::trailing_zeros))
    };
    let most = leaves.iter().filter_map(physical).max();
    let (severity, summary) = match most {
        // From 64 KiB on OpenZFS itself does not follow what disks ask for (zfs_vdev_max_auto_ashift is 14).
        Some(physical) if physical > ashift && physical <= 14 => {
            (Severity::Warning, "Its disks have larger sectors than it was made for.")
        }
        _ if ashift < 12 => (Severity::Notice, "It was made for sectors of less than 4 KiB."),
        _ => return Finding::fine(subject),
    };
    let mut evidence = vec![
        Evidence::word("ashift", ashift.to_string()),
        Evidence::number("sector it was made for", (1_u64 << ashift.min(63)) as f64, Unit::Bytes),
    ];
    evidence.extend(most.map(|most| {
        Evidence::number("physical sector of its disks", (1_u64 << most.min(63)) as f64, Unit::Bytes)
    }));
    let new = most.unwrap_or(12).clamp(12, 14);
    Finding::bad(
        subject,
        Problem {
            severity,
            summary: summary.into(),
            evidence,
            remedy: remedy(
                &[
                    format!("zpool create -n -o ashift={new} NEWPOOL VDEV..."),
                    format!("zfs send -R {}@SNAPSHOT | zfs receive -d NEWPOOL", pool.name),
                ],
                Risk::High,
                "It can't be changed in place. A pool of mirrors and single disks can lose this vdev by `zpool remove`, but only while all its vdevs have one \
                 ashift: add the new ones with the old ashift no more. For all others: a new pool, a copy that is verified, only then the end of the old.",
            ),
        },
    )
}

pub(super) const MIXED_VDEVS: Rule = Rule {
    id: "mixed-vdevs",
    about: "Data vdevs that differ in redundancy, width, size or sector.",
    reason: "Each block lies on one vdev: the pool survives what its weakest vdev survives, and files are as fast as the slowest vdev that has part of them. \
        New blocks go where space is free, so that the emptiest vdev bears most writes until all are equally full; what was \
        written before is not moved.",
    sources: &[
        "zpoolconcepts(7): Virtual Devices",
        "OpenZFS documentation, Workload Tuning, Pool Geometry",
        "zpool-add(8): -f overrides the check for this",
    ],
    check: |facts| facts.pools.iter().map(mixed).collect(),
};

fn mixed(pool: &Pool) -> Finding {
    let data: Vec<&Vdev> = pool.class(Class::Normal).collect();
    let differ = |count: usize| count > 1;
    let shapes: BTreeSet<String> = data.iter().map(|vdev| vdev.shape()).collect();
    let redundancies: BTreeSet<usize> = data.iter().map(|vdev| vdev.may_lose()).collect();
    let ashifts: BTreeSet<u32> = data.iter().filter_map(|vdev| vdev.ashift).collect();
    let sizes: Vec<u64> = data.iter().filter_map(|vdev| vdev.size_bytes).collect();
    let (least, most) = (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0));
    let uneven = least > 0 && most as f64 >= 1.5 * least as f64;
    if !differ(shapes.len()) && !differ(ashifts.len()) && !uneven {
        return Finding::fine(&pool.name);
    }
    let mut evidence: Vec<Evidence> = data
        .iter()
        .map(|vdev| {
            let size = Unit::Bytes.show(vdev.size_bytes.unwrap_or(0) as f64);
            let full = Unit::Percent.show(vdev.capacity_percent().unwrap_or(f64::NAN));
            let sector = vdev.ashift.map_or(String::new(), |ashift| format!(", ashift {ashift}"));
            Evidence::word(&vdev.name, format!("{}, {size}, {full} full{sector}", vdev.shape()))
        })
        .collect();
    evidence.truncate(12);
    Finding::bad(
        &pool.name,
        Problem {
            severity: if differ(redundancies.len()) { Severity::Warning } else { Severity::Notice },
            summary: match differ(redundancies.len()) {
                true => "The data vdevs are not equally redundant: the weakest decides.",
                false => "The data vdevs are unlike.",
            }
            .into(),
            evidence,
            remedy: remedy(
                &[
                    format!("zpool remove -n {} VDEV", pool.name),
                    format!("zpool attach {} DISK NEWDISK", pool.name),
                ],
                Risk::Medium,
                "Removing works for mirrors and single disks, if no data vdev is RAID-Z and all have one ashift, and moves all that is on it; attaching makes a \
                 single disk a mirror, or a RAID-Z one disk wider. Otherwise the remedy is a new pool.",
            ),
        },
    )
}
