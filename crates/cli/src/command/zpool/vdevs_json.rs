//! Vdevs as `zpool status -j` shows them.
//!
//! Source: OpenZFS `vdev_stats_nvlist`, `fill_vdev_info`.

use cenote_dataset::Mos;
use cenote_dataset::usage::VdevUsage;
use cenote_format::units::VdevId;
use cenote_pool::{PoolHealth, VdevClass, VdevKind, VdevState, VdevStatus};
use serde_json::{Map, Value, json};

use super::tree::{HEADED_CLASSES, state};
use crate::command::json::number_or_text;
use crate::render::{nice_bytes, nice_number};

/// What is needed to tell of a vdev.
pub struct Report<'a> {
    /// Space of the top-level vdevs.
    pub usage: &'a [VdevUsage],
    /// The pool, if it could be opened.
    pub mos: Option<&'a Mos>,
    /// Exact numbers.
    pub exact: bool,
    /// Numbers as numbers.
    pub numbers: bool,
}

impl Report<'_> {
    /// `vdevs` with the tree, and a section each for the classes, cache devices and spares that there are.
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
            let mut entry = self.vdev(vdev, "spare", 2);
            entry["state"] = json!(state(vdev, true));
            entry
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
        let entries: Map<String, Value> =
            vdevs.filter(|(vdev, _)| is_told(vdev)).map(|(vdev, entry)| (vdev.name.clone(), entry)).collect();
        if !entries.is_empty() {
            sections.insert(heading.into(), entries.into());
        }
    }

    fn vdev(&self, vdev: &VdevStatus, class: &str, depth: u32) -> Value {
        let mut entry = Map::new();
        entry.insert("name".into(), json!(vdev.name));
        entry.insert("vdev_type".into(), json!(vdev.kind.name()));
        entry.insert("guid".into(), number_or_text(&vdev.guid.to_string(), self.numbers));
        if let (true, Some(path)) = (vdev.children.is_empty(), &vdev.path) {
            entry.insert("path".into(), json!(path));
        }
        entry.insert("class".into(), json!(class));
        entry.insert("state".into(), json!(state_name(vdev.state)));
        if depth == 1
            && let Some(mos) = self.mos
            && let Some(usage) = self.usage.iter().find(|usage| usage.vdev == VdevId(vdev.id))
        {
            let deflated = mos.pool().vdevs().deflate(usage.vdev, usage.size_bytes);
            entry.insert("alloc_space".into(), self.bytes(usage.allocated_bytes));
            entry.insert("total_space".into(), self.bytes(usage.size_bytes));
            entry.insert("def_space".into(), self.bytes(deflated));
        }
        if let Some(size) = vdev.size_bytes {
            entry.insert("phys_space".into(), self.bytes(size));
        }
        let errors = vdev.errors;
        for (name, count) in [
            ("read_errors", errors.read),
            ("write_errors", errors.write),
            ("checksum_errors", errors.checksum),
        ] {
            let text = if self.exact { count.to_string() } else { nice_number(count) };
            entry.insert(name.into(), number_or_text(&text, self.numbers));
        }
        if let Some(trouble) = &vdev.trouble {
            entry.insert("aux".into(), json!(trouble.to_string()));
        }
        let is_normal = |child: &&VdevStatus| depth > 0 || child.class == VdevClass::Normal;
        let children = vdev.children.iter().filter(is_normal).filter(|child| is_told(child));
        let children: Map<String, Value> =
            children.map(|child| (child.name.clone(), self.vdev(child, class, depth + 1))).collect();
        if !children.is_empty() {
            entry.insert("vdevs".into(), children.into());
        }
        entry.into()
    }

    fn bytes(&self, bytes: u64) -> Value {
        let text = if self.exact { bytes.to_string() } else { nice_bytes(bytes) };
        number_or_text(&text, self.numbers)
    }
}

fn is_told(vdev: &VdevStatus) -> bool {
    !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect)
}

fn state_name(state: VdevState) -> String {
    match state {
        VdevState::Online => "HEALTHY".into(),
        VdevState::Unavailable => "CANT_OPEN".into(),
        other => other.to_string(),
    }
}
