//! Facts from the machine's description: each target's fill and kind of disks, and which disks rotate.

use std::collections::BTreeMap;

use serde_json::Value;

/// Known facts about a target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetFacts {
    /// Fill of its pool or file system, in percent.
    pub fill_percent: Option<f64>,
    /// Kind of disks: speed against fill is compared only among equals.
    pub medium: Option<String>,
    /// Layout of the disks: `mirror`, `raidz1`.
    pub layout: Option<String>,
    /// All devices below it; empty if unknown.
    pub devices: Vec<String>,
    /// Device numbers of its file system; None for a device.
    pub file_system: Option<(u64, u64)>,
}

/// Known facts about the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Setting {
    /// Facts about each target, by name.
    pub targets: BTreeMap<String, TargetFacts>,
    /// Which disks rotate, by name.
    pub rotates: BTreeMap<String, bool>,
}

impl Setting {
    /// Whether a target is on a pool, whose disks move different bytes than requested.
    pub fn is_pool(&self, target: &str) -> bool {
        self.targets.get(target).is_some_and(|facts| facts.layout.is_some())
    }

    /// Whether a disk is known to be below a target.
    pub fn is_below(&self, target: &str, disk: &str) -> bool {
        let devices = self.targets.get(target).map_or(&[][..], |facts| &facts.devices);
        devices.is_empty() || devices.iter().any(|device| device == disk)
    }

    /// Whether a disk, or the disk of a partition, rotates.
    pub fn rotates(&self, disk: &str) -> Option<bool> {
        let whole = disk.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('p');
        self.rotates.get(disk).or_else(|| self.rotates.get(whole)).copied()
    }

    /// Reads `machine.json` (a [`Machine`](crate::load::machine::Machine), possibly written by another
    /// version). Missing facts stay unknown.
    pub fn from_machine(machine: &Value) -> Setting {
        let disks: Vec<Disk> = list(machine, "disks").filter_map(Disk::of).collect();
        let facts = |place: &Value| Some((text(place, "target")?.to_owned(), facts(machine, place, &disks)));
        Setting {
            targets: list(machine, "places").filter_map(facts).collect(),
            rotates: disks.iter().filter_map(|d| Some((d.name.to_owned(), d.rotates?))).collect(),
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

#[derive(Debug)]
struct Disk<'a> {
    name: &'a str,
    medium: &'a str,
    rotates: Option<bool>,
}

impl<'a> Disk<'a> {
    fn of(value: &'a Value) -> Option<Disk<'a>> {
        let transport = text(value, "transport").unwrap_or("unknown");
        // Older versions believed a virtual disk's claim, which its driver had made up.
        let is_known = matches!(transport, "nvme" | "sata" | "sas" | "usb")
            || value.get("rotation_rpm").is_some_and(Value::is_u64);
        let rotates = value.get("rotational").and_then(Value::as_bool).filter(|yes| !yes || is_known);
        let medium = match (rotates, transport) {
            (Some(true), _) => "HDD",
            (Some(false), "nvme") => "NVMe SSD",
            (Some(false), "sata" | "sas" | "usb") => "SSD",
            (Some(false), _) => transport,
            (None, _) => transport,
        };
        Some(Disk { name: text(value, "name")?, medium, rotates })
    }
}

fn facts(machine: &Value, place: &Value, disks: &[Disk<'_>]) -> TargetFacts {
    let devices: Vec<&str> = list(place, "devices").filter_map(Value::as_str).collect();
    let mut media: Vec<&str> = disks.iter().filter(|d| devices.contains(&d.name)).map(|d| d.medium).collect();
    media.sort_unstable();
    media.dedup();
    // A pool of rotating disks may have its log and cache on others.
    let medium = if media.contains(&"HDD") {
        Some("HDD".to_owned())
    } else {
        (!media.is_empty()).then(|| media.join(" and "))
    };
    let name = text(place, "dataset").and_then(|dataset| dataset.split('/').next());
    let pool = name.and_then(|name| list(machine, "pools").find(|pool| text(pool, "name") == Some(name)));
    TargetFacts {
        fill_percent: fill(pool, "allocated_bytes").or_else(|| fill(place.get("mount"), "used_bytes")),
        medium,
        layout: pool.map(layout),
        devices: devices.into_iter().map(str::to_owned).collect(),
        file_system: place.get("mount").and_then(file_system),
    }
}

fn file_system(mount: &Value) -> Option<(u64, u64)> {
    let numbers = mount.get("device")?;
    Some((numbers.get(0)?.as_u64()?, numbers.get(1)?.as_u64()?))
}

fn fill(of: Option<&Value>, used: &str) -> Option<f64> {
    let number = |key: &str| of?.get(key)?.as_f64();
    let size = number("size_bytes").filter(|size| *size > 0.0)?;
    Some(number(used)? / size * 100.0)
}

/// A pool's normal vdevs: `2 x mirror`, `raidz1`, `4 x leaf`.
fn layout(pool: &Value) -> String {
    let kind = |vdev: &Value| match vdev.get("kind") {
        Some(Value::Object(parity)) => {
            parity.iter().next().map_or_else(String::new, |(kind, parity)| format!("{kind}{parity}"))
        }
        Some(Value::String(kind)) if kind == "leaf" => "disk".to_owned(),
        kind => kind.and_then(Value::as_str).unwrap_or("unknown").to_owned(),
    };
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for vdev in list(pool, "vdevs").filter(|vdev| text(vdev, "class") == Some("normal")) {
        *kinds.entry(kind(vdev)).or_default() += 1;
    }
    let words = kinds
        .iter()
        .map(|(kind, count)| if *count == 1 { kind.clone() } else { format!("{count} x {kind}") });
    words.collect::<Vec<_>>().join(" and ")
}
