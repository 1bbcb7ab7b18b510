//! `cenote kstat`: the daemon's counters, by OpenZFS's names.

use cenote_control::running::kstat::{Counted, Counters, Kstat as Request};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::command::json::document;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `cenote kstat`
#[derive(Debug, Args)]
#[command(
    after_help = "Needs a daemon (`cenote serve`). The text is that of /proc/spl/kstat/zfs of the kernel \
        module; counters that Cenote lacks are 0.\n\n\
        Example: cenote kstat tank/txgs"
)]
pub struct Kstat {
    /// Name: arcstats, zfetchstats, dmu_tx, zil, POOL/txgs, POOL/objset-0xID [default: list all names]
    pub name: Option<String>,
}

impl Kstat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let asked = self.name.clone().unwrap_or_default();
        let request = Request { name: self.name, all: false };
        let (text, entries) = match session.control().run(request).await?.answer {
            Counted::Names(names) => {
                let text = names.iter().map(|name| format!("{name}\n")).collect();
                (text, names.into_iter().map(|name| (name, json!({}))).collect())
            }
            Counted::Counters(counters) => {
                (counters.to_string(), Map::from_iter([(asked, as_json(&counters).into())]))
            }
            Counted::All(all) => {
                let entries = all.iter().map(|(name, counters)| (name.clone(), as_json(counters).into()));
                (String::new(), entries.collect())
            }
        };
        match session.json() {
            true => print_json(&document("kstat", "kstats", entries))?,
            false => print(text)?,
        }
        Ok(Outcome::Done)
    }
}

/// Values by name; txgs by number.
fn as_json(counters: &Counters) -> Map<String, Value> {
    match counters {
        Counters::Counts { dataset, counts, .. } => {
            let dataset = dataset.iter().map(|name| ("dataset_name".to_owned(), json!(name)));
            dataset.chain(counts.iter().map(|(name, count)| (name.clone(), json!(count)))).collect()
        }
        // OpenZFS's file for it has no names.
        Counters::State(_) => Map::new(),
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
