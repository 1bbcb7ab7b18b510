//! Vdevs in `zpool status -j`, and the part that `zpool list -jv` shares.
//!
//! Source: OpenZFS `vdev_stats_nvlist`, `fill_vdev_info`.

use cenote_control::answers::{PoolHealth, VdevClass, VdevKind, VdevState, VdevStatus};
use cenote_control::zpool::shown::status::Space;
use cenote_format::units::VdevId;
use serde_json::{Map, Value, json};

use super::tree::{HEADED_CLASSES, Style, name};
use crate::numbers::Numbers;

/// Everything needed to describe a vdev.
pub struct Report<'a> {
    /// Space of the top-level vdevs.
    pub usage: &'a [Space],
    /// How vdevs are named, and numbers printed.
    pub style: Style,
}

impl Report<'_> {
    /// `vdevs` with the tree, and a section for each class, cache devices and spares, if present.
    pub fn sections(&self, health: &PoolHealth) -> Map<String, Value> {
        let mut sections = Map::new();
        let root = self.vdev(&health.root, VdevClass::Normal.name(), 0);
        sections.insert("vdevs".into(), json!({ health.root.name.clone(): root }));
        for (class, heading) in HEADED_CLASSES {
            let tops = health.root.children.iter().filter(|top| top.class == class);
            self.add(&mut sections, heading, tops.map(|top| (top, self.vdev(top, class.name(), 1))));
        }
        self.add(
            &mut sections,
            "l2cache",
            health.l2cache.iter().map(|vdev| (vdev, self.vdev(vdev, "l2cache", 2))),
        );
        let spare = |vdev: &VdevStatus| {
            let mut entry = identity(vdev, &name(vdev, self.style), "spare", self.style.numbers);
            entry.insert("state".into(), json!(vdev.shown_state(true)));
            entry.into()
        };
        self.add(&mut sections, "spares", health.spares.iter().map(|vdev| (vdev, spare(vdev))));
        sections
    }

    fn add<'v>(
        &self,
        sections: &mut Map<String, Value>,
        heading: &str,
        vdevs: impl Iterator<Item = (&'v VdevStatus, Value)>,
    ) {
        let entries: Map<String, Value> = vdevs
            .filter(|(vdev, _)| is_told(vdev))
            .map(|(vdev, entry)| (name(vdev, self.style), entry))
            .collect();
        if !entries.is_empty() {
            sections.insert(heading.into(), entries.into());
        }
    }

    fn vdev(&self, vdev: &VdevStatus, class: &str, depth: u32) -> Value {
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
        if let Some(trouble) = &vdev.trouble {
            entry.insert("aux".into(), json!(trouble.to_string()));
        }
        let is_normal = |child: &&VdevStatus| depth > 0 || child.class == VdevClass::Normal;
        let children = vdev.children.iter().filter(is_normal).filter(|child| is_told(child));
        let children: Map<String, Value> =
            children.map(|child| (name(child, self.style), self.vdev(child, class, depth + 1))).collect();
        if !children.is_empty() {
            entry.insert("vdevs".into(), children.into());
        }
        entry.into()
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
