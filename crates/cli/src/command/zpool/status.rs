//! `zpool status`: a pool's health, what it remembers of scrubs and such, its devices, its known errors.

use cenote_dataset::Mos;
use cenote_dataset::usage::VdevUsage;
use cenote_pool::{FoundPool, PoolHealth};
use serde_json::{Map, Value, json};

use super::reason::{Circumstances, Reason, judge, paragraph};
use super::{Status, errors, head, tree, vdevs_json, work};
use crate::command::json::{document, number_or_text};
use crate::outcome::{CliError, Outcome};
use crate::render::nice_number;
use crate::session::{Session, print, print_json};

/// A pool that was opened, and all that is shown of it.
struct Shown {
    mos: Mos,
    health: PoolHealth,
    circumstances: Circumstances,
    usage: Vec<VdevUsage>,
    work: String,
    error_count: usize,
    damaged: Vec<String>,
}

impl Status {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::Done;
        let mut documents = Map::new();
        for (i, found) in session.find_pools(&self.pools).await?.into_iter().enumerate() {
            let shown = self.look(session, &found).await;
            if self.json || session.json() {
                match shown {
                    Ok(shown) => _ = documents.insert(found.name().into(), self.as_json(&shown)),
                    Err(error) => outcome = outcome.and(super::complain(found.name(), &error)),
                }
                continue;
            }
            let separator = if i > 0 { "\n" } else { "" };
            match shown {
                Ok(shown) => print(separator.to_owned() + &self.as_text(&shown))?,
                Err(error) => {
                    print(separator.to_owned() + &self.unopened(&found))?;
                    outcome = outcome.and(super::complain(found.name(), &error));
                }
            }
        }
        if self.json || session.json() {
            print_json(&document("zpool status", "pools", documents))?;
        }
        Ok(outcome)
    }

    async fn look(&self, session: &Session, found: &FoundPool) -> Result<Shown, CliError> {
        let mos = session.open_without_asking(found).await?;
        let circumstances = Circumstances::of_pool(&mos).await?;
        let usage = mos.usage().await?;
        let error_count = mos.error_log().await?.len();
        let damaged = if self.verbose { errors::damaged_files(&mos).await? } else { Vec::new() };
        // What reading so far met is part of the health.
        let health = mos.pool().status();
        let work = work::lines(&mos, &health.root, &usage).await?;
        Ok(Shown { mos, health, circumstances, usage, work, error_count, damaged })
    }

    fn style(&self, resilvering: bool) -> tree::Style {
        let (exact, paths, guids) = (self.parsable, self.paths, self.guids);
        tree::Style { counters: true, exact, paths, guids, resilvering }
    }

    fn as_text(&self, shown: &Shown) -> String {
        let reason = judge(&shown.health, shown.circumstances);
        let mut out = heading(shown.mos.pool().name(), &shown.health, reason.as_ref());
        out += &shown.work;
        out += "config:\n\n";
        out += &tree::draw(&shown.health, self.style(shown.circumstances.resilvering));
        out += &self.known_errors(shown);
        out
    }

    fn known_errors(&self, shown: &Shown) -> String {
        match shown.error_count {
            0 => "\nerrors: No known data errors\n".into(),
            _ if self.verbose => {
                let files: String = shown.damaged.iter().map(|file| format!("        {file}\n")).collect();
                format!("\nerrors: Permanent errors have been detected in the following files:\n\n{files}")
            }
            count => format!("\nerrors: {count} data errors, use '-v' for a list\n"),
        }
    }

    /// What labels alone tell of a pool that can't be opened.
    fn unopened(&self, found: &FoundPool) -> String {
        let health = found.status();
        let reason = judge(&health, Circumstances::of_found(found));
        let mut out = heading(found.name(), &health, reason.as_ref());
        out += "config:\n\n";
        out += &tree::draw(&health, self.style(false));
        out
    }

    fn as_json(&self, shown: &Shown) -> Value {
        let numbers = self.json_int;
        let exact = self.parsable || numbers;
        let mut entry = head(&shown.mos, numbers);
        if let Some(reason) = judge(&shown.health, shown.circumstances) {
            entry.insert("status".into(), json!(reason.status));
            entry.insert("action".into(), json!(reason.action));
            if let (Some(id), Some(page)) = (reason.id, reason.page()) {
                entry.insert("msgid".into(), json!(id));
                entry.insert("moreinfo".into(), json!(page));
            }
        }
        let report = vdevs_json::Report { usage: &shown.usage, mos: &shown.mos, exact, numbers };
        entry.extend(report.sections(&shown.health));
        let count = shown.error_count as u64;
        let count = if exact { count.to_string() } else { nice_number(count) };
        entry.insert("error_count".into(), number_or_text(&count, numbers));
        if !shown.damaged.is_empty() {
            entry.insert("errlist".into(), json!(shown.damaged));
        }
        entry.into()
    }
}

/// The lines up to `see:`.
fn heading(name: &str, health: &PoolHealth, reason: Option<&Reason>) -> String {
    let mut out = format!("  pool: {name}\n state: {}\n", health.state());
    if let Some(reason) = reason {
        out += &paragraph("status", reason.status);
        out += &paragraph("action", reason.action);
        if let Some(page) = reason.page() {
            out += &format!("   see: {page}\n");
        }
    }
    out
}
