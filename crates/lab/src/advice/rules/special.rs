//! Special and dedup vdevs: how full, how redundant.

use super::{Finding, Problem, Rule, remedy};
use crate::advice::{Evidence, Gauge, Risk, Severity};
use crate::machine::zpool::{Class, Pool, Vdev};
use crate::unit::Unit;

pub(super) const SPECIAL_FULL: Rule = Rule {
    id: "special-full",
    about: "A special class that is nearly full.",
    reason: "From 75 % on (zfs_special_class_metadata_reserve_pct is 25) small blocks of files go to the normal vdevs, without a word; when the class is \
        full, so does metadata. Nothing fails and nothing moves back: what is on the slow vdevs stays there until it is written again.",
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
        return Some(Finding::unknown(&pool.name, "`zpool status -j` did not tell the special vdevs' size"));
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
                false => "The special vdevs take no small blocks any more.".to_owned(),
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
                "A special vdev can't be removed again from a pool with RAID-Z, and must be as redundant as the pool. A smaller \
                 special_small_blocks concerns only what is written from then on.",
            ),
        }
    }))
}

pub(super) const SPECIAL_LESS_REDUNDANT: Rule = Rule {
    id: "special-less-redundant",
    about: "A special or dedup vdev that may lose fewer disks than the data vdevs.",
    reason: "The special class is no cache: it holds the only copies of metadata (two or three of each, but perhaps on the same disk). If it is \
        lost, the pool is lost, however redundant the rest is.",
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
                "{} ({}) may lose {may_lose} disks, the data vdevs {data}.",
                vdev.name,
                vdev.shape()
            ),
            evidence: vec![
                Evidence::number("disks that it may lose", may_lose as f64, Unit::Count),
                Evidence::number("disks that each data vdev may lose", data as f64, Unit::Count),
                Evidence::number("allocated on it", vdev.allocated_bytes.unwrap_or(0) as f64, Unit::Bytes),
            ],
            remedy: remedy(
                &[format!("zpool attach {} {disk} NEWSSD", pool.name)],
                Risk::Low,
                "NEWSSD is overwritten; it is resilvered at once. `zpool detach` takes it away again.",
            ),
        };
        Finding::bad(subject, problem)
    };
    pool.vdevs.iter().filter(|vdev| matches!(vdev.class, Class::Special | Class::Dedup)).map(of).collect()
}
