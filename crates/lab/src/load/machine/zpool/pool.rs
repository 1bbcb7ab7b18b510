//! A pool: its state, its space, its vdevs, its datasets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::{number, text};
use super::{Class, Dataset, Properties, Vdev};

/// Last scrub or resilver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// `SCRUB` or `RESILVER`.
    pub function: String,
    /// `FINISHED`, `SCANNING`, `CANCELED`, `NONE`.
    pub state: String,
    /// Start, in seconds since 1970, UTC.
    pub start_unix_s: u64,
    /// End, likewise; 0 if still running.
    pub end_unix_s: u64,
    /// Errors found.
    pub errors: u64,
}

/// A pool with its vdevs and datasets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Pool name.
    pub name: String,
    /// Pool GUID.
    pub guid: u64,
    /// `ONLINE`, `DEGRADED`, `FAULTED`, `SUSPENDED`...
    pub state: String,
    /// Problem reported by `zpool status`.
    pub status: Option<String>,
    /// Action recommended by `zpool status`.
    pub action: Option<String>,
    /// Files and objects with unrepairable errors.
    pub data_errors: u64,
    /// Last scrub or resilver since the pool was created, if any.
    pub scan: Option<Scan>,
    /// Bytes of all vdevs except logs and caches (raw: with parity).
    pub size_bytes: Option<u64>,
    /// Allocated bytes on these.
    pub allocated_bytes: Option<u64>,
    /// Fragmentation of free space in percent: see the rule `fragmentation`.
    pub fragmentation_percent: Option<u64>,
    /// References per deduplicated block: 1.0 without deduplication.
    pub dedup_ratio: f64,
    /// Properties that matter for speed and safety: [`PROPERTIES`].
    pub properties: BTreeMap<String, String>,
    /// Top-level vdevs of all classes.
    pub vdevs: Vec<Vdev>,
    /// File systems and volumes.
    pub datasets: Vec<Dataset>,
}

/// Recorded pool properties.
pub const PROPERTIES: [&str; 9] = [
    "ashift",
    "autotrim",
    "autoexpand",
    "autoreplace",
    "checkpoint",
    "compatibility",
    "failmode",
    "leaked",
    "readonly",
];

/// Lists of top-level vdevs in `zpool status -j`, by class.
const CLASSES: [(&str, Class); 5] = [
    ("special", Class::Special),
    ("dedup", Class::Dedup),
    ("logs", Class::Log),
    ("l2cache", Class::Cache),
    ("spares", Class::Spare),
];

impl Pool {
    pub(super) fn from_status(name: &str, value: &Value) -> Pool {
        let list = |value: Option<&Value>, class: Class| {
            value.map(|children| Vdev::list_from_status(children, class)).unwrap_or_default()
        };
        let root = value.get("vdevs").and_then(|roots| roots.get(name)).and_then(|root| root.get("vdevs"));
        let mut vdevs = list(root, Class::Normal);
        for (key, class) in CLASSES {
            vdevs.extend(list(value.get(key), class));
        }
        Pool {
            name: name.to_owned(),
            state: text(value, "state").unwrap_or_default(),
            status: text(value, "status").map(|s| one_line(&s)),
            action: text(value, "action").map(|s| one_line(&s)),
            data_errors: number(value, "error_count").unwrap_or(0),
            scan: value.get("scan_stats").and_then(scan),
            guid: number(value, "pool_guid").unwrap_or(0),
            dedup_ratio: 1.0,
            properties: BTreeMap::new(),
            size_bytes: None,
            allocated_bytes: None,
            fragmentation_percent: None,
            vdevs,
            datasets: Vec::new(),
        }
    }

    pub(super) fn add_properties(&mut self, properties: &Properties) {
        let get = |name: &str| properties.number(&self.name, name);
        let text = |name: &str| properties.text(&self.name, name);
        self.guid = get("guid").unwrap_or(self.guid);
        self.dedup_ratio = text("dedupratio").and_then(ratio).unwrap_or(1.0);
        let known = PROPERTIES.iter().filter_map(|name| Some(((*name).to_owned(), text(name)?.to_owned())));
        self.properties = known.collect();
        (self.size_bytes, self.allocated_bytes) = (get("size"), get("allocated"));
        self.fragmentation_percent = get("fragmentation");
    }

    /// Top-level vdevs of a class.
    pub fn class(&self, class: Class) -> impl Iterator<Item = &Vdev> {
        self.vdevs.iter().filter(move |vdev| vdev.class == class)
    }

    /// (allocated, size) in bytes of the vdevs of a class; None if none.
    pub fn space(&self, class: Class) -> Option<(u64, u64)> {
        let sum = |of: fn(&Vdev) -> Option<u64>| self.class(class).filter_map(of).sum::<u64>();
        let (allocated, size) = (sum(|vdev| vdev.allocated_bytes), sum(|vdev| vdev.size_bytes));
        (size > 0).then_some((allocated, size))
    }

    /// Fill of the vdevs of a class, in percent.
    pub fn class_percent(&self, class: Class) -> Option<f64> {
        self.space(class).map(|(allocated, size)| allocated as f64 / size as f64 * 100.0)
    }

    /// Fill of all vdevs except logs and caches, in percent.
    pub fn capacity_percent(&self) -> Option<f64> {
        let size = self.size_bytes.filter(|size| *size > 0)?;
        Some(self.allocated_bytes? as f64 / size as f64 * 100.0)
    }
}

/// `1.00`, `1.00x`.
fn ratio(text: &str) -> Option<f64> {
    text.trim_end_matches('x').parse().ok()
}

fn scan(value: &Value) -> Option<Scan> {
    Some(Scan {
        function: text(value, "function").filter(|function| function != "NONE")?,
        state: text(value, "state")?,
        start_unix_s: number(value, "start_time").unwrap_or(0),
        end_unix_s: number(value, "end_time").unwrap_or(0),
        errors: number(value, "errors").unwrap_or(0),
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
