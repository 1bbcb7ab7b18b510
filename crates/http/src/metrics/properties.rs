//! `zfs_pool_*`, `zfs_dataset_*`: properties by zfs_exporter's names, as the commands print them.

use std::sync::Arc;

use cenote_serve::run::{self, Document};
use cenote_serve::socket::Serving;
use serde_json::Value;

use super::families::{Families, Kind};

/// What a list of all datasets may take; a list beyond it is left out.
const LIST_BYTES_MAX: usize = 256 << 20;

/// A property, the metric that it becomes, and what it says.
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

/// Adds those of pools.
pub async fn add_pools(commands: &Arc<dyn Serving>, families: &mut Families) {
    let wanted = POOL.iter().chain([&HEALTH]).map(|shown| shown.0);
    let columns: Vec<&str> = ["name"].into_iter().chain(wanted).collect();
    let words = ["zpool", "list", "--json", "-p", "-o", &columns.join(",")];
    let listed = run::document(commands, words, LIST_BYTES_MAX).await;
    add_success(&listed, "pool", families);
    for (pool, entry) in entries(&listed.value, "pools") {
        for (property, metric, help) in POOL {
            let value = match text(entry, property) {
                Some("on") => Some(1.0),
                Some("off") => Some(0.0),
                Some(text) => number(text),
                None => None,
            };
            // These two are percentages there.
            let scale = if matches!(property, "capacity" | "fragmentation") { 0.01 } else { 1.0 };
            if let Some(value) = value {
                families.add(metric, (Kind::Gauge, help), &[("pool", pool)], value * scale);
            }
        }
        let health = match text(entry, "health") {
            Some("ONLINE") => 0.0,
            Some("DEGRADED") => 1.0,
            Some("FAULTED") => 2.0,
            Some("OFFLINE") => 3.0,
            Some("REMOVED") => 5.0,
            Some("SUSPENDED") => 6.0,
            _ => 4.0,
        };
        families.add(HEALTH.1, (Kind::Gauge, HEALTH.2), &[("pool", pool)], health);
    }
}

/// Adds those of file systems and volumes.
pub async fn add_datasets(commands: &Arc<dyn Serving>, families: &mut Families) {
    let columns: Vec<&str> = ["name"].into_iter().chain(DATASET.iter().map(|shown| shown.0)).collect();
    let words = ["zfs", "list", "--json", "-p", "-t", "filesystem,volume", "-o", &columns.join(",")];
    let listed = run::document(commands, words, LIST_BYTES_MAX).await;
    add_success(&listed, "dataset", families);
    for (name, entry) in entries(&listed.value, "datasets") {
        let kind = if entry["type"] == "VOLUME" { "volume" } else { "filesystem" };
        let pool = name.split('/').next().unwrap_or(name);
        for (property, metric, help) in DATASET {
            if let Some(value) = text(entry, property).and_then(number) {
                let labels = [("name", name), ("pool", pool), ("type", kind)];
                families.add(metric, (Kind::Gauge, help), &labels, value);
            }
        }
    }
}

/// Says whether all could be shown.
fn add_success(listed: &Document, collector: &str, families: &mut Families) {
    let is_whole = f64::from(u8::from(listed.failed.is_none()));
    families.add(SUCCESS.0, (Kind::Gauge, SUCCESS.1), &[("collector", collector)], is_whole);
}

fn entries<'a>(document: &'a Value, root: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    document[root].as_object().into_iter().flatten().map(|(name, entry)| (&**name, entry))
}

fn text<'a>(entry: &'a Value, property: &str) -> Option<&'a str> {
    entry["properties"][property]["value"].as_str()
}

/// A number, whatever unit stands behind it: `1.00x`, `6%`.
fn number(text: &str) -> Option<f64> {
    text.trim_end_matches(['x', '%']).parse().ok()
}
