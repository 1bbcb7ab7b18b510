//! `zpool events`: events of pools, one line each, or with all fields.

use std::fmt::Write as _;

use cenote_control::answers::LoggedError;
use cenote_control::text::{ctime, escape_terminal};
use cenote_control::zpool::shown::events::{Event, Seen, What};
use cenote_format::history::key;
use cenote_format::nvlist::{NvValue, Nvlist};
use serde_json::{Map, Value, json};

use super::history::indented;
use crate::json::{document, nvlist};

/// `ESC_ZFS_HISTORY_EVENT`.
const HISTORY_EVENT: &str = "sysevent.fs.zfs.history_event";
/// `FM_EREPORT_ZFS_DATA`.
const DATA_ERROR: &str = "ereport.fs.zfs.data";

/// How events are printed as text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// All fields of each.
    pub verbose: bool,
    /// No header, tabs between columns.
    pub script: bool,
}

impl Layout {
    /// The header; empty for scripts.
    pub fn heading(&self) -> String {
        if self.script { String::new() } else { format!("{:<30} CLASS\n", "TIME") }
    }

    /// An event.
    pub fn text(&self, event: &Event) -> String {
        match &event.what {
            What::Seen { class, unix_ns, members } => self.seen(class, *unix_ns, members),
            What::Recorded(record) => self.recorded(record),
            What::DataError(error) => self.error(error),
        }
    }

    fn seen(&self, class: &str, unix_ns: u64, members: &Nvlist) -> String {
        let seconds = (unix_ns / 1_000_000_000) as i64;
        let time = event_time(seconds).replace(".000000000", &format!(".{:09}", unix_ns % 1_000_000_000));
        let mut out = self.line(&time, class);
        if self.verbose {
            for (name, value) in members.iter() {
                let _ = writeln!(out, "        {name} = {}", member(value));
            }
            out.push('\n');
        }
        out
    }

    fn line(&self, time: &str, class: &str) -> String {
        if self.script { format!("{time}\t{class}\n") } else { format!("{time:<30} {class}\n") }
    }

    fn recorded(&self, record: &Nvlist) -> String {
        let time = record.get_u64(key::TIME).map_or_else(|| "-".into(), |s| event_time(s.cast_signed()));
        let mut out = self.line(&time, HISTORY_EVENT);
        if self.verbose {
            out += &indented(record, 8);
            out.push('\n');
        }
        out
    }

    fn error(&self, error: &LoggedError) -> String {
        // The log has no times.
        let mut out = self.line("-", DATA_ERROR);
        if self.verbose {
            let place = &error.place;
            let _ = writeln!(out, "        zio_objset: {:#x}", place.dataset.0);
            let _ = writeln!(out, "        zio_object: {:#x}", place.object.0);
            let _ = writeln!(out, "        zio_level: {}", place.level);
            let _ = writeln!(out, "        zio_blkid: {:#x}", place.block.0);
            if let Some(birth) = error.birth {
                let _ = writeln!(out, "        birth: {birth}");
            }
            out.push('\n');
        }
        out
    }
}

/// All events as JSON, by pool.
pub fn json(seen: &Seen) -> Value {
    let mut pools = Map::new();
    for name in seen.pools.iter().chain(seen.events.iter().map(|event| &event.pool)) {
        pools.entry(name.clone()).or_insert_with(|| json!({"name": name, "events": []}));
    }
    for event in &seen.events {
        if let Some(list) = pools[&event.pool]["events"].as_array_mut() {
            list.push(event_json(event));
        }
    }
    document("zpool events", "pools", pools)
}

/// An event as JSON.
pub fn event_json(event: &Event) -> Value {
    match &event.what {
        What::Seen { class, unix_ns, members } => {
            json!({"class": class, "time_ns": unix_ns, "event": nvlist(members)})
        }
        What::Recorded(record) => {
            json!({"class": HISTORY_EVENT, "time": record.get_u64(key::TIME), "history": nvlist(record)})
        }
        What::DataError(error) => error_json(error),
    }
}

/// A value as `zpool events -v` prints it: numbers in hex, texts in quotes.
fn member(value: &NvValue) -> String {
    match value {
        NvValue::String(text) => format!("\"{}\"", escape_terminal(text)),
        NvValue::Byte(number) => format!("{number:#x}"),
        NvValue::Int32(number) => format!("{number:#x}"),
        NvValue::Uint64(number) => format!("{number:#x}"),
        NvValue::Int64Array(numbers) => {
            numbers.iter().map(|number| format!("{number:#x}")).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

fn error_json(error: &LoggedError) -> Value {
    let place = &error.place;
    json!({
        "class": DATA_ERROR,
        "zio_objset": place.dataset.0,
        "zio_object": place.object.0,
        "zio_level": place.level,
        "zio_blkid": place.block.0,
        "birth": error.birth.map(|birth| birth.0),
    })
}

/// `Nov 21 2026 07:20:22.000000000`; the history has whole seconds.
fn event_time(seconds: i64) -> String {
    let text = ctime(seconds);
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [_, month, day, clock, year] => format!("{month} {day:>2} {year} {clock}.000000000"),
        _ => text,
    }
}
