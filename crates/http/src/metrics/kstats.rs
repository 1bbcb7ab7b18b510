//! `node_zfs_*`: kstats by node_exporter's names.

use cenote_serve::kstat;
use cenote_serve::pools::Pools;

use super::families::{Families, Kind};

/// Files of all pools together, and what their counters' names begin with.
const OF_ALL: [(&str, &str); 4] = [
    ("arcstats", "node_zfs_arc_"),
    ("dmu_tx", "node_zfs_dmu_tx_"),
    ("zfetchstats", "node_zfs_zfetch_"),
    ("zil", "node_zfs_zil_"),
];
/// Of each dataset, those that node_exporter shows.
const OF_DATASET: [&str; 6] = ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"];
/// States of a pool; it is in one of them.
const STATES: [&str; 7] = ["online", "degraded", "faulted", "offline", "removed", "unavail", "suspended"];

const HELP: (Kind, &str) = (Kind::Untyped, "A kstat of OpenZFS's name.");

/// Adds them.
pub async fn add(pools: &Pools, families: &mut Families) {
    for (file, prefix) in OF_ALL {
        let text = kstat::text(pools, file).await.unwrap_or_default();
        for (name, value) in counts(&text) {
            families.add(&format!("{prefix}{name}"), HELP, &[], value);
        }
    }
    for file in kstat::names(pools).iter().filter(|name| name.contains("/objset-")) {
        let Some((pool, _)) = file.split_once('/') else { continue };
        let Some(text) = kstat::text(pools, file).await else { continue };
        let dataset = text.lines().filter_map(|line| line.strip_prefix("dataset_name"));
        let dataset = dataset.filter_map(|rest| rest.trim_start().split_once(' ')).next();
        let Some((_, dataset)) = dataset else { continue };
        let labels = [("dataset", dataset.trim()), ("zpool", pool)];
        for (name, value) in counts(&text).filter(|(name, _)| OF_DATASET.contains(name)) {
            families.add(&format!("node_zfs_zpool_dataset_{name}"), HELP, &labels, value);
        }
    }
    for pool in pools.all() {
        let state = pool.engine.pool().status().root.state.to_string().to_lowercase();
        let state = if STATES.contains(&&*state) { &*state } else { "unavail" };
        for shown in STATES {
            let labels = [("state", shown), ("zpool", &*pool.name)];
            let is_in = if shown == state { 1.0 } else { 0.0 };
            families.add("node_zfs_zpool_state", (Kind::Gauge, "The pool is in this state."), &labels, is_in);
        }
    }
}

/// Names and numbers of a kstat's text: lines of name, type and number.
fn counts(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines().skip(2).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, kind, value) = (words.next()?, words.next()?, words.next()?);
        let is_number = matches!(kind, "3" | "4");
        is_number.then(|| value.parse().ok().map(|value| (name, value))).flatten()
    })
}
