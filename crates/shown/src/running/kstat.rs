//! `kstat`: the daemon's counters, by OpenZFS's names.

use cenote_control::running::kstat::{Counted, Counters};
use serde_json::{Map, Value, json};

use crate::json::document;

/// As text.
pub fn text(counted: &Counted) -> String {
    match counted {
        Counted::Names(names) => names.iter().map(|name| format!("{name}\n")).collect(),
        Counted::Counters(counters) => counters.to_string(),
        Counted::All(_) => String::new(),
    }
}

/// As JSON. `asked`: the name asked for.
pub fn json(counted: &Counted, asked: &str) -> Value {
    let entries = match counted {
        Counted::Names(names) => names.iter().map(|name| (name.clone(), json!({}))).collect(),
        Counted::Counters(counters) => Map::from_iter([(asked.to_owned(), as_json(counters).into())]),
        Counted::All(all) => {
            all.iter().map(|(name, counters)| (name.clone(), as_json(counters).into())).collect()
        }
    };
    document("kstat", "kstats", entries)
}

/// Values by name; txgs and heartbeats by number.
fn as_json(counters: &Counters) -> Map<String, Value> {
    match counters {
        Counters::Counts { dataset, counts, .. } => {
            let dataset = dataset.iter().map(|name| ("dataset_name".to_owned(), json!(name)));
            dataset.chain(counts.iter().map(|(name, count)| (name.clone(), json!(count)))).collect()
        }
        // OpenZFS's file for it has no names.
        Counters::State(_) => Map::new(),
        Counters::Multihost(beats) => {
            let entry = beats.iter().map(|beat| {
                let entry = json!({
                    "id": beat.record.id,
                    "txg": beat.record.txg,
                    "timestamp": beat.record.timestamp_s,
                    "error": beat.error(),
                    "duration": beat.record.duration_ns,
                    "mmp_delay": beat.record.delay_ns,
                    "vdev_guid": beat.record.leaf,
                    "skipped": beat.record.skipped,
                    "vdev_path": beat.path,
                });
                (beat.record.id.to_string(), entry)
            });
            entry.collect()
        }
        Counters::Txgs(records) => {
            let entry = records.iter().map(|record| {
                let [read, written] = record.moved;
                let entry = json!({
                    "txg": record.txg,
                    "birth": record.birth_ns,
                    "state": "C",
                    "ndirty": record.dirty_bytes,
                    "nread": read.bytes,
                    "nwritten": written.bytes,
                    "reads": read.operations,
                    "writes": written.operations,
                    "otime": record.open_ns,
                    "qtime": record.quiesce_ns,
                    "wtime": 0,
                    "stime": record.sync_ns,
                });
                (record.txg.to_string(), entry)
            });
            entry.collect()
        }
    }
}
