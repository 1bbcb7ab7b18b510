//! `cenote kstat`: what the daemon counts, by OpenZFS's names.

use cenote_host::kstat;
use clap::Args;
use serde_json::{Map, Value};

use super::json::document;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `cenote kstat`
#[derive(Debug, Args)]
#[command(
    after_help = "A daemon (`cenote serve`) has to run. The text is that of /proc/spl/kstat/zfs, where the \
        kernel module keeps these counters; what Cenote does not count is 0.\n\n\
        Example: cenote kstat tank/txgs"
)]
pub struct Kstat {
    /// Its name: arcstats, zfetchstats, dmu_tx, zil, POOL/txgs, POOL/objset-0xID [default: list all names]
    pub name: Option<String>,
}

impl Kstat {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Some(pools) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), so nothing is counted";
            return Err(CliError::Refused(format!("cannot show counters: {why}")));
        };
        let Some(name) = self.name else {
            let names = kstat::names(pools);
            match session.json() {
                true => {
                    let names = names.into_iter().map(|name| (name, Value::Object(Map::new())));
                    print_json(&document("kstat", "kstats", names.collect()))?;
                }
                false => print(names.iter().map(|name| format!("{name}\n")).collect::<String>())?,
            }
            return Ok(Outcome::Done);
        };
        let Some(text) = kstat::text(pools, &name).await else {
            return Err(CliError::Refused(format!("no counters '{name}'; `cenote kstat` lists all")));
        };
        match session.json() {
            true => {
                let entry = (name, Value::Object(values(&text)));
                print_json(&document("kstat", "kstats", [entry].into_iter().collect()))?;
            }
            false => print(text)?,
        }
        Ok(Outcome::Done)
    }
}

/// The named values of a text; a table's rows by their first column.
fn values(text: &str) -> Map<String, Value> {
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let value = |word: &String| word.parse::<u64>().map_or_else(|_| word.as_str().into(), Value::from);
    let is_named = text.lines().nth(1).is_some_and(|line| line.starts_with("name "));
    let mut lines = text.lines().map(words).skip(usize::from(is_named));
    let head = lines.next().unwrap_or_default();
    let of_row = |row: Vec<String>| {
        let first = row.first().cloned().unwrap_or_default();
        let entry = match is_named {
            true => row.get(2).map_or(Value::Null, value),
            false => head.iter().cloned().zip(row.iter().map(value)).collect::<Map<_, _>>().into(),
        };
        (first, entry)
    };
    lines.map(of_row).collect()
}
