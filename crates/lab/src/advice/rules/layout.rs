//! Pool layout: sector sizes and mismatched vdevs.

use std::collections::BTreeSet;

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::facts::Facts;
use crate::advice::item::{Evidence, Risk, Severity};
use crate::load::machine::zpool::{Class, Pool, Vdev};
use crate::unit::Unit;

pub(super) const ASHIFT: Rule = Rule {
    id: "ashift",
    about: "An ashift smaller than the disks' physical sectors.",
    reason: "The disk must then read, modify and write a whole sector for each partial write. ashift is \
        fixed when a vdev is created: the pool property `ashift` only applies to later vdevs, and replacing \
        disks does not change it. Disks with 4 KiB sectors and no 512-byte emulation cannot be attached to a \
        vdev with ashift=9 at all. Too large an ashift costs only space: small blocks are rounded up.",
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
            format!("`zpool get -Hp all {} all-vdevs` did not report its ashift", pool.name),
        );
    };
    // The sector size that `zpool status` compares, or the one the system reports for the disk.
    let physical = |leaf: &&Vdev| {
        // The first device under the leaf: the one ZFS asks.
        let first = facts.disks(leaf).first().and_then(|disk| disk.physical_sector_bytes);
        leaf.physical_ashift.max(first.filter(|bytes| bytes.is_power_of_two()).map(u64::trailing_zeros))
    };
    let most = leaves.iter().filter_map(physical).max();
    let (severity, summary) = match most {
        // OpenZFS itself ignores sectors from 64 KiB on (`zfs_vdev_max_auto_ashift` is 14).
        Some(physical) if physical > ashift && physical <= 14 => {
            (Severity::Warning, "Its disks have larger sectors than its ashift assumes.")
        }
        _ if ashift < 12 => (Severity::Notice, "Its ashift assumes sectors smaller than 4 KiB."),
        _ => return Finding::fine(subject),
    };
    let mut evidence = vec![
        Evidence::word("ashift", ashift.to_string()),
        Evidence::number("sector size by ashift", (1_u64 << ashift.min(63)) as f64, Unit::Bytes),
    ];
    evidence.extend(most.map(|most| {
        Evidence::number("largest physical sector", (1_u64 << most.min(63)) as f64, Unit::Bytes)
    }));
    let new = most.unwrap_or(12).clamp(12, 14);
    let mut commands = vec![format!("zpool create -n -o ashift={new} NEWPOOL VDEV...")];
    commands.push(Facts::send_command(pool, "SNAPSHOT"));
    Finding::bad(
        subject,
        Problem {
            severity,
            summary: summary.into(),
            evidence,
            remedy: remedy(
                &commands,
                Risk::High,
                "ashift cannot be changed in place. In a pool of mirrors and single disks, `zpool remove` \
                 can remove this vdev, but only while all vdevs have the same ashift: do not add more vdevs \
                 with the old one. Otherwise, create a new pool, copy the data, verify the copy, and only \
                 then destroy the old pool.",
            ),
        },
    )
}

pub(super) const MIXED_VDEVS: Rule = Rule {
    id: "mixed-vdevs",
    about: "Data vdevs that differ in redundancy, width, size or sector size.",
    reason: "Each block lies on one vdev: the pool survives only what its weakest vdev survives, and a file \
        is as fast as the slowest vdev that holds part of it. New blocks go where space is free, so the \
        emptiest vdev takes most writes until all are equally full; existing blocks do not move.",
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
                true => "The data vdevs differ in redundancy; the weakest determines that of the pool.",
                false => "The data vdevs differ.",
            }
            .into(),
            evidence,
            remedy: remedy(
                &[
                    format!("zpool remove -n {} VDEV", pool.name),
                    format!("zpool attach {} DISK NEWDISK", pool.name),
                ],
                Risk::Medium,
                "Only mirrors and single disks can be removed, and only if no data vdev is RAID-Z and all \
                 have the same ashift; removal copies everything on the vdev. Attaching turns a single disk \
                 into a mirror, or widens a RAID-Z by one disk. Otherwise the remedy is a new pool.",
            ),
        },
    )
}
