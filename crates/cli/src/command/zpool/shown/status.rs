//! Command line and output of `zpool status`: a pool's health, recorded work, devices and known errors.

use cenote_control::answers::{PoolHealth, Trouble};
use cenote_control::zpool::shown::list::Head;
use cenote_control::zpool::shown::status::damaged::{Damaged, Of};
use cenote_control::zpool::shown::status::diagnosis::Reason;
use cenote_control::zpool::shown::status::{Opened, PoolStatus, Status as Request, Statuses};
use serde_json::{Map, Value, json};

use super::repeat::Round;
use super::{dedup, pass_status, scan_status, scan_status_json, tree, vdevs_json, waiting};
use crate::command::json::{document, number_or_text};
use crate::command::not_yet;
use crate::command::zpool::{Status, head};
use crate::outcome::{CliError, Outcome};
use crate::render::{nice_number, paragraph, quoted};
use crate::session::{Session, print, print_json};

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
        let request = Request { pools: names.to_vec(), damaged: self.verbose, dedup: self.dedup };
        let answered = session.control().run(request).await?;
        let is_left_out = |pool: &PoolStatus| {
            let is_well = pool.reason.as_ref().is_none_or(|reason| reason.is_advice);
            self.unhealthy_pools && pool.opened.is_some() && is_well
        };
        match session.json() {
            true => {
                let documents = self.documents(&answered.answer, is_left_out);
                print_json(&round.stamp(document("zpool status", "pools", documents)))?;
            }
            false => print(self.text(&answered.answer, names, round, is_left_out))?,
        }
        Ok(answered.outcome)
    }

    fn text(
        &self,
        Statuses { pools, waiting }: &Statuses,
        names: &[String],
        round: &Round,
        is_left_out: impl Fn(&PoolStatus) -> bool,
    ) -> String {
        if pools.is_empty() && waiting.is_empty() {
            return "no pools available\n".into();
        }
        let (mut out, mut printed) = (String::new(), 0);
        let mut section = |text: String, is_apart: bool| {
            let is_first = printed == 0 && round.is_first;
            out += if is_first || !is_apart { "" } else { "\n" };
            out += &text;
            printed += 1;
        };
        for pool in pools {
            match is_left_out(pool) {
                true if names.is_empty() => {}
                true => section(format!("pool '{}' is healthy\n", pool.name), false),
                false => section(self.pool(pool), true),
            }
        }
        waiting.iter().for_each(|waiting| section(waiting::text(waiting), true));
        if out.is_empty() { "all pools are healthy\n".into() } else { out }
    }

    fn documents(
        &self,
        Statuses { pools, waiting }: &Statuses,
        is_left_out: impl Fn(&PoolStatus) -> bool,
    ) -> Map<String, Value> {
        let mut documents = Map::new();
        for pool in pools.iter().filter(|pool| !is_left_out(pool)) {
            documents.insert(self.keys.key(&pool.name, pool.guid), self.as_json(pool));
        }
        for waiting in waiting {
            let (key, entry) = waiting::entry(waiting, self.keys, self.form.numbers());
            documents.entry(key).or_insert(entry.into());
        }
        documents
    }

    fn style(&self, resilvering: bool) -> tree::Style {
        let (exact, only_unhealthy) = (self.form.exact(), self.unhealthy_devices);
        let (slow, direct, names) = (self.slow, self.direct, self.names);
        tree::Style { counters: true, exact, slow, direct, only_unhealthy, names, resilvering }
    }

    fn pool(&self, pool: &PoolStatus) -> String {
        let mut out = heading(&pool.name, &pool.health, pool.reason.as_ref());
        let Some(opened) = &pool.opened else {
            // Only facts from the labels.
            return out + "config:\n\n" + &tree::draw(&pool.health, self.style(false), &tree::Notes::new());
        };
        out += &scan_status::lines(&opened.work, &pool.health.root);
        out += "config:\n\n";
        out += &tree::draw(&pool.health, self.style(opened.resilvering), &self.notes(opened));
        out += &self.known_errors(opened);
        out + &opened.dedup.as_ref().map_or_else(String::new, |it| dedup::paragraph(it, self.form.exact()))
    }

    fn notes(&self, opened: &Opened) -> tree::Notes {
        let note = |passes| pass_status::note(passes, self.initialized, self.trimmed);
        let mut notes: tree::Notes =
            opened.passes.iter().map(|(leaf, passes)| (*leaf, note(passes))).collect();
        for leaf in &opened.lagging {
            let note = notes.entry(*leaf).or_default();
            *note = format!("  {}{note}", Trouble::Stale);
        }
        notes
    }

    fn known_errors(&self, opened: &Opened) -> String {
        match opened.data_errors {
            0 => "\nerrors: No known data errors\n".into(),
            _ if self.verbose => {
                let files: String =
                    opened.damaged.iter().map(|object| format!("        {}\n", named(object))).collect();
                format!("\nerrors: Permanent errors have been detected in the following files:\n\n{files}")
            }
            count => format!("\nerrors: {count} data errors, use '-v' for a list\n"),
        }
    }

    fn as_json(&self, pool: &PoolStatus) -> Value {
        let numbers = self.form.numbers();
        let state = pool.health.shown_state();
        let mut entry = match &pool.opened {
            Some(opened) => {
                let (name, guid, state) = (pool.name.clone(), pool.guid, state.into());
                let mut entry = head(&Head { name, guid, state, txg: opened.txg }, numbers);
                // OpenZFS omits it here.
                entry.remove("type");
                entry
            }
            None => Map::from_iter([
                ("name".to_owned(), json!(pool.name)),
                ("state".to_owned(), json!(state)),
                ("pool_guid".to_owned(), number_or_text(&pool.guid.to_string(), numbers)),
            ]),
        };
        pool.reason.iter().for_each(|reason| add_reason(&mut entry, reason));
        let style = self.style(pool.opened.as_ref().is_some_and(|opened| opened.resilvering));
        let usage = pool.opened.as_ref().map_or(&[][..], |opened| &opened.usage);
        let report = vdevs_json::Report { usage, style, numbers };
        let Some(opened) = &pool.opened else {
            entry.extend(report.sections(&pool.health));
            return entry.into();
        };
        let printed = scan_status_json::Numbers { exact: self.form.exact(), as_numbers: numbers };
        entry.extend(scan_status_json::members(&opened.work, &pool.health.root, printed));
        entry.extend(report.sections(&pool.health));
        let count = opened.data_errors as u64;
        let count = if style.exact { count.to_string() } else { nice_number(count) };
        entry.insert("error_count".into(), number_or_text(&count, numbers));
        if !opened.damaged.is_empty() {
            entry.insert("errlist".into(), opened.damaged.iter().map(named).collect());
        }
        entry.into()
    }
}

/// `dataset:/path`, or numbers where names are unknown.
fn named(Damaged { dataset, object, path }: &Damaged) -> String {
    match (dataset, path) {
        (Of::Pool, _) => format!("<metadata>:<{:#x}>", object.0),
        (Of::Gone(id), _) => format!("<{:#x}>:<{:#x}>", id.0, object.0),
        (Of::Dataset(name), Some(path)) => quoted(&[name.as_bytes(), b":/", path].concat()),
        (Of::Dataset(name), None) => format!("{name}:<{:#x}>", object.0),
    }
}

fn add_reason(entry: &mut Map<String, Value>, reason: &Reason) {
    entry.insert("status".into(), json!(reason.status));
    entry.insert("action".into(), json!(reason.action));
    if let (Some(id), Some(page)) = (&reason.id, reason.page()) {
        entry.insert("msgid".into(), json!(id));
        entry.insert("moreinfo".into(), json!(page));
    }
}

/// The lines up to `see:`.
fn heading(name: &str, health: &PoolHealth, reason: Option<&Reason>) -> String {
    let mut out = format!("  pool: {name}\n state: {}\n", health.shown_state());
    if let Some(reason) = reason {
        out += &paragraph("status", &reason.status);
        out += &paragraph("action", &reason.action);
        if let Some(page) = reason.page() {
            out += &format!("   see: {page}\n");
        }
    }
    out
}
