//! Command line of `zpool import`, and its list of pools on disks.

mod cachefile;
mod json;
mod text;

use cenote_control::answers::PoolState;
use cenote_control::zpool::whole::import::found::Found;
use cenote_control::zpool::whole::import::{Import as Request, Imported, Purpose};

use super::Import;
use super::shown::tree;
use crate::outcome::{CliError, Outcome, Printed};
use crate::render::paragraph;
use crate::session::{Session, print, print_json};
use text::{action, last_user, opened, problems, went_back, would_go_back};

impl Import {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        self.check_options()?;
        let request = self.request(session)?;
        let shows_states = request.purpose == Purpose::Open;
        let answered = session.control().run(request).await?;
        let (done, outcome) = (answered.answer, answered.outcome);
        if session.json() {
            return match self.as_json(&done, shows_states) {
                Some(document) => Ok(outcome.printed(print_json(&document))),
                None => Ok(outcome),
            };
        }
        if let Some(why) = done.nothing {
            return Err(CliError::NotFound(why));
        }
        Ok(outcome.printed(print(self.as_text(&done, shows_states))))
    }

    /// Whether this is about a pool on disks, not about opening one for good.
    pub fn is_for_disks(&self) -> bool {
        self.dry_run || self.is_read_only()
    }

    fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "readonly=on")
    }

    fn request(&self, session: &Session) -> Result<Request, CliError> {
        let disks = match &self.cache_file {
            Some(file) => cachefile::devices(file)?,
            None => session.common().disks.clone(),
        };
        let stays = session.control().is_with_daemon() && !self.is_for_disks();
        let opens = match session.json() {
            true => stays && (self.pool.is_some() || self.all),
            false => self.pool.is_some() || self.all,
        };
        let altroot = self.options.iter().find_map(|option| option.strip_prefix("altroot="));
        Ok(Request {
            pool: self.pool.clone(),
            purpose: if opens { Purpose::Open } else { Purpose::Describe },
            disks,
            destroyed: self.destroyed,
            force: self.force,
            no_mount: self.no_mount,
            root: self.altroot.as_deref().or(altroot).map(Into::into),
            load_keys: self.load_keys,
            new_name: self.new_name.clone(),
            temporary: self.temporary,
            missing_log: self.missing_log,
            rewind: session.common().rewind,
            extreme: self.extreme,
            rewind_to_checkpoint: self.rewind_to_checkpoint,
            dry_run: self.dry_run,
            read_only: self.is_read_only(),
        })
    }

    fn check_options(&self) -> Result<(), CliError> {
        // These would only affect a kernel.
        let is_idle = |option: &str| ["altroot=", "cachefile="].iter().any(|name| option.starts_with(name));
        match self.options.iter().find(|option| *option != "readonly=on" && !is_idle(option)) {
            None => Ok(()),
            Some(option) => Err(CliError::Usage(format!(
                "-o {option}: not possible: an import only looks; commands that write open the pool \
                 themselves"
            ))),
        }
    }

    /// None: a pool was opened for good, which prints nothing.
    fn as_json(&self, done: &Imported, was_opened: bool) -> Option<serde_json::Value> {
        match done.rewound.last() {
            Some(back) if self.dry_run => Some(json::way(back, "would_rewind")),
            Some(back) => Some(json::way(back, "rewound")),
            None => (!was_opened).then(|| json::whole(done)),
        }
    }

    fn as_text(&self, done: &Imported, shows_states: bool) -> String {
        // Among all pools, those that do not open have been reported.
        let is_shown = |pool: &&Found| !shows_states || pool.opened.is_ok();
        let shown = done.pools.iter().filter(is_shown).map(|pool| self.describe(pool, shows_states));
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

    fn describe(&self, pool: &Found, shows_state: bool) -> String {
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
            Ok(state) if shows_state => out += &opened(state),
            Ok(_) => {}
            Err(error) => out += &paragraph(" error", &error.why),
        }
        out += "config:\n\n";
        let style = tree::Style { names: self.names, ..tree::Style::default() };
        out += &tree::draw(health, style, &tree::Notes::new());
        out + &problems("notes", &pool.notes)
    }
}
