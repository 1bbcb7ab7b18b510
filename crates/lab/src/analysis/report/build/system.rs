//! The system: the targets, their pools, the machine and its disks.

use super::material::Material;
use super::words;
use crate::analysis::report::document::{Column, Document, Table, Text};
use crate::load::machine::zpool::{Class, Dataset, Pool, Vdev};
use crate::load::machine::{Disk, Machine, TargetPlace};
use crate::load::target::TargetKind;
use crate::unit::Unit;

pub fn write(material: &Material<'_>, document: &mut Document) {
    document.section("System");
    let Some(machine) = machine(material) else {
        document.table(bare_targets(material));
        return;
    };
    document.table(targets(&machine));
    document.table(pools(&machine));
    document.table(datasets(&machine));
    document.table(facts(&machine));
    document.table(disks(&machine));
}

/// Machine, if its description can be parsed.
pub fn machine(material: &Material<'_>) -> Option<Machine> {
    serde_json::from_value(material.machine.clone()).ok()
}

pub fn fill_percent(machine: &Machine, target: &str) -> Option<f64> {
    let dataset = machine.places.iter().find(|place| place.target == target)?.dataset.as_deref()?;
    let pool = dataset.split('/').next()?;
    machine.pools.iter().find(|known| known.name == pool)?.capacity_percent()
}

/// Whether a target is on disks with platters, if known for the first of them.
pub fn rotates(machine: &Machine, target: &str) -> Option<bool> {
    let devices = &machine.places.iter().find(|place| place.target == target)?.devices;
    let known = machine.disks.iter().filter(|disk| devices.contains(&disk.name));
    known.filter_map(|disk| disk.rotational).next()
}

fn bare_targets(material: &Material<'_>) -> Table {
    let row = |t: &crate::load::target::Target| {
        vec![Text::new().code(&t.name), Text::new().code(t.path.to_string_lossy()), kind(t.kind).into()]
    };
    Table {
        caption: "Targets.".into(),
        columns: ["Target", "Path", "Kind"].map(Column::words).into(),
        rows: material.summary.targets.iter().map(row).collect(),
    }
}

fn kind(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Folder => "folder",
        TargetKind::File => "file",
        TargetKind::Device => "block device",
    }
}

fn targets(machine: &Machine) -> Table {
    let row = |place: &TargetPlace| {
        let on = match (&place.dataset, &place.mount) {
            (Some(dataset), _) => Text::from("ZFS ").code(dataset),
            (None, Some(mount)) => Text::from(format!("{} of ", mount.kind)).code(&mount.source),
            (None, None) => Text::new(),
        };
        vec![
            Text::new().code(&place.target),
            Text::new().code(place.path.to_string_lossy()),
            kind(place.kind).into(),
            on,
            place.devices.join(", ").into(),
        ]
    };
    Table {
        caption: "Targets.".into(),
        columns: ["Target", "Path", "Kind", "On", "Devices, top to bottom"].map(Column::words).into(),
        rows: machine.places.iter().map(row).collect(),
    }
}

/// Distribution (not always present), kernel, architecture.
fn system(machine: &Machine) -> String {
    let all = [&machine.os, &machine.kernel, &machine.architecture].map(String::as_str);
    all.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn pools(machine: &Machine) -> Table {
    let row = |pool: &Pool| {
        vec![
            Text::new().code(&pool.name),
            layout(pool).into(),
            pool.state.as_str().into(),
            shown(Unit::Bytes, pool.size_bytes.map(|n| n as f64)),
            shown(Unit::Percent, pool.capacity_percent()),
            shown(Unit::Percent, pool.fragmentation_percent.map(|n| n as f64)),
            // 0 means that each vdev decides.
            pool.properties
                .get("ashift")
                .map_or("", |ashift| if ashift == "0" { "by vdev" } else { ashift })
                .into(),
        ]
    };
    let mut columns = ["Pool", "Layout", "State"].map(Column::words).to_vec();
    columns.extend(["Size", "Full", "Fragmented", "ashift"].map(Column::numbers));
    Table {
        caption: "Pools. Size is raw, with parity and copies.".into(),
        columns,
        rows: machine.pools.iter().map(row).collect(),
    }
}

/// `3 × mirror of 2; cache: disk`.
pub fn layout(pool: &Pool) -> String {
    let of_class = |(class, name): (Class, &str)| {
        let mut shapes: Vec<(String, usize)> = Vec::new();
        for shape in pool.class(class).map(Vdev::shape) {
            match shapes.iter_mut().find(|known| known.0 == shape) {
                Some(known) => known.1 += 1,
                None => shapes.push((shape, 1)),
            }
        }
        let shapes = shapes.into_iter().map(|(s, n)| if n > 1 { format!("{n} × {s}") } else { s });
        let shapes = shapes.collect::<Vec<_>>().join(", ");
        (!shapes.is_empty()).then(|| if name.is_empty() { shapes } else { format!("{name}: {shapes}") })
    };
    let classes = [
        (Class::Normal, ""),
        (Class::Special, "special"),
        (Class::Dedup, "dedup"),
        (Class::Log, "log"),
        (Class::Cache, "cache"),
        (Class::Spare, "spare"),
    ];
    classes.into_iter().filter_map(of_class).collect::<Vec<_>>().join("; ")
}

fn datasets(machine: &Machine) -> Table {
    let measured = |d: &&Dataset| machine.places.iter().any(|place| place.dataset.as_ref() == Some(&d.name));
    let row = |d: &Dataset| {
        vec![
            Text::new().code(&d.name),
            Unit::Bytes.show(d.block_bytes() as f64).into(),
            Text::from(d.compression.as_str()).dim(format!(" {:.2}x", d.compress_ratio)),
            d.sync.as_str().into(),
            d.logbias.as_str().into(),
            shown(Unit::Bytes, Some(d.special_small_bytes as f64).filter(|n| *n > 0.0)),
        ]
    };
    let mut columns = vec![Column::words("Dataset"), Column::numbers("Block size")];
    columns.extend(["Compression", "sync", "logbias"].map(Column::words));
    columns.push(Column::numbers("Special vdev block limit"));
    let all = machine.pools.iter().flat_map(|pool| &pool.datasets);
    Table {
        caption: "Datasets of the targets.".into(),
        columns,
        rows: all.filter(measured).map(row).collect(),
    }
}

fn facts(machine: &Machine) -> Table {
    let cpu = &machine.cpu;
    let mut rows = vec![
        ("Host", machine.host.clone()),
        ("System", system(machine)),
        ("Runs in", machine.virtualisation.clone().unwrap_or_default()),
        (
            "Processors",
            format!(
                "{}: {}, {}",
                cpu.model,
                words::count(cpu.cores, "core"),
                words::count(cpu.threads, "thread")
            ),
        ),
        ("Governor", cpu.governor.clone().unwrap_or_default()),
        ("Memory", Unit::Bytes.show(machine.memory_bytes as f64)),
    ];
    if let Some(zfs) = &machine.zfs {
        rows.push(("OpenZFS", format!("module {}, programs {}", zfs.kernel, zfs.userland)));
        let set: Vec<String> = zfs.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        rows.push(("Module parameters", set.join(" ")));
    }
    for interface in machine.interfaces.iter().filter(|i| i.is_device) {
        if let Some(speed) = interface.link_bytes_per_second {
            rows.push((
                "Network",
                format!("{}: {}", interface.name, Unit::BytesPerSecond.show(speed as f64)),
            ));
        }
    }
    rows.retain(|row| !row.1.is_empty());
    Table {
        caption: "The machine.".into(),
        columns: ["Property", "Value"].map(Column::words).into(),
        rows: rows.into_iter().map(|(name, value)| vec![name.into(), value.into()]).collect(),
    }
}

fn disks(machine: &Machine) -> Table {
    let row = |disk: &Disk| {
        let turns = match disk.rotational {
            Some(true) => "rotates",
            Some(false) => "solid state",
            None => "",
        };
        vec![
            Text::new().code(&disk.name),
            disk.model.clone().unwrap_or_default().into(),
            transport(disk).into(),
            turns.into(),
            Unit::Bytes.show(disk.size_bytes as f64).into(),
            shown(Unit::Bytes, disk.physical_sector_bytes.map(|n| n as f64)),
            disk.scheduler.clone().unwrap_or_default().into(),
        ]
    };
    let mut columns = ["Disk", "Model", "Transport", "Medium"].map(Column::words).to_vec();
    columns.extend(["Size", "Sector"].map(Column::numbers));
    columns.push(Column::words("Scheduler"));
    Table {
        caption: "Disks below the targets.".into(),
        columns,
        rows: machine.disks.iter().map(row).collect(),
    }
}

fn transport(disk: &Disk) -> String {
    let word = serde_json::to_value(disk.transport).ok();
    word.and_then(|word| Some(word.as_str()?.replace('_', " "))).unwrap_or_default()
}

fn shown(unit: Unit, value: Option<f64>) -> Text {
    value.map_or_else(|| Text::new().dim("–"), |value| unit.show(value).into())
}
