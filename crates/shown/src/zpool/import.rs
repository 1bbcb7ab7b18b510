//! `zpool import`: pools found on disks, and the effect of a rewind.

mod json;
mod text;

use cenote_control::answers::PoolState;
use cenote_control::zpool::whole::import::Imported;
use cenote_control::zpool::whole::import::found::Found;
use serde_json::Value;

use super::tree::{self, Names};
use crate::paragraph::paragraph;
use text::{action, last_user, opened, problems, went_back, would_go_back};

/// Content and form of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// The pools were opened, not only described.
    pub were_opened: bool,
    /// A rewind was only tried.
    pub dry_run: bool,
    /// That rewind may lose blocks of files.
    pub extreme: bool,
    /// How devices are named.
    pub names: Names,
}

impl Layout {
    /// As JSON. None: a pool was opened for good, which prints nothing.
    pub fn json(&self, done: &Imported) -> Option<Value> {
        match done.rewound.last() {
            Some(back) if self.dry_run => Some(json::way(back, "would_rewind")),
            Some(back) => Some(json::way(back, "rewound")),
            None => (!self.were_opened).then(|| json::whole(done)),
        }
    }

    /// As text.
    pub fn text(&self, done: &Imported) -> String {
        // Among all pools, those that do not open have been reported.
        let is_shown = |pool: &&Found| !self.were_opened || pool.opened.is_ok();
        let shown = done.pools.iter().filter(is_shown).map(|pool| self.describe(pool));
        let mut out = shown.collect::<Vec<_>>().join("\n");
        for back in &done.rewound {
            if self.dry_run {
                let letters = if self.extreme { "-FX" } else { "-F" };
                out = out + "\n" + &would_go_back(back, letters);
            } else {
                out += &went_back(back);
            }
        }
        out + &problems("problems", &done.problems)
    }

    fn describe(&self, pool: &Found) -> String {
        let Found { name, guid, health, reason, .. } = pool;
        let destroyed = if pool.state == PoolState::Destroyed { " (DESTROYED)" } else { "" };
        let mut out = format!("  pool: {name}\n    id: {guid}\n state: {}{destroyed}\n", health.state());
        if let Some(reason) = reason {
            out += &paragraph("status", &reason.status);
        }
        let advice = reason.as_ref().map(|reason| &*reason.action);
        out += &paragraph("action", &action(health, pool.opened.is_ok(), advice));
        if let Some(comment) = &pool.comment {
            out += &format!("comment: {comment}\n");
        }
        if let Some(page) = reason.as_ref().and_then(|reason| reason.page()) {
            out += &format!("   see: {page}\n");
        }
        if let Some(note) = last_user(pool) {
            out += &paragraph("  last", &note);
        }
        match &pool.opened {
            Ok(state) if self.were_opened => out += &opened(state),
            Ok(_) => {}
            Err(error) => out += &paragraph(" error", &error.why),
        }
        out += "config:\n\n";
        let style = tree::Style { names: self.names, ..tree::Style::default() };
        out += &tree::draw(health, style, &tree::Notes::new());
        out + &problems("notes", &pool.notes)
    }
}
