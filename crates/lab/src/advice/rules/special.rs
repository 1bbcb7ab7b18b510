//! Special and dedup vdevs: fill and redundancy.

use super::rule::{Finding, Problem, Rule, remedy};
use crate::advice::item::{Evidence, Gauge, Risk, Severity};
use crate::load::machine::zpool::{Class, Pool, Vdev};
use crate::unit::Unit;

pub(super) const SPECIAL_FULL: Rule = Rule {
    id: "special-full",
    about: "A nearly full special class.",
    reason: "From 75 % on (zfs_special_class_metadata_reserve_pct is 25), small file blocks go to the normal \
        vdevs without notice; when the class is full, so does metadata. Nothing fails, and nothing moves \
        back: blocks on the slow vdevs stay there until they are rewritten.",
    sources: &[
        "zfs(4): zfs_special_class_metadata_reserve_pct",
        "zpoolconcepts(7): Special Allocation Class",
        "module/zfs/spa_misc.c: spa_preferred_class",
    ],
    check: |facts| facts.pools.iter().filter_map(full).collect(),
};

fn full(pool: &Pool) -> Option<Finding> {
    pool.class(Class::Special).next()?;
    let Some((allocated, size)) = pool.space(Class::Special) else {
        return Some(Finding::unknown(
            &pool.name,
            "`zpool status -j` did not report the size of the special vdevs",
        ));
    };
    let (allocated, size) = (allocated as f64, size as f64);
    let small: Vec<_> = pool.datasets.iter().filter(|dataset| dataset.special_small_bytes > 0).collect();
    let (raise, clear) = if small.is_empty() { (85.0, 82.0) } else { (75.0, 72.0) };
    let percent = allocated / size * 100.0;
    let gauge = Gauge { value: percent, unit: Unit::Percent, raise, clear };
    Some(Finding::measured(&pool.name, gauge, || {
        let mut commands = vec![format!("zpool add {} special mirror NEWSSD1 NEWSSD2", pool.name)];
        commands
            .extend(small.first().map(|dataset| format!("zfs set special_small_blocks=0 {}", dataset.name)));
        Problem {
            severity: Severity::Warning,
            summary: match small.is_empty() {
                true => "The special vdevs are nearly full.".into(),
                false => "The special vdevs no longer accept small blocks.".to_owned(),
            },
            evidence: vec![
                Evidence::number("special class in use", percent, Unit::Percent),
                Evidence::number("allocated", allocated, Unit::Bytes),
                Evidence::number("size", size, Unit::Bytes),
                Evidence::number("datasets with special_small_blocks", small.len() as f64, Unit::Count),
            ],
            remedy: remedy(
                &commands,
                Risk::Medium,
                "A special vdev must be as redundant as the pool, and cannot be removed from a pool with \
                 RAID-Z. A smaller special_small_blocks applies only to data written from then on.",
            ),
        }
    }))
}

pub(super) const SPECIAL_LESS_REDUNDANT: Rule = Rule {
    id: "special-less-redundant",
    about: "A special or dedup vdev less redundant than the data vdevs.",
    reason: "The special class is no cache: it holds the only copies of metadata (two or three of each \
        block, but perhaps on the same disk). If it is lost, the pool is lost, however redundant the rest.",
    sources: &["zpoolconcepts(7): Virtual Devices, special and dedup", "zpool-attach(8)"],
    check: |facts| facts.pools.iter().flat_map(less_redundant).collect(),
};

fn less_redundant(pool: &Pool) -> Vec<Finding> {
    let data = pool.class(Class::Normal).map(Vdev::may_lose).min().unwrap_or(0);
    let of = |vdev: &Vdev| {
        let subject = format!("{}/{}", pool.name, vdev.name);
        let may_lose = vdev.may_lose();
        if may_lose >= data {
            return Finding::fine(subject);
        }
        let disk = vdev
            .leaves()
            .first()
            .map_or(vdev.name.clone(), |leaf| leaf.path.clone().unwrap_or(leaf.name.clone()));
        let problem = Problem {
            severity: if may_lose == 0 { Severity::Critical } else { Severity::Warning },
            summary: format!(
                "{} ({}) survives the loss of {may_lose} disks, the data vdevs of {data}.",
                vdev.name,
                vdev.shape()
            ),
            evidence: vec![
                Evidence::number("disks that it can lose", may_lose as f64, Unit::Count),
                Evidence::number("disks that each data vdev can lose", data as f64, Unit::Count),
                Evidence::number("allocated on it", vdev.allocated_bytes.unwrap_or(0) as f64, Unit::Bytes),
            ],
            remedy: remedy(
                &[format!("zpool attach {} {disk} NEWSSD", pool.name)],
                Risk::Low,
                "NEWSSD is overwritten and resilvered at once. `zpool detach` removes it again.",
            ),
        };
        Finding::bad(subject, problem)
    };
    pool.vdevs.iter().filter(|vdev| matches!(vdev.class, Class::Special | Class::Dedup)).map(of).collect()
}
