//! `zpool status`: a pool's health, what it remembers of scrubs and such, its devices, its known errors.

use cenote_dataset::Mos;
use cenote_dataset::usage::VdevUsage;
use cenote_pool::{FoundPool, PoolHealth};
use serde_json::{Map, Value, json};

use super::reason::{Circumstances, Reason, judge, paragraph};
use super::{Status, dedup, errors, head, leaf_work, tree, vdevs_json, work};
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
    notes: tree::Notes,
    dedup: String,
    damaged: Vec<String>,
}

impl Status {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.script.is_some() {
            return Err(CliError::Usage(
                "-c: this program runs no scripts for devices; `--json` has their paths".into(),
            ));
        }
        let as_json = self.form.json(session);
        let (mut outcome, mut printed) = (Outcome::Done, 0);
        let mut documents = Map::new();
        for found in session.find_pools(&self.pools).await? {
            let shown = self.look(session, &found).await;
            let reason = match &shown {
                Ok(shown) => judge(&shown.health, shown.circumstances),
                Err(error) => {
                    outcome = outcome.and(error.tell(found.name()));
                    judge(&found.status(), Circumstances::of_found(&found))
                }
            };
            let is_left_out = self.unhealthy_pools
                && shown.is_ok()
                && reason.as_ref().is_none_or(|reason| reason.is_advice);
            let text = match (&shown, as_json) {
                (Ok(_), false) if is_left_out && self.pools.is_empty() => continue,
                (Ok(_), false) if is_left_out => format!("pool '{}' is healthy\n", found.name()),
                (Ok(shown), false) => self.as_text(shown, reason.as_ref()),
                (Err(_), false) => self.unopened(&found, reason.as_ref()),
                (Ok(shown), true) if !is_left_out => {
                    documents.insert(found.name().into(), self.as_json(shown, reason));
                    continue;
                }
                (_, true) => continue,
            };
            print(if printed > 0 && !is_left_out { "\n".to_owned() + &text } else { text })?;
            printed += 1;
        }
        match () {
            () if as_json => print_json(&document("zpool status", "pools", documents))?,
            () if printed == 0 => print("all pools are healthy\n")?,
            () => {}
        }
        Ok(outcome)
    }

    async fn look(&self, session: &Session, found: &FoundPool) -> Result<Shown, CliError> {
        let mos = session.open_without_asking(found).await?;
        let circumstances = Circumstances::of_pool(&mos).await?;
        let usage = mos.usage().await?;
        let damaged = if self.verbose { errors::damaged_files(&mos).await? } else { Vec::new() };
        let notes = leaf_work::notes(&mos, self.initialized, self.trimmed).await?;
        let dedup = if self.dedup { dedup::paragraph(&mos, self.form.exact()).await? } else { String::new() };
        // What reading so far met is part of the health.
        let health = mos.pool().status();
        let work = work::lines(&mos, &health.root, &usage).await?;
        Ok(Shown { mos, health, circumstances, usage, work, notes, dedup, damaged })
    }

    fn style(&self, resilvering: bool) -> tree::Style {
        let (exact, slow, only_unhealthy) = (self.form.exact(), self.slow, self.unhealthy_devices);
        tree::Style { counters: true, exact, slow, only_unhealthy, names: self.names, resilvering }
    }

    fn as_text(&self, shown: &Shown, reason: Option<&Reason>) -> String {
        let mut out = heading(shown.mos.pool().name(), &shown.health, reason);
        out += &shown.work;
        out += "config:\n\n";
        out += &tree::draw(&shown.health, self.style(shown.circumstances.resilvering), &shown.notes);
        out += &self.known_errors(shown);
        out += &shown.dedup;
        out
    }

    fn known_errors(&self, shown: &Shown) -> String {
        match shown.circumstances.data_errors {
            0 => "\nerrors: No known data errors\n".into(),
            _ if self.verbose => {
                let files: String = shown.damaged.iter().map(|file| format!("        {file}\n")).collect();
                format!("\nerrors: Permanent errors have been detected in the following files:\n\n{files}")
            }
            count => format!("\nerrors: {count} data errors, use '-v' for a list\n"),
        }
    }

    /// What labels alone tell of a pool that can't be opened.
    fn unopened(&self, found: &FoundPool, reason: Option<&Reason>) -> String {
        let health = found.status();
        let mut out = heading(found.name(), &health, reason);
        out += "config:\n\n";
        out += &tree::draw(&health, self.style(false), &tree::Notes::new());
        out
    }

    fn as_json(&self, shown: &Shown, reason: Option<Reason>) -> Value {
        let (exact, numbers) = (self.form.exact(), self.form.numbers());
        let mut entry = head(&shown.mos, numbers);
        if let Some(reason) = reason {
            entry.insert("status".into(), json!(reason.status));
            entry.insert("action".into(), json!(reason.action));
            if let (Some(id), Some(page)) = (reason.id, reason.page()) {
                entry.insert("msgid".into(), json!(id));
                entry.insert("moreinfo".into(), json!(page));
            }
        }
        let report = vdevs_json::Report { usage: &shown.usage, mos: Some(&shown.mos), exact, numbers };
        entry.extend(report.sections(&shown.health));
        let count = shown.circumstances.data_errors as u64;
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
