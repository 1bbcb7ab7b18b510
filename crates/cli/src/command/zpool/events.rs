//! `zpool events`: what the daemon has seen happen to its pools; without one, the events of a pool that are
//! on its disks.
//!
//! OpenZFS keeps events in memory and loses them at reboot, and so does the daemon. What survives are the
//! internal events in the history, each of which was such an event, and the error log, which records where
//! but not when.

use std::fmt::Write as _;

use cenote_dataset::errlog::LoggedError;
use cenote_format::history::key;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_host::events::{Event, Events as Ring};

use serde_json::{Map, Value, json};

use super::Events;
use super::history::indented;
use crate::command::json::{document, nvlist};
use crate::outcome::{CliError, Outcome, Say};
use crate::render::{ctime, escape_terminal};
use crate::session::{Session, print, print_json};

/// `ESC_ZFS_HISTORY_EVENT`.
const HISTORY_EVENT: &str = "sysevent.fs.zfs.history_event";
/// `FM_EREPORT_ZFS_DATA`.
const DATA_ERROR: &str = "ereport.fs.zfs.data";

impl Events {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if let Some(pools) = session.pools() {
            return self.of_daemon(session, &pools.events).await;
        }
        if self.follow || self.clear {
            let why = "no daemon runs (`cenote serve`), and what is on disk neither goes on nor is cleared";
            let option = if self.follow { "-f" } else { "-c" };
            return Err(CliError::Refused(format!("zpool events {option}: {why}")));
        }
        let mut documents = Map::new();
        let (pools, mut outcome) = session.find_pools_to_show(&self.pools).await?;
        if !self.script && !session.json() {
            print(format!("{:<30} CLASS\n", "TIME"))?;
        }
        for found in pools {
            let gathered = async {
                let mos = session.open_without_asking(&found).await?;
                Ok::<_, CliError>((mos.history().await?, mos.error_log().await?))
            };
            match gathered.await {
                Ok((records, errors)) => {
                    let is_event =
                        |record: &&Nvlist| record.contains(key::INT_NAME) || record.contains(key::INT_EVENT);
                    if session.json() {
                        let events = records.iter().filter(is_event).map(event_json);
                        let events: Vec<Value> = events.chain(errors.iter().map(error_json)).collect();
                        documents
                            .insert(found.name().into(), json!({"name": found.name(), "events": events}));
                        continue;
                    }
                    let events = records.iter().filter(is_event).map(|record| self.event(record));
                    let errors = errors.iter().map(|error| self.error(error));
                    print(events.chain(errors).collect::<String>())?;
                }
                Err(error) => outcome = outcome.and(error.tell(found.name())),
            }
        }
        if session.json() {
            print_json(&document("zpool events", "pools", documents))?;
        }
        Ok(outcome)
    }

    /// What the daemon has seen.
    async fn of_daemon(&self, session: &Session, events: &Ring) -> Result<Outcome, CliError> {
        if self.clear {
            let cleared = events.clear();
            let text = format!("cleared {cleared} events\n");
            let json = json!({"cleared": cleared});
            return if session.json() { print_json(&json) } else { print(text) }.map(|()| Outcome::Done);
        }
        if !self.script && !session.json() {
            print(format!("{:<30} CLASS\n", "TIME"))?;
        }
        let is_meant = |event: &&Event| self.pools.is_empty() || self.pools.contains(&event.pool);
        let (mut last, mut documents) = (0, Map::new());
        loop {
            let new = events.after(last);
            last = new.last().map_or(last, |event| event.id);
            for event in new.iter().filter(is_meant) {
                if !session.json() {
                    print(self.seen(event))?;
                } else if self.follow {
                    print_json(&seen_json(event))?;
                } else {
                    let list = documents
                        .entry(event.pool.clone())
                        .or_insert_with(|| json!({"name": event.pool, "events": []}));
                    if let Some(list) = list["events"].as_array_mut() {
                        list.push(seen_json(event));
                    }
                }
            }
            if !self.follow {
                break;
            }
            events.wait_after(last).await;
        }
        if session.json() {
            print_json(&document("zpool events", "pools", documents))?;
        }
        Ok(Outcome::Done)
    }

    fn seen(&self, event: &Event) -> String {
        let seconds = (event.unix_ns / 1_000_000_000) as i64;
        let time =
            event_time(seconds).replace(".000000000", &format!(".{:09}", event.unix_ns % 1_000_000_000));
        let mut out = self.line(&time, event.class);
        if self.verbose {
            for (name, value) in event.members.iter() {
                let _ = writeln!(out, "        {name} = {}", member(value));
            }
            out.push('\n');
        }
        out
    }

    fn line(&self, time: &str, class: &str) -> String {
        if self.script { format!("{time}\t{class}\n") } else { format!("{time:<30} {class}\n") }
    }

    fn event(&self, record: &Nvlist) -> String {
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

fn event_json(record: &Nvlist) -> Value {
    json!({"class": HISTORY_EVENT, "time": record.get_u64(key::TIME), "history": nvlist(record)})
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

fn seen_json(event: &Event) -> Value {
    json!({"class": event.class, "time_ns": event.unix_ns, "event": nvlist(&event.members)})
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
