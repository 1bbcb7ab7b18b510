//! The counters of a pool's vdevs as lines, and the change between two samples.

use cenote_control::answers::{Traffic, VdevClass, VdevKind, VdevStatus};
use cenote_control::zpool::shown::iostat::Counted;
use cenote_format::units::Guid;

use crate::zpool::tree::{HEADED_CLASSES, Style, name};

/// A pool at some moment, or the change between two.
#[derive(Clone)]
pub struct Sample {
    /// The pool, then its vdevs.
    pub lines: Vec<Line>,
    /// Time since the pool was opened, or length of the interval, in nanoseconds.
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
    /// A device's guid.
    pub device: Option<Guid>,
}

impl Line {
    /// The indented name.
    pub fn shown(&self) -> String {
        format!("{:depth$}{}", "", self.name, depth = self.depth)
    }

    fn heading(name: &str) -> Line {
        Line { name: name.into(), depth: 0, space: None, traffic: None, device: None }
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

    /// The change since the pool's last sample in `all`; everything, for a pool not open then or opened
    /// again.
    pub fn since_last(&self, all: &[Sample]) -> Sample {
        let is_it = |old: &&Sample| old.lines[0].name == self.lines[0].name && old.ns <= self.ns;
        all.iter().find(is_it).map_or_else(|| self.clone(), |old| self.since(old))
    }

    /// The change since an earlier sample.
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

    /// A count, per second.
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
    let device = vdev.path.as_ref().map(|_| vdev.guid);
    Line { name: name(vdev, style), depth, space, traffic, device }
}
