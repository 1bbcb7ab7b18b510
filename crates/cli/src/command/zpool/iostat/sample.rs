//! A look at the counters of a pool's vdevs.

use cenote_dataset::usage::VdevUsage;
use cenote_format::units::VdevId;
use cenote_host::pools::OpenPool;
use cenote_host::traffic::{Loads, Traffic, loads};
use cenote_pool::{VdevClass, VdevKind, VdevStatus};

use super::super::tree::{HEADED_CLASSES, Style, name};
use crate::outcome::CliError;

/// A pool at some moment, or what passed between two.
#[derive(Clone)]
pub struct Sample {
    /// The pool, then its vdevs.
    pub lines: Vec<Line>,
    /// When, or how long, in nanoseconds since the pool was opened.
    pub ns: u64,
}

/// A vdev, or a heading.
#[derive(Clone)]
pub struct Line {
    pub name: String,
    pub depth: usize,
    /// Allocated and free bytes, of a pool or top-level vdev.
    pub space: Option<(u64, u64)>,
    /// None for a heading.
    pub traffic: Option<Traffic>,
}

impl Line {
    /// The name as it is indented.
    pub fn shown(&self) -> String {
        format!("{:depth$}{}", "", self.name, depth = self.depth)
    }
}

impl Sample {
    /// Looks at a pool.
    pub async fn take(pool: &OpenPool, style: Style) -> Result<Sample, CliError> {
        let mos = pool.engine.mos().await?;
        let (health, usage) = (mos.pool().status(), mos.usage().await?);
        let ns = pool.engine.runtime().now().since(pool.since).as_nanos() as u64;
        let space = |usage: &VdevUsage| {
            (usage.allocated_bytes, usage.size_bytes.saturating_sub(usage.allocated_bytes))
        };
        let class_of =
            |usage: &VdevUsage| health.root.children.iter().find(|top| VdevId(top.id) == usage.vdev);
        let in_pool =
            usage.iter().filter(|usage| class_of(usage).is_none_or(|top| top.class != VdevClass::Log));
        let total = in_pool.map(space).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let loads = loads(pool);
        let traffic = Some(Traffic::of(pool, &loads, &health.root));
        let mut lines = vec![Line { name: pool.name.clone(), depth: 0, space: Some(total), traffic }];
        let of_top = |top: &VdevStatus| usage.iter().find(|usage| usage.vdev == VdevId(top.id)).map(space);
        let is_shown = |top: &&VdevStatus| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect);
        let tops = |class| health.root.children.iter().filter(is_shown).filter(move |top| top.class == class);
        for top in tops(VdevClass::Normal) {
            add(&mut lines, (pool, &loads), top, 2, of_top(top), style);
        }
        for (class, heading) in HEADED_CLASSES {
            for (index, top) in tops(class).enumerate() {
                if index == 0 {
                    lines.push(Line { name: heading.into(), depth: 0, space: None, traffic: None });
                }
                add(&mut lines, (pool, &loads), top, 2, of_top(top), style);
            }
        }
        let used = pool.engine.cache_devices().usage();
        for (index, vdev) in health.l2cache.iter().enumerate() {
            if index == 0 {
                lines.push(Line { name: "cache".into(), depth: 0, space: None, traffic: None });
            }
            let used = used.iter().find(|used| used.vdev == vdev.guid);
            let space =
                used.map(|used| (used.used_bytes, used.capacity_bytes.saturating_sub(used.used_bytes)));
            let traffic = used.map(|used| Traffic::of_device(&used.counters)).unwrap_or_default();
            lines.push(Line { name: name(vdev, style), depth: 2, space, traffic: Some(traffic) });
        }
        Ok(Sample { lines, ns })
    }

    /// What has passed since an earlier look.
    pub fn since(&self, before: &Sample) -> Sample {
        let line = |line: &Line| {
            let old = before.lines.iter().find(|old| old.name == line.name && old.depth == line.depth);
            let traffic = match (&line.traffic, old.and_then(|old| old.traffic.as_ref())) {
                (Some(now), Some(old)) => Some(now.since(old)),
                (now, _) => now.clone(),
            };
            Line { traffic, ..line.clone() }
        };
        Sample { lines: self.lines.iter().map(line).collect(), ns: self.ns.saturating_sub(before.ns) }
    }

    /// A count as so many in a second.
    pub fn per_second(&self, count: u64) -> u64 {
        (u128::from(count) * 1_000_000_000 / u128::from(self.ns.max(1))) as u64
    }
}

fn add(
    lines: &mut Vec<Line>,
    (pool, loads): (&OpenPool, &Loads),
    vdev: &VdevStatus,
    depth: usize,
    space: Option<(u64, u64)>,
    style: Style,
) {
    let traffic = Some(Traffic::of(pool, loads, vdev));
    lines.push(Line { name: name(vdev, style), depth, space, traffic });
    for child in &vdev.children {
        add(lines, (pool, loads), child, depth + 2, None, style);
    }
}
