//! `zpool status`: a pool's health, its recorded scrubs and other work, its devices, its known errors.

use cenote_control::zpool::shown::list::Head;
use cenote_control::zpool::shown::waits::waits;
use cenote_dataset::Mos;
use cenote_dataset::usage::VdevUsage;
use cenote_pool::{FoundPool, PoolHealth, Trouble, VdevState};
use serde_json::{Map, Value, json};

use super::reason::{Circumstances, Reason, judge, paragraph};
use super::repeat::Round;
use super::unopened::Unopened;
use super::{Status, dedup, errors, head, leaf_work, tree, vdevs_json, waiting, work, work_json};
use crate::command::json::{document, number_or_text};
use crate::command::not_yet;
use crate::outcome::{CliError, Outcome, Say};
use crate::render::nice_number;
use crate::session::{Session, print, print_json};

/// An open pool and the data shown about it.
struct Shown {
    mos: Mos,
    health: PoolHealth,
    circumstances: Circumstances,
    usage: Vec<VdevUsage>,
    work: String,
    work_json: Map<String, Value>,
    notes: tree::Notes,
    dedup: String,
    damaged: Vec<String>,
}

impl Status {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.script.is_some() {
            let instead = "A script would run per device of a system that imported the pool, but here a \
                device may be an image. `zpool status -P -j` prints each path; run the script on those";
            return Err(not_yet::option("zpool status -c", instead));
        }
        if self.json_flat_vdevs {
            let instead = "Omit it: vdevs are nested in the member `vdevs` of their parents";
            return Err(not_yet::option("zpool status --json-flat-vdevs", instead));
        }
        let show = async |names: &[String], round| self.show(session, names, &round).await;
        self.repeat.run(session, &self.pools, show).await
    }

    async fn show(&self, session: &Session, names: &[String], round: &Round) -> Result<Outcome, CliError> {
        let as_json = session.json();
        let (pools, mut outcome) = session.find_pools_to_show(names).await?;
        let waiting = waits(session, names);
        if pools.is_empty() && waiting.is_empty() && !as_json {
            return print("no pools available\n").map(|()| outcome);
        }
        let (mut documents, mut printed) = (Map::new(), 0);
        for found in pools {
            let shown = match self.look(session, &found).await {
                Ok(shown) => Ok(shown),
                Err(error) => {
                    outcome = outcome.and(error.tell_cause(found.name()));
                    Err(Unopened::look(session, &found, &error).await)
                }
            };
            let reason = match &shown {
                Ok(shown) => judge(&shown.health, shown.circumstances),
                Err(unopened) => unopened.reason(),
            };
            let is_left_out = self.unhealthy_pools
                && shown.is_ok()
                && reason.as_ref().is_none_or(|reason| reason.is_advice);
            let text = match (&shown, as_json) {
                (Ok(_), false) if is_left_out && names.is_empty() => continue,
                (Ok(_), false) if is_left_out => format!("pool '{}' is healthy\n", found.name()),
                (Ok(shown), false) => self.as_text(shown, reason.as_ref()),
                (Err(unopened), false) => self.unopened(&found, &unopened.health, reason.as_ref()),
                (Ok(shown), true) if !is_left_out => {
                    documents.insert(self.keys.key(found.name(), found.guid()), self.as_json(shown, reason));
                    continue;
                }
                (Err(unopened), true) => {
                    documents.insert(
                        self.keys.key(found.name(), found.guid()),
                        self.unopened_as_json(&found, unopened, reason),
                    );
                    continue;
                }
                (_, true) => continue,
            };
            print(if (printed > 0 || !round.is_first) && !is_left_out {
                "\n".to_owned() + &text
            } else {
                text
            })?;
            printed += 1;
        }
        for waiting in waiting {
            if as_json {
                let (key, entry) = waiting::entry(&waiting, self.keys, self.form.numbers());
                documents.entry(key).or_insert(entry.into());
                continue;
            }
            let text = waiting::text(&waiting);
            print(if printed > 0 || !round.is_first { "\n".to_owned() + &text } else { text })?;
            printed += 1;
        }
        match () {
            () if as_json => print_json(&round.stamp(document("zpool status", "pools", documents)))?,
            () if printed == 0 => print("all pools are healthy\n")?,
            () => {}
        }
        Ok(outcome)
    }

    async fn look(&self, session: &Session, found: &FoundPool) -> Result<Shown, CliError> {
        let mos = session.open_without_asking(found).await?;
        let is_open = session.held(found).is_some();
        let circumstances = Circumstances { is_open, ..Circumstances::of_pool(&mos).await? };
        let usage = mos.usage().await?;
        let damaged = if self.verbose { errors::damaged_files(&mos).await? } else { Vec::new() };
        let mut notes = leaf_work::notes(&mos, self.initialized, self.trimmed).await?;
        let dedup = if self.dedup { dedup::paragraph(&mos, self.form.exact()).await? } else { String::new() };
        // Errors met while reading so far are part of the health.
        let health = mos.pool().status();
        if !circumstances.resilvering {
            note_lagging(&mos, &health, &mut notes);
        }
        let pass = session.held(found).and_then(|pool| pool.engine.scan_pass());
        let now_s = session.runtime().unix_time_ns() / 1_000_000_000;
        let pass = pass.map(|pass| {
            let seconds = session.runtime().now().since(pass.since).as_secs();
            work::Pace { done_bytes: pass.done_bytes, seconds, since_s: now_s - seconds }
        });
        let now = session.held(found).map(|_| now_s);
        let work = work::lines(&mos, &health.root, &usage, pass, now).await?;
        let numbers = work_json::Numbers { exact: self.form.exact(), as_numbers: self.form.numbers() };
        let work_json = match session.json() {
            true => work_json::members(&mos, &usage, pass, numbers).await?,
            false => Map::new(),
        };
        Ok(Shown { mos, work_json, health, circumstances, usage, work, notes, dedup, damaged })
    }

    fn style(&self, resilvering: bool) -> tree::Style {
        let (exact, only_unhealthy) = (self.form.exact(), self.unhealthy_devices);
        let (slow, direct, names) = (self.slow, self.direct, self.names);
        tree::Style { counters: true, exact, slow, direct, only_unhealthy, names, resilvering }
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

    /// What the labels alone show about a pool that can't be opened.
    fn unopened(&self, found: &FoundPool, health: &PoolHealth, reason: Option<&Reason>) -> String {
        let mut out = heading(found.name(), health, reason);
        out += "config:\n\n";
        out += &tree::draw(health, self.style(false), &tree::Notes::new());
        out
    }

    fn unopened_as_json(&self, found: &FoundPool, unopened: &Unopened, reason: Option<Reason>) -> Value {
        let (style, numbers) = (self.style(false), self.form.numbers());
        let mut entry = Map::new();
        entry.insert("name".into(), json!(found.name()));
        entry.insert("state".into(), json!(unopened.health.shown_state()));
        entry.insert("pool_guid".into(), number_or_text(&found.guid().to_string(), numbers));
        reason.iter().for_each(|reason| add_reason(&mut entry, reason));
        let report = vdevs_json::Report { usage: &[], mos: None, style, numbers };
        entry.extend(report.sections(&unopened.health));
        entry.into()
    }

    fn as_json(&self, shown: &Shown, reason: Option<Reason>) -> Value {
        let (style, numbers) = (self.style(shown.circumstances.resilvering), self.form.numbers());
        let mut entry = head(&Head::of(&shown.mos), numbers);
        // OpenZFS omits it here.
        entry.remove("type");
        reason.iter().for_each(|reason| add_reason(&mut entry, reason));
        entry.extend(shown.work_json.clone());
        let report = vdevs_json::Report { usage: &shown.usage, mos: Some(&shown.mos), style, numbers };
        entry.extend(report.sections(&shown.health));
        let count = shown.circumstances.data_errors as u64;
        let count = if style.exact { count.to_string() } else { nice_number(count) };
        entry.insert("error_count".into(), number_or_text(&count, numbers));
        if !shown.damaged.is_empty() {
            entry.insert("errlist".into(), json!(shown.damaged));
        }
        entry.into()
    }
}

fn add_reason(entry: &mut Map<String, Value>, reason: &Reason) {
    entry.insert("status".into(), json!(reason.status));
    entry.insert("action".into(), json!(reason.action));
    if let (Some(id), Some(page)) = (reason.id, reason.page()) {
        entry.insert("msgid".into(), json!(id));
        entry.insert("moreinfo".into(), json!(page));
    }
}

/// The lines up to `see:`.
fn heading(name: &str, health: &PoolHealth, reason: Option<&Reason>) -> String {
    let mut out = format!("  pool: {name}\n state: {}\n", health.shown_state());
    if let Some(reason) = reason {
        out += &paragraph("status", reason.status);
        out += &paragraph("action", &reason.action);
        if let Some(page) = reason.page() {
            out += &format!("   see: {page}\n");
        }
    }
    out
}

/// A device that lacks something that no resilver under way brings it is as good as one with old labels: the
/// next command's labels are new, and it lacks that still.
fn note_lagging(mos: &Mos, health: &PoolHealth, notes: &mut tree::Notes) {
    let lagging = mos.pool().lagging_leaves();
    health.root.walk(&mut |vdev| {
        if vdev.trouble.is_none() && vdev.state == VdevState::Online && lagging.contains(&vdev.guid) {
            let note = notes.entry(vdev.guid).or_default();
            *note = format!("  {}{note}", Trouble::Stale);
        }
    });
}
