//! The counters of a pool's vdevs as lines, and what passed between two looks.

use cenote_control::zpool::shown::iostat::Counted;
use cenote_host::traffic::Traffic;
use cenote_pool::{VdevClass, VdevKind, VdevStatus};

use super::super::tree::{HEADED_CLASSES, Style, name};

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

    fn heading(name: &str) -> Line {
        Line { name: name.into(), depth: 0, space: None, traffic: None }
    }
}

impl Sample {
    /// A pool's lines.
    pub fn of(pool: &Counted, style: Style) -> Sample {
        let mut lines = Vec::new();
        let root = &pool.health.root;
        lines.push(Line { name: pool.pool.clone(), ..line(pool, root, 0, style) });
        let is_shown = |top: &&VdevStatus| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect);
        let tops = |class| root.children.iter().filter(is_shown).filter(move |top| top.class == class);
        tops(VdevClass::Normal).for_each(|top| add(&mut lines, pool, top, 2, style));
        for (class, heading) in HEADED_CLASSES {
            lines.extend(tops(class).next().map(|_| Line::heading(heading)));
            tops(class).for_each(|top| add(&mut lines, pool, top, 2, style));
        }
        lines.extend(pool.health.l2cache.first().map(|_| Line::heading("cache")));
        lines.extend(pool.health.l2cache.iter().map(|vdev| line(pool, vdev, 2, style)));
        Sample { lines, ns: pool.open_ns }
    }

    /// What has passed since the last look at all pools; of one that was not open then, or was opened again,
    /// everything.
    pub fn since_last(&self, all: &[Sample]) -> Sample {
        let is_it = |old: &&Sample| old.lines[0].name == self.lines[0].name && old.ns <= self.ns;
        all.iter().find(is_it).map_or_else(|| self.clone(), |old| self.since(old))
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

fn add(lines: &mut Vec<Line>, pool: &Counted, vdev: &VdevStatus, depth: usize, style: Style) {
    lines.push(line(pool, vdev, depth, style));
    vdev.children.iter().for_each(|child| add(lines, pool, child, depth + 2, style));
}

fn line(pool: &Counted, vdev: &VdevStatus, depth: usize, style: Style) -> Line {
    let space = pool.space.get(&vdev.guid).map(|space| (space.allocated_bytes, space.free_bytes));
    let traffic = Some(pool.traffic.get(&vdev.guid).cloned().unwrap_or_default());
    Line { name: name(vdev, style), depth, space, traffic }
}
