//! `zpool history`: the commands run on the pool and, with `-i`, its internal events.
//!
//! Times are UTC. Of the users, only root is named: other uids belong to another machine.
//!
//! Source: OpenZFS `print_history_records`.

use std::fmt::Write as _;

use cenote_control::text::{dotted_time, escape_terminal};
use cenote_control::zpool::shown::history::Recorded;
use cenote_format::history::key;
use cenote_format::nvlist::{NvValue, Nvlist};
use serde_json::{Value, json};

use crate::json::{document, nvlist};

/// Names of the numbered internal events in old records, `zfs_history_event_names`.
const LEGACY_EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

/// Content of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// Internal events, too.
    pub internal: bool,
    /// User, host and zone of each command.
    pub long: bool,
}

impl Layout {
    /// One pool's history as text.
    pub fn text(&self, Recorded { pool, records }: &Recorded) -> String {
        let lines: String = records.iter().filter_map(|record| self.record(record)).collect();
        format!("History for '{pool}':\n{lines}\n")
    }

    /// As JSON.
    pub fn json(&self, all: &[Recorded]) -> Value {
        let entry = |Recorded { pool, records }: &Recorded| {
            let shown = records.iter().filter(|record| self.internal || record.contains(key::CMD));
            let records: Vec<Value> = shown.map(nvlist).collect();
            (pool.clone(), json!({"name": pool, "history": records}))
        };
        document("zpool history", "pools", all.iter().map(entry).collect())
    }

    fn record(&self, record: &Nvlist) -> Option<String> {
        let mut time = record.get_u64(key::TIME).map_or_else(String::new, |s| dotted_time(s.cast_signed()));
        if let Some(NvValue::Int64(ns)) = record.get(key::ELAPSED_NS) {
            let _ = write!(time, " ({}ms)", ns / 1_000_000);
        }
        let mut line = match text(record, key::CMD) {
            Some(command) => format!("{time} {command}"),
            None if !self.internal => return None,
            None => format!("{time} {}", event(record)),
        };
        if self.long {
            line.push_str(&who(record));
        }
        Some(line + "\n")
    }
}

/// An internal event.
fn event(record: &Nvlist) -> String {
    let txg = record.get_u64(key::TXG).unwrap_or(0);
    let details = text(record, key::INT_STR).unwrap_or_default();
    if let Some(number) = record.get_u64(key::INT_EVENT) {
        return match usize::try_from(number).ok().and_then(|number| LEGACY_EVENTS.get(number)) {
            Some(name) => format!("[internal {name} txg:{txg}] {details}"),
            None => unrecognized(record),
        };
    }
    if let Some(name) = text(record, key::INT_NAME) {
        let dataset = text(record, key::DSNAME).map_or_else(String::new, |dataset| {
            format!(" {dataset} ({})", record.get_u64(key::DSID).unwrap_or(0))
        });
        return format!("[txg:{txg}] {name}{dataset} {details}");
    }
    text(record, key::IOCTL).map_or_else(|| unrecognized(record), |name| ioctl(&name, record))
}

fn unrecognized(record: &Nvlist) -> String {
    format!("unrecognized record:\n{}", indented(record, 4))
}

fn ioctl(name: &str, record: &Nvlist) -> String {
    let mut out = format!("ioctl {name}\n");
    for (key, heading) in [(key::INPUT_NVL, "input"), (key::OUTPUT_NVL, "output")] {
        if let Some(list) = record.get_nvlist(key) {
            let _ = write!(out, "    {heading}:\n{}", indented(list, 8));
        }
    }
    if let Some(NvValue::Int64(size)) = record.get(key::OUTPUT_SIZE) {
        let _ = writeln!(out, "    output nvlist omitted; original size: {}KB", size / 1024);
    }
    match record.get(key::ERRNO) {
        Some(NvValue::Int32(errno)) => _ = writeln!(out, "    errno: {errno}"),
        Some(NvValue::Int64(errno)) => _ = writeln!(out, "    errno: {errno}"),
        _ => {}
    }
    out
}

/// A string of a record, escaped for printing.
fn text(record: &Nvlist, key: &str) -> Option<String> {
    record.get_string_bytes(key).map(escape_terminal)
}

/// An nvlist, one pair per line, escaped for printing.
pub fn indented(list: &Nvlist, columns: usize) -> String {
    let text = list.to_string();
    text.lines().map(|line| format!("{:columns$}{}\n", "", escape_terminal(line.as_bytes()))).collect()
}

fn who(record: &Nvlist) -> String {
    let mut out = String::from(" [");
    if let Some(uid) = record.get_u64(key::WHO) {
        let _ = write!(out, "user {uid} ");
        out.push_str(if uid == 0 { "(root) " } else { "" });
    }
    if let Some(host) = text(record, key::HOST) {
        let _ = write!(out, "on {host}");
    }
    if let Some(zone) = text(record, key::ZONE) {
        let _ = write!(out, ":{zone}");
    }
    out + "]"
}
