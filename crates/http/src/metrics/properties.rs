//! `zfs_pool_*`, `zfs_dataset_*`: properties under zfs_exporter's names.

use std::sync::Arc;

use cenote_control::zfs::list::List as Datasets;
use cenote_control::zfs::select::{self, Scope};
use cenote_control::zpool::shown::list::{List as Pools, Listed};
use cenote_dataset::{Property, Value};
use cenote_serve::run::{Heard, ask};
use cenote_serve::socket::Serving;

use super::families::{Families, Kind};

/// A property, its metric, and help.
type Shown = (&'static str, &'static str, &'static str);

const POOL: [Shown; 10] = [
    ("allocated", "zfs_pool_allocated_bytes", "Amount of storage in bytes used within the pool."),
    ("capacity", "zfs_pool_capacity_ratio", "Ratio of pool space used."),
    ("dedupratio", "zfs_pool_deduplication_ratio", "The deduplication ratio of the pool."),
    ("expandsize", "zfs_pool_expand_size_bytes", "Bytes by which the pool could grow."),
    ("fragmentation", "zfs_pool_fragmentation_ratio", "The fragmentation of the pool's free space."),
    ("free", "zfs_pool_free_bytes", "The amount of free space in bytes available in the pool."),
    ("freeing", "zfs_pool_freeing_bytes", "Bytes that are still to be freed."),
    ("leaked", "zfs_pool_leaked_bytes", "Bytes that could not be freed."),
    ("readonly", "zfs_pool_readonly", "Read-only status of the pool [0: read-write, 1: read-only]."),
    ("size", "zfs_pool_size_bytes", "Total size in bytes of the storage pool."),
];
const HEALTH: Shown = (
    "health",
    "zfs_pool_health",
    "Health [0: online, 1: degraded, 2: faulted, 3: offline, 4: unavailable, 5: removed, 6: suspended].",
);
const DATASET: [Shown; 14] = [
    ("available", "zfs_dataset_available_bytes", "The amount of space available to the dataset."),
    ("compressratio", "zfs_dataset_compression_ratio", "How far the dataset's blocks are compressed."),
    ("logicalreferenced", "zfs_dataset_logical_referenced_bytes", "Referenced bytes before compression."),
    ("logicalused", "zfs_dataset_logical_used_bytes", "Used bytes before compression."),
    ("quota", "zfs_dataset_quota_bytes", "The most that the dataset and those below may use."),
    ("refquota", "zfs_dataset_referenced_quota_bytes", "The most that the dataset itself may use."),
    ("referenced", "zfs_dataset_referenced_bytes", "The amount of data accessible by the dataset."),
    ("reservation", "zfs_dataset_reservation_bytes", "Bytes that are reserved for it and those below."),
    ("used", "zfs_dataset_used_bytes", "The amount of space used by the dataset and those below."),
    ("usedbychildren", "zfs_dataset_used_by_children_bytes", "Bytes used by those below."),
    ("usedbydataset", "zfs_dataset_used_by_dataset_bytes", "Bytes used by the dataset itself."),
    ("usedbysnapshots", "zfs_dataset_used_by_snapshot_bytes", "Bytes used by its snapshots alone."),
    ("volsize", "zfs_dataset_volume_size_bytes", "The size of the volume."),
    ("written", "zfs_dataset_written_bytes", "Bytes written since the newest snapshot."),
];

const SUCCESS: (&str, &str) = (
    "zfs_scrape_collector_success",
    "Whether all of it could be shown [0: something is missing, 1: nothing is].",
);

/// Adds pool properties.
pub async fn add_pools(commands: &Arc<dyn Serving>, families: &mut Families) {
    let listed = ask(commands, Pools { pools: Vec::new(), vdevs: false }, "zpool list").await;
    add_success(&listed, "pool", families);
    let Some(listed) = listed.answer else { return };
    for Listed { head, properties, .. } in &listed.pools {
        let pool = &*head.name;
        for (property, metric, help) in POOL {
            let value = match number(properties, property) {
                // zpool shows a dash for 0.
                Some(0) if property == "expandsize" => None,
                number => number.map(|number| number as f64),
            };
            // Ratios are given in hundredths or percent.
            let is_ratio = matches!(property, "capacity" | "fragmentation" | "dedupratio");
            let scale = if is_ratio { 0.01 } else { 1.0 };
            if let Some(value) = value {
                families.add(metric, (Kind::Gauge, help), &[("pool", pool)], value * scale);
            }
        }
        add_health(pool, &head.state, families);
    }
    for waiting in &listed.waiting {
        add_health(&waiting.name, "UNAVAIL", families);
    }
}

fn add_health(pool: &str, state: &str, families: &mut Families) {
    let health = match state {
        "ONLINE" => 0.0,
        "DEGRADED" => 1.0,
        "FAULTED" => 2.0,
        "OFFLINE" => 3.0,
        "REMOVED" => 5.0,
        "SUSPENDED" => 6.0,
        _ => 4.0,
    };
    families.add(HEALTH.1, (Kind::Gauge, HEALTH.2), &[("pool", pool)], health);
}

/// Adds properties of file systems and volumes.
pub async fn add_datasets(commands: &Arc<dyn Serving>, families: &mut Families) {
    let properties = DATASET.iter().map(|shown| shown.0.to_owned()).collect();
    let scope = Scope::default();
    let listed = ask(commands, Datasets { names: Vec::new(), scope, properties }, "zfs list").await;
    add_success(&listed, "dataset", families);
    for shown in listed.answer.into_iter().flat_map(|listed| listed.datasets) {
        let kind = if shown.kind == select::Kind::Volume { "volume" } else { "filesystem" };
        for (property, metric, help) in DATASET {
            if let Some(number) = number(&shown.properties, property) {
                let labels = [("name", &*shown.name), ("pool", shown.pool()), ("type", kind)];
                let scale = if property == "compressratio" { 0.01 } else { 1.0 };
                families.add(metric, (Kind::Gauge, help), &labels, number as f64 * scale);
            }
        }
    }
}

/// Reports whether the list was complete.
fn add_success<T>(listed: &Heard<T>, collector: &str, families: &mut Families) {
    let is_whole = f64::from(u8::from(listed.failed.is_none()));
    families.add(SUCCESS.0, (Kind::Gauge, SUCCESS.1), &[("collector", collector)], is_whole);
}

fn number(properties: &[Property], name: &str) -> Option<u64> {
    match properties.iter().find(|property| property.name == name)?.value {
        Value::Number(number) => Some(number),
        Value::Text(_) => None,
    }
}
