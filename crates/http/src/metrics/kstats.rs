//! `node_zfs_*`: kstats under node_exporter's names.

use cenote_host::kstat::{self, DatasetCounts};
use cenote_host::pools::Pools;

use super::families::{Families, Kind};

/// Global kstat files and the prefixes of their metrics.
const OF_ALL: [(&str, &str); 4] = [
    ("arcstats", "node_zfs_arc_"),
    ("dmu_tx", "node_zfs_dmu_tx_"),
    ("zfetchstats", "node_zfs_zfetch_"),
    ("zil", "node_zfs_zil_"),
];
/// Counters of each dataset that node_exporter exports.
const OF_DATASET: [&str; 6] = ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"];
/// Pool states, which exclude each other.
const STATES: [&str; 7] = ["online", "degraded", "faulted", "offline", "removed", "unavail", "suspended"];

const HELP: (Kind, &str) = (Kind::Untyped, "A kstat of OpenZFS's name.");

const DELAY: (Kind, &str) =
    (Kind::Gauge, "Average time between multihost heartbeats; 0 if multihost is off.");
const WRITES: (Kind, &str) = (Kind::Counter, "Multihost heartbeats by result.");

/// Adds all kstats. `datasets`: open datasets with their pools' names.
pub fn add(pools: &Pools, datasets: &[(String, DatasetCounts)], families: &mut Families) {
    for (file, prefix) in OF_ALL {
        for (name, count) in kstat::counts(pools, file).unwrap_or_default() {
            families.add(&format!("{prefix}{name}"), HELP, &[], count as f64);
        }
    }
    for (pool, DatasetCounts { name, counts, .. }) in datasets {
        let labels = [("dataset", &**name), ("zpool", &**pool)];
        for (name, count) in counts.iter().filter(|(name, _)| OF_DATASET.contains(name)) {
            families.add(&format!("node_zfs_zpool_dataset_{name}"), HELP, &labels, *count as f64);
        }
    }
    for pool in pools.all() {
        let (beats, labels) = (pool.engine.multihost(), [("zpool", &*pool.name)]);
        let delay = beats.delay().as_secs_f64();
        families.add("cenote_multihost_delay_seconds", DELAY, &labels, delay);
        let counts = beats.counts();
        for (result, count) in
            [("written", counts.written), ("failed", counts.failed), ("skipped", counts.skipped)]
        {
            let labels = [("result", result), ("zpool", &*pool.name)];
            families.add("cenote_multihost_writes_total", WRITES, &labels, count as f64);
        }
        let state = pool.engine.pool().status().shown_state().to_lowercase();
        let state = if STATES.contains(&&*state) { &*state } else { "unavail" };
        for shown in STATES {
            let labels = [("state", shown), ("zpool", &*pool.name)];
            let is_in = if shown == state { 1.0 } else { 0.0 };
            families.add("node_zfs_zpool_state", (Kind::Gauge, "The pool is in this state."), &labels, is_in);
        }
    }
}
