//! `zpool status`: a pool's health, recorded work, devices and known errors.

mod dedup;
mod expansion;
mod passes;
mod work;
mod work_json;

use cenote_control::answers::{PoolHealth, Trouble};
use cenote_control::text::quoted;
use cenote_control::zpool::shown::list::Head;
use cenote_control::zpool::shown::status::damaged::{Damaged, Of};
use cenote_control::zpool::shown::status::diagnosis::Reason;
use cenote_control::zpool::shown::status::{Opened, PoolStatus, Statuses};
use cenote_format::units::Guid;
use serde_json::{Map, Value, json};

use super::head::{Keys, head};
use super::scripts::Scripts;
use super::tree::Names;
use super::{tree, vdevs, waiting};
use crate::json::document;
use crate::numbers::Numbers;
use crate::paragraph::paragraph;

/// Content and form of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    /// Only pools with problems.
    pub unhealthy_pools: bool,
    /// Only devices with problems, and their vdevs.
    pub unhealthy_devices: bool,
    /// The files with known errors, not only their number.
    pub verbose: bool,
    /// The initialization state of devices.
    pub initialized: bool,
    /// The TRIM state of devices.
    pub trimmed: bool,
    /// A column of slow I/O.
    pub slow: bool,
    /// A column of direct I/O checksum errors.
    pub direct: bool,
    /// How devices are named.
    pub names: Names,
    /// How numbers are printed.
    pub numbers: Numbers,
    /// The key of each pool in JSON.
    pub keys: Keys,
    /// In JSON, all vdevs beside each other.
    pub flat: bool,
    /// Columns of scripts.
    pub scripts: Option<&'a Scripts>,
}

impl Layout<'_> {
    /// As text. `are_named`: the pools were named, not all meant. `is_first`: nothing was printed before.
    pub fn text(&self, Statuses { pools, waiting }: &Statuses, are_named: bool, is_first: bool) -> String {
        if pools.is_empty() && waiting.is_empty() {
            return "no pools available\n".into();
        }
        let (mut out, mut printed) = (String::new(), 0);
        let mut section = |text: String, is_apart: bool| {
            out += if printed == 0 && is_first || !is_apart { "" } else { "\n" };
            out += &text;
            printed += 1;
        };
        for pool in pools {
            match self.is_left_out(pool) {
                true if !are_named => {}
                true => section(format!("pool '{}' is healthy\n", pool.name), false),
                false => section(self.pool(pool), true),
            }
        }
        waiting.iter().for_each(|waiting| section(waiting::text(waiting), true));
        if out.is_empty() { "all pools are healthy\n".into() } else { out }
    }

    /// As JSON.
    pub fn json(&self, Statuses { pools, waiting }: &Statuses) -> Value {
        let mut documents = Map::new();
        for pool in pools.iter().filter(|pool| !self.is_left_out(pool)) {
            documents.insert(self.keys.key(&pool.name, pool.guid), self.as_json(pool));
        }
        for waiting in waiting {
            let (key, entry) = waiting::entry(waiting, self.keys, self.numbers);
            documents.entry(key).or_insert(entry.into());
        }
        document("zpool status", "pools", documents)
    }

    fn is_left_out(&self, pool: &PoolStatus) -> bool {
        let is_well = pool.reason.as_ref().is_none_or(|reason| reason.is_advice);
        self.unhealthy_pools && pool.opened.is_some() && is_well
    }

    fn style(&self, resilvering: bool) -> tree::Style {
        let &Layout { slow, direct, names, numbers, unhealthy_devices: only_unhealthy, .. } = self;
        tree::Style { counters: true, numbers, slow, direct, only_unhealthy, names, resilvering }
    }

    fn pool(&self, pool: &PoolStatus) -> String {
        let mut out = heading(&pool.name, &pool.health, pool.reason.as_ref());
        let Some(opened) = &pool.opened else {
            // Only facts from the labels.
            return out + "config:\n\n" + &self.config(&pool.health, false, tree::Notes::new());
        };
        out += &work::lines(&opened.work, &pool.health.root);
        out += "config:\n\n";
        out += &self.config(&pool.health, opened.resilvering, self.notes(opened));
        out += &self.known_errors(opened);
        out + &opened.dedup.as_ref().map_or_else(String::new, |it| dedup::paragraph(it, self.numbers))
    }

    fn config(&self, health: &PoolHealth, resilvering: bool, mut notes: tree::Notes) -> String {
        let style = self.style(resilvering);
        let Some(scripts) = self.scripts else { return tree::draw(health, style, &notes) };
        for (device, _) in devices(health) {
            let note = notes.entry(device).or_default();
            *note = scripts.cells(device) + note;
        }
        tree::draw_with(health, style, &notes, &scripts.heading())
    }

    fn notes(&self, opened: &Opened) -> tree::Notes {
        let note = |passes| passes::note(passes, self.initialized, self.trimmed);
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
        let numbers = self.numbers;
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
                ("pool_guid".to_owned(), numbers.value(&pool.guid.to_string())),
            ]),
        };
        pool.reason.iter().for_each(|reason| add_reason(&mut entry, reason));
        let style = self.style(pool.opened.as_ref().is_some_and(|opened| opened.resilvering));
        let usage = pool.opened.as_ref().map_or(&[][..], |opened| &opened.usage);
        let report = vdevs::Report { usage, style, flat: self.flat, scripts: self.scripts };
        let Some(opened) = &pool.opened else {
            entry.extend(report.sections(&pool.health));
            return entry.into();
        };
        entry.extend(work_json::members(&opened.work, &pool.health.root, numbers));
        entry.extend(report.sections(&pool.health));
        let count = numbers.count(opened.data_errors as u64);
        entry.insert("error_count".into(), numbers.value(&count));
        if !opened.damaged.is_empty() {
            entry.insert("errlist".into(), opened.damaged.iter().map(named).collect());
        }
        entry.into()
    }
}

/// Devices with a path, in the order of the output: the guid and the path of each.
pub fn devices(health: &PoolHealth) -> Vec<(Guid, &str)> {
    let mut devices = Vec::new();
    for top in health.root.children.iter().chain(&health.l2cache).chain(&health.spares) {
        top.walk(&mut |vdev| devices.extend(vdev.path.as_deref().map(|path| (vdev.guid, path))));
    }
    devices
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
