//! Vdevs in `zpool status -j`, and the part that `zpool list -jv` shares.
//!
//! Source: OpenZFS `vdev_stats_nvlist`, `fill_vdev_info`.

use cenote_control::answers::{PoolHealth, VdevClass, VdevKind, VdevState, VdevStatus};
use cenote_control::zpool::shown::status::Space;
use cenote_format::units::VdevId;
use serde_json::{Map, Value, json};

use super::scripts::Scripts;
use super::tree::{HEADED_CLASSES, Style, name};
use crate::numbers::Numbers;

/// Everything needed to describe a vdev.
pub struct Report<'a> {
    /// Space of the top-level vdevs.
    pub usage: &'a [Space],
    /// How vdevs are named, and numbers printed.
    pub style: Style,
    /// All vdevs beside each other, each with the name of its parent.
    pub flat: bool,
    /// Columns of scripts.
    pub scripts: Option<&'a Scripts>,
}

impl Report<'_> {
    /// `vdevs` with the tree, and a section for each class, cache devices and spares, if present; or all in
    /// `vdevs`.
    pub fn sections(&self, health: &PoolHealth) -> Map<String, Value> {
        let mut sections = Map::new();
        let mut all = Map::new();
        self.put(&mut all, &health.root, VdevClass::Normal.name(), 0, None);
        let mut section = |heading: &str, mut some: Map<String, Value>| match self.flat {
            true => all.append(&mut some),
            false if some.is_empty() => {}
            false => _ = sections.insert(heading.into(), some.into()),
        };
        for (class, heading) in HEADED_CLASSES {
            let tops = health.root.children.iter().filter(|top| top.class == class);
            section(heading, self.of(tops, class.name(), 1));
        }
        section("l2cache", self.of(health.l2cache.iter(), "l2cache", 2));
        let spare = |vdev: &VdevStatus| {
            let name = name(vdev, self.style);
            let mut entry = identity(vdev, &name, "spare", self.style.numbers);
            entry.insert("state".into(), json!(vdev.shown_state(true)));
            if let Some(scripts) = self.scripts {
                scripts.add_to(&mut entry, vdev.guid);
            }
            (name, entry.into())
        };
        section("spares", health.spares.iter().filter(|vdev| is_told(vdev)).map(spare).collect());
        sections.insert("vdevs".into(), all.into());
        sections
    }

    fn of<'v>(
        &self,
        vdevs: impl Iterator<Item = &'v VdevStatus>,
        class: &str,
        depth: u32,
    ) -> Map<String, Value> {
        let mut some = Map::new();
        vdevs.filter(|vdev| is_told(vdev)).for_each(|vdev| self.put(&mut some, vdev, class, depth, None));
        some
    }

    /// Adds a vdev with those below it. If flat, these are also added beside it, as OpenZFS does.
    fn put(
        &self,
        item: &mut Map<String, Value>,
        vdev: &VdevStatus,
        class: &str,
        depth: u32,
        parent: Option<&str>,
    ) {
        let own = if depth == 0 { vdev.name.clone() } else { name(vdev, self.style) };
        let mut entry = self.entry(vdev, class, depth);
        if let Some(parent) = parent.filter(|_| self.flat) {
            entry.insert("parent".into(), json!(parent));
        }
        let mut below = Map::new();
        let is_normal = |child: &&VdevStatus| depth > 0 || child.class == VdevClass::Normal;
        for child in vdev.children.iter().filter(is_normal).filter(|child| is_told(child)) {
            if self.flat {
                self.put(item, child, class, depth + 1, Some(&own));
            }
            self.put(&mut below, child, class, depth + 1, Some(&own));
        }
        if !below.is_empty() {
            entry.insert("vdevs".into(), below.into());
        }
        item.insert(own, entry.into());
    }

    /// A vdev without those below it.
    fn entry(&self, vdev: &VdevStatus, class: &str, depth: u32) -> Map<String, Value> {
        let mut entry = identity(vdev, &name(vdev, self.style), class, self.style.numbers);
        // Zero values are omitted.
        let space = self.space(vdev, depth).into_iter().chain([("phys_space", vdev.size_bytes.unwrap_or(0))]);
        entry.extend(
            space.filter(|(_, bytes)| *bytes > 0).map(|(key, bytes)| (key.to_owned(), self.bytes(bytes))),
        );
        let errors = vdev.errors;
        for (name, count) in [
            ("read_errors", errors.read),
            ("write_errors", errors.write),
            ("checksum_errors", errors.checksum),
        ] {
            let numbers = self.style.numbers;
            entry.insert(name.into(), numbers.value(&numbers.count(count)));
        }
        if let Some(count) = vdev.slow_ios {
            let numbers = self.style.numbers;
            entry.insert("slow_ios".into(), numbers.value(&numbers.count(count)));
        }
        if let Some(trouble) = &vdev.trouble {
            entry.insert("aux".into(), json!(trouble.to_string()));
        }
        if let Some(scripts) = self.scripts {
            scripts.add_to(&mut entry, vdev.guid);
        }
        entry
    }

    /// The space of a top-level vdev; for the root, of all vdevs that hold data.
    fn space(&self, vdev: &VdevStatus, depth: u32) -> [(&'static str, u64); 3] {
        let holds_data =
            |id: VdevId| vdev.children.iter().any(|top| VdevId(top.id) == id && top.class != VdevClass::Log);
        let is_meant = |usage: &&Space| match depth {
            0 => holds_data(usage.raw.vdev),
            1 => usage.raw.vdev == VdevId(vdev.id),
            _ => false,
        };
        let (mut allocated, mut total, mut deflated) = (0, 0, 0);
        for usage in self.usage.iter().filter(is_meant) {
            allocated += usage.raw.allocated_bytes;
            total += usage.raw.size_bytes;
            deflated += usage.deflated_bytes;
        }
        [("alloc_space", allocated), ("total_space", total), ("def_space", deflated)]
    }

    fn bytes(&self, bytes: u64) -> Value {
        self.style.numbers.value(&self.style.numbers.bytes(bytes))
    }
}

/// The vdev's identity and state.
pub fn identity(vdev: &VdevStatus, name: &str, class: &str, numbers: Numbers) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(name));
    entry.insert("vdev_type".into(), json!(vdev.kind.name()));
    entry.insert("guid".into(), numbers.value(&vdev.guid.to_string()));
    if let (true, Some(path)) = (vdev.children.is_empty(), &vdev.path) {
        entry.insert("path".into(), json!(path));
    }
    entry.insert("class".into(), json!(class));
    entry.insert("state".into(), json!(state_name(vdev.state)));
    entry
}

/// Whether it is a real vdev rather than a placeholder.
pub fn is_told(vdev: &VdevStatus) -> bool {
    !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect)
}

fn state_name(state: VdevState) -> String {
    match state {
        VdevState::Unavailable => "CANT_OPEN".into(),
        other => other.to_string(),
    }
}
