//! Layouts printed by `-n` of `zpool create`, `add` and `split`: vdevs to be made, with their devices.

use std::fmt::Write as _;

use cenote_control::answers::{VdevClass, VdevStatus};
use cenote_control::text::nice_bytes;
use cenote_control::zpool::joining::add::Added;
use cenote_control::zpool::layout::devices::{Laid, LaidDevice, LaidVdev};
use serde_json::{Value, json};

use super::tree::{Names, Style, name};
use crate::json::version;

/// A new pool.
pub fn created(pool: &str, laid: &Laid) -> String {
    format!("would create '{pool}' with the following layout:\n\n\t{pool}\n")
        + &layout_lines(&laid.vdevs, 0)
        + &lines_beside("spares", &laid.spares)
        + &lines_beside("cache", &laid.cache)
}

/// A pool with vdevs added to it.
pub fn added(pool: &str, Added { before, laid }: &Added, names: Names) -> String {
    let mut out = format!("would update '{pool}' to the following configuration:\n\n\t{pool}\n");
    let style = Style { names, ..Style::default() };
    for top in &before.root.children {
        let _ = writeln!(out, "\t  {}", name(top, style));
        for leaf in &top.children {
            let _ = writeln!(out, "\t    {}", name(leaf, style));
        }
    }
    out + &layout_lines(&laid.vdevs, before.root.children.len())
        + &lines_beside("spares", &laid.spares)
        + &lines_beside("cache", &laid.cache)
}

/// A pool split off another one, made of these devices.
pub fn split(new_pool: &str, devices: &[VdevStatus], names: Names) -> String {
    let style = Style { names, ..Style::default() };
    let of = |class: VdevClass, heading: &str| {
        let names = devices.iter().filter(|vdev| vdev.class == class).map(|vdev| name(vdev, style));
        let lines: String = names.map(|name| format!("\t  {name}\n")).collect();
        if lines.is_empty() { lines } else { format!("\t{heading}\n{lines}") }
    };
    format!(
        "would create '{new_pool}' with the following layout:\n\n{0}{1}{2}",
        of(VdevClass::Normal, new_pool),
        of(VdevClass::Dedup, "dedup"),
        of(VdevClass::Special, "special"),
    )
}

/// The same as JSON.
pub fn split_json(new_pool: &str, devices: &[VdevStatus], names: Names) -> Value {
    let style = Style { names, ..Style::default() };
    let device = |vdev: &VdevStatus| json!({"name": name(vdev, style), "class": vdev.class.name()});
    json!({
        "output_version": version("zpool split"),
        "dry_run": true,
        "pool": new_pool,
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
    })
}

/// The vdevs and devices of a new or extended pool, as JSON.
pub fn json(command: &str, pool: &str, laid: &Laid) -> Value {
    let devices = |all: &[LaidDevice]| all.iter().map(|device| json!(device)).collect::<Vec<_>>();
    let vdev = |new: &LaidVdev| {
        json!({"vdev_type": new.kind.name(), "parity": new.parity, "class": new.class.name(),
            "devices": devices(&new.devices)})
    };
    json!({
        "output_version": version(command),
        "dry_run": true,
        "pool": pool,
        "vdevs": laid.vdevs.iter().map(vdev).collect::<Vec<_>>(),
        "spares": devices(&laid.spares),
        "l2cache": devices(&laid.cache),
    })
}

/// Devices outside the vdevs: a heading and one line each.
fn lines_beside(heading: &str, devices: &[LaidDevice]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let line = |new: &LaidDevice| format!("\t  {}\t{}\n", new.path, nice_bytes(new.size_bytes));
    std::iter::once(format!("\t{heading}\n")).chain(devices.iter().map(line)).collect()
}

/// New vdevs, numbered from `first`, one device per line.
fn layout_lines(vdevs: &[LaidVdev], first: usize) -> String {
    let (mut out, mut class) = (String::new(), VdevClass::Normal);
    for (index, vdev) in (first..).zip(vdevs) {
        if vdev.class != class {
            class = vdev.class;
            let _ = writeln!(out, "\t{}", class.name());
        }
        let is_single = vdev.devices.len() == 1 && vdev.parity == 0;
        if !is_single {
            let _ = writeln!(out, "\t  {}-{index}", vdev.name);
        }
        for new in &vdev.devices {
            let indent = if is_single { "" } else { "  " };
            let _ = writeln!(out, "\t  {indent}{}\t{}", new.path, nice_bytes(new.size_bytes));
        }
    }
    out
}
