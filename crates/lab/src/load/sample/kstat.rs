//! Counters of the ZFS module: its kstats.
//!
//! A kstat does not distinguish counters from states; [`is_gauge`] does. Kstats of a pool are in a folder of
//! its name. Among these, `txgs` lists the last hundred txgs, which are summed as they are seen.
//!
//! Source: OpenZFS arc.c (`arc_stats`), dbuf.c, abd_os.c, dmu_tx.c, zil.c, dataset_kstats.c, spa_stats.c.

use std::collections::HashMap;

use crate::load::machine::Root;
use crate::load::machine::zpool::named;
use crate::load::samples::Kind::{Counter, Gauge};
use crate::load::samples::SampledHistogram;
use crate::unit::Unit;

use super::recorder::{Head, Recorder};

pub const FOLDER: &str = "proc/spl/kstat/zfs";
const OF_MODULE: [&str; 11] = [
    "arcstats",
    "abdstats",
    "brtstats",
    "dbufstats",
    "dmu_tx",
    "dnodestats",
    "metaslab_stats",
    "vdev_mirror_stats",
    "zfetchstats",
    "zil",
    "zio_stats",
];
pub fn module(root: &Root, recorder: &mut Recorder) {
    for source in OF_MODULE {
        match root.read(format!("{FOLDER}/{source}")) {
            Ok(text) => note(source, "", &text, recorder),
            Err(error) if source == "arcstats" => {
                let why = format!("/{FOLDER}: {error}; the ZFS module is not loaded on this machine");
                return recorder.missing("kstat", why);
            }
            // Older modules have fewer.
            Err(_) => {}
        }
    }
}

fn note(source: &str, subject: &str, text: &str, recorder: &mut Recorder) {
    for (name, value) in named(text) {
        let Ok(value) = value.parse::<f64>() else { continue };
        let kind = if is_gauge(source, name) { Gauge } else { Counter };
        recorder.note(Head { source, subject, kind }, name, unit(name), value);
    }
}

/// Whether a value is a state rather than a count of events.
fn is_gauge(source: &str, name: &str) -> bool {
    const ARC: [&str; 24] = [
        "c",
        "c_min",
        "c_max",
        "p",
        "pd",
        "pm",
        "meta",
        "hash_elements",
        "hash_elements_max",
        "hash_chains",
        "hash_chain_max",
        "memory_all_bytes",
        "memory_free_bytes",
        "memory_available_bytes",
        "arc_no_grow",
        "arc_tempreserve",
        "arc_loaned_bytes",
        "arc_need_free",
        "arc_sys_free",
        "cached_only_in_progress",
        "l2_log_blk_count",
        "l2_data_to_meta_ratio",
        "l2_log_blk_avg_asize",
        "arc_dnode_limit",
    ];
    match source {
        "arcstats" if name.starts_with("l2_rebuild") => false,
        "arcstats" => {
            name.ends_with("size")
                || name.ends_with("_data")
                || name.ends_with("_metadata")
                || name.starts_with("arc_meta_")
                || ARC.contains(&name)
        }
        "abdstats" => true,
        "dbufstats" => {
            name.contains("_bytes")
                || name.ends_with("cache_count")
                || name.starts_with("cache_level_")
                || matches!(name, "hash_elements" | "hash_elements_max" | "hash_chains" | "hash_chain_max")
                || name.starts_with("hash_table") | name.starts_with("hash_mutex")
        }
        "zfetchstats" => name == "io_active",
        _ => false,
    }
}

fn unit(name: &str) -> Unit {
    const BYTES: [&str; 11] = [
        "scatter_chunk_waste",
        "c",
        "c_min",
        "c_max",
        "p",
        "nread",
        "nwritten",
        "arc_meta_used",
        "arc_tempreserve",
        "arc_need_free",
        "arc_sys_free",
    ];
    let bytes = name.contains("bytes")
        || name.ends_with("size")
        || name.ends_with("_data")
        || name.ends_with("_metadata")
        || (name.starts_with("evict_l2") && name != "evict_l2_skip")
        || (name.starts_with("zil_itx_metaslab") && !name.ends_with("_count"))
        || BYTES.contains(&name);
    if bytes { Unit::Bytes } else { Unit::Count }
}

#[derive(Debug, Default, Clone, Copy)]
struct Groups {
    last: u64,
    synced: u64,
    dirty_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
    times_ns: [u64; 4],
}

/// Kstats of pools: of their datasets (source `objset`, with the dataset as subject), their txgs (`txgs`) and
/// their I/O (`iostats`).
#[derive(Debug, Default)]
pub struct Pools {
    groups: HashMap<String, Groups>,
}

impl Pools {
    pub fn read(&mut self, root: &Root, pool: &str, recorder: &mut Recorder) {
        let folder = format!("{FOLDER}/{pool}");
        let files = root.list(&folder);
        if files.is_empty() {
            return recorder.missing("objset", format!("/{folder}: no kstats; is the pool imported?"));
        }
        for file in files.iter().filter(|file| file.starts_with("objset-")) {
            // A dataset may have been unmounted since the folder was listed.
            let Ok(text) = root.read(format!("{folder}/{file}")) else { continue };
            let name = named(&text).find_map(|(name, value)| (name == "dataset_name").then_some(value));
            note("objset", name.unwrap_or(file), &text, recorder);
        }
        if let Ok(text) = root.read(format!("{folder}/iostats")) {
            note("iostats", pool, &text, recorder);
        }
        match root.read(format!("{folder}/txgs")) {
            Ok(text) => self.groups.entry(pool.to_owned()).or_default().read(&text, pool, recorder),
            Err(error) => recorder.missing("txgs", format!("/{folder}/txgs: {error}")),
        }
    }
}

impl Groups {
    /// Lines are `txg birth state ndirty nread nwritten reads writes otime qtime wtime stime`; a txg in state
    /// `C` is on disk.
    fn read(&mut self, text: &str, pool: &str, recorder: &mut Recorder) {
        let seen_before = self.last > 0;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
            let Some(txg) = number(0).filter(|txg| words.get(2) == Some(&"C") && *txg > self.last) else {
                continue;
            };
            self.last = txg;
            // Txgs completed before the start do not count.
            if seen_before {
                let value = |index| number(index).unwrap_or(0);
                self.synced += 1;
                self.dirty_bytes += value(3);
                self.read_bytes += value(4);
                self.written_bytes += value(5);
                for (sum, index) in self.times_ns.iter_mut().zip(8..) {
                    *sum += value(index);
                }
            }
        }
        let head = Head { source: "txgs", subject: pool, kind: Counter };
        let mut note = |name: &str, unit, value: u64| recorder.note(head, name, unit, value as f64);
        note("synced", Unit::Count, self.synced);
        note("dirty_bytes", Unit::Bytes, self.dirty_bytes);
        note("read_bytes", Unit::Bytes, self.read_bytes);
        note("written_bytes", Unit::Bytes, self.written_bytes);
        for (name, ns) in ["open_time", "quiesce_time", "wait_time", "sync_time"].iter().zip(self.times_ns) {
            note(name, Unit::Nanoseconds, ns);
        }
    }
}

/// Writers' waits for a txg (`dmu_tx_assign`), as a histogram since the import with power-of-two buckets.
pub fn assign_waits(root: &Root, pool: &str) -> Option<SampledHistogram> {
    let text = root.read(format!("{FOLDER}/{pool}/dmu_tx_assign")).ok()?;
    let buckets = named(&text).filter_map(|(name, count)| {
        let upper: f64 = name.strip_suffix("ns")?.trim().parse().ok()?;
        Some(((upper / 2.0).floor(), upper, count.parse().ok()?))
    });
    Some(SampledHistogram {
        source: "dmu_tx_assign".into(),
        subject: pool.to_owned(),
        name: "wait".into(),
        unit: Unit::Nanoseconds,
        buckets: buckets.collect(),
    })
}
