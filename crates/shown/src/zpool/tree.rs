//! The tree of vdevs as `zpool status` and `zpool import` draw it.
//!
//! ```text
//!   NAME        STATE     READ WRITE CKSUM
//!   tank        DEGRADED     0     0     0
//!     raidz1-0  DEGRADED     0     0     0        normal vdevs; then dedup, special, logs under headings
//!       a       ONLINE       0     0     0
//!   spares
//!     s         AVAIL
//! ```
//!
//! Source: OpenZFS `print_status_config`, `print_import_config`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cenote_control::answers::{ErrorCounts, PoolHealth, Trouble, VdevClass, VdevKind, VdevState, VdevStatus};
use cenote_format::units::{Guid, VdevId};

use crate::numbers::Numbers;

/// Classes with their own heading, in order.
pub const HEADED_CLASSES: [(VdevClass, &str); 3] =
    [(VdevClass::Dedup, "dedup"), (VdevClass::Special, "special"), (VdevClass::Log, "logs")];

/// How devices are named: by default, the last component of the path where each was found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names {
    /// Full paths.
    pub paths: bool,
    /// Symbolic links in paths are resolved.
    pub follow: bool,
    /// Guids instead of names.
    pub guids: bool,
}

/// How the tree is drawn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Show error columns and the device's last path, as `zpool status` does.
    pub counters: bool,
    /// How numbers are printed.
    pub numbers: Numbers,
    /// Add a column for slow reads.
    pub slow: bool,
    /// Add a column for direct I/O checksum errors.
    pub direct: bool,
    /// Omit healthy vdevs, except the pool itself.
    pub only_unhealthy: bool,
    /// How devices are named.
    pub names: Names,
    /// Mark devices being resilvered, if known.
    pub resilvering: bool,
}

/// A vdev's name in this style.
pub fn name(vdev: &VdevStatus, style: Style) -> String {
    let is_missing = matches!(vdev.trouble, Some(Trouble::CannotOpen { was: Some(_) }));
    let is_leaf = matches!(vdev.kind, VdevKind::Disk | VdevKind::File);
    let Names { paths, follow, guids } = style.names;
    match &vdev.path {
        _ if guids && vdev.kind != VdevKind::Root => vdev.guid.to_string(),
        // The last path of a missing device may be another device by now.
        _ if is_missing && is_leaf && style.counters => vdev.guid.to_string(),
        Some(path) if is_leaf && (paths || follow) => {
            let real = std::fs::canonicalize(path).ok().filter(|_| follow);
            let path = real.map_or_else(|| path.clone(), |real| real.to_string_lossy().into_owned());
            if paths { path } else { path.rsplit('/').next().unwrap_or_default().to_owned() }
        }
        _ => vdev.name.clone(),
    }
}

/// The name of a top-level vdev.
pub fn name_of(root: &VdevStatus, id: VdevId) -> String {
    let top = root.children.iter().find(|top| top.id == id.0);
    top.map_or_else(|| format!("vdev {id}"), |top| top.name.clone())
}

/// Notes printed after the lines of single devices.
pub type Notes = BTreeMap<Guid, String>;

/// Draws the tree, each line indented by a tab; `more` goes behind the heading.
pub fn draw_with(health: &PoolHealth, style: Style, notes: &Notes, more: &str) -> String {
    let drawn = draw(health, style, notes);
    match drawn.split_once('\n') {
        Some((heading, rest)) if style.counters => format!("{heading}{more}\n{rest}"),
        _ => drawn,
    }
}

/// Draws the tree, each line indented by a tab.
pub fn draw(health: &PoolHealth, style: Style, notes: &Notes) -> String {
    let mut tree = Tree { style, notes, width: 10, out: String::new() };
    tree.width = tree.width.max(tree.widest(health));
    if style.counters {
        tree.heading();
    }
    tree.vdev(&health.root, 0, false);
    for (class, heading) in HEADED_CLASSES {
        let of_class = health.root.children.iter().filter(|top| top.class == class && tree.is_drawn(top));
        let of_class: Vec<&VdevStatus> = of_class.collect();
        for (i, top) in of_class.into_iter().enumerate() {
            if i == 0 {
                let _ = writeln!(tree.out, "\t{heading}\t");
            }
            tree.vdev(top, 2, false);
        }
    }
    for (heading, vdevs, spare) in [("cache", &health.l2cache, false), ("spares", &health.spares, true)] {
        if vdevs.iter().any(|vdev| tree.is_drawn(vdev)) {
            let _ = writeln!(tree.out, "\t{heading}");
        }
        vdevs.iter().for_each(|vdev| tree.vdev(vdev, 2, spare));
    }
    tree.out
}

/// Whether it and everything below it are online without errors.
fn is_well(vdev: &VdevStatus) -> bool {
    let mut well = true;
    vdev.walk(&mut |vdev| well &= vdev.state == VdevState::Online && vdev.errors == ErrorCounts::default());
    well
}

/// Whether it or anything below it had slow operations.
fn is_slow(vdev: &VdevStatus) -> bool {
    let mut slow = false;
    vdev.walk(&mut |vdev| slow |= vdev.slow_ios.is_some_and(|count| count > 0));
    slow
}

struct Tree<'a> {
    style: Style,
    notes: &'a Notes,
    width: usize,
    out: String,
}

impl Tree<'_> {
    fn is_drawn(&self, vdev: &VdevStatus) -> bool {
        let is_there = !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect);
        let is_well = is_well(vdev) && !(self.style.slow && is_slow(vdev));
        let is_left_out = self.style.only_unhealthy && vdev.kind != VdevKind::Root && is_well;
        is_there && !is_left_out
    }

    fn heading(&mut self) {
        let width = self.width;
        let _ = write!(
            self.out,
            "\t{:width$}  {:<8} {:>5} {:>5} {:>5}",
            "NAME", "STATE", "READ", "WRITE", "CKSUM"
        );
        self.out.push_str(if self.style.slow { "  SLOW" } else { "" });
        self.out.push_str(if self.style.direct { "   DIO\n" } else { "\n" });
    }

    fn widest(&self, health: &PoolHealth) -> usize {
        fn below(vdev: &VdevStatus, depth: usize, style: Style) -> usize {
            let children = vdev.children.iter().map(|child| below(child, depth + 2, style));
            children.max().unwrap_or(0).max(depth + name(vdev, style).chars().count())
        }
        let listed = health.l2cache.iter().chain(&health.spares).map(|vdev| below(vdev, 2, self.style));
        listed.max().unwrap_or(0).max(below(&health.root, 0, self.style))
    }

    fn vdev(&mut self, vdev: &VdevStatus, depth: usize, spare: bool) {
        if !self.is_drawn(vdev) {
            return;
        }
        let name = name(vdev, self.style);
        let width = self.width - depth;
        let mut line = format!("\t{:depth$}{name:width$}  {:<8}", "", vdev.shown_state(spare));
        if self.style.counters && !spare {
            for count in [vdev.errors.read, vdev.errors.write, vdev.errors.checksum] {
                let _ = write!(line, " {:>5}", self.style.numbers.count(count));
            }
            // These counts are not on disk. Direct I/O is not counted.
            let counts = [(self.style.slow, vdev.slow_ios), (self.style.direct, None)];
            for (_, count) in counts.into_iter().filter(|(is_asked, _)| *is_asked) {
                let count = count.map_or_else(|| "-".into(), |count| self.style.numbers.count(count));
                let _ = write!(line, " {count:>5}");
            }
        }
        if let Some(why) = self.why(vdev) {
            let _ = write!(line, "  {why}");
        }
        if self.style.counters && vdev.removing {
            line.push_str("  (removing)");
        } else if self.style.counters && vdev.non_allocating {
            line.push_str("  (non-allocating)");
        }
        if self.style.resilvering && vdev.resilvering && vdev.state == VdevState::Online {
            line.push_str(if vdev.awaits_resilver { "  (awaiting resilver)" } else { "  (resilvering)" });
        }
        if let Some(note) = self.notes.get(&vdev.guid) {
            line.push_str(note);
        }
        self.out.push_str(line.trim_end_matches(' '));
        self.out.push('\n');
        let is_top = depth == 0;
        for child in vdev.children.iter().filter(|child| !is_top || child.class == VdevClass::Normal) {
            self.vdev(child, depth + 2, spare);
        }
    }

    fn why(&self, vdev: &VdevStatus) -> Option<String> {
        match vdev.trouble.as_ref()? {
            Trouble::CannotOpen { was: Some(_) } if !self.style.counters => Some("cannot open".into()),
            trouble => Some(trouble.to_string()),
        }
    }
}
