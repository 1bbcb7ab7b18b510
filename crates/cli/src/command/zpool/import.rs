//! `zpool import`: which pools there are among the disks, and whether one opens.
//!
//! Nothing is imported into anything: a pool is opened for reading as long as a command runs. So the listing opens each pool to
//! tell what is there, and `import POOL` says what it found. What an import changes for good (another name, an older state, logs given up)
//! is written, and the pool left exported.

use cenote_dataset::Mos;
use cenote_dataset::engine::PoolSetting;
use cenote_pool::{FoundPool, PoolHealth, PoolState, Problem};

use super::create::check_name;
use super::reason::{Circumstances, judge, paragraph};
use super::{Import, import_json, tree};
use crate::outcome::{CliError, Outcome};
use crate::render::ctime;
use crate::session::{Session, check_kernel, print, print_json};

impl Import {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        self.check_options()?;
        if session.json() {
            return self.as_json(session).await;
        }
        match &self.pool {
            Some(name) if self.rewind_to_checkpoint => self.go_back(session, name).await,
            Some(name) if session.common().rewind && !self.is_look() => {
                self.go_back_to_whole(session, name).await
            }
            Some(name) if self.missing_log && !self.is_look() => self.give_up_logs(session, name).await,
            Some(name) if self.written_name().is_some() || self.destroyed && self.force => {
                self.take(session, name).await
            }
            Some(name) => {
                let found = session.find_pool(name).await?;
                if found.state() == PoolState::Destroyed && !self.destroyed {
                    return Err(CliError::NotFound(format!(
                        "cannot import '{name}': the pool was destroyed; open it with -D"
                    )));
                }
                self.open(session, &found).await
            }
            None => self.list(session).await,
        }
    }

    fn written_name(&self) -> Option<&str> {
        self.new_name.as_deref().filter(|_| !self.temporary)
    }

    /// Gives a pool another name, or undoes that it was destroyed. It is left exported.
    async fn take(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        let refused = |why: &str| CliError::Refused(format!("cannot import '{name}': {why}"));
        let new = self.written_name();
        if let Some(new) = new {
            check_name(new).map_err(refused)?;
            check_kernel(new)?;
            let discovery = session.discover().await;
            if discovery.pools.iter().any(|pool| pool.name() == new && pool.state() != PoolState::Destroyed) {
                return Err(refused("a pool with that name already exists; choose another new name"));
            }
        }
        let found = session.find_pool(name).await?;
        let is_back = self.destroyed && found.state() == PoolState::Destroyed;
        if !self.force && !is_back {
            session.check_unused(&found)?;
        }
        session
            .change_found(&found, PoolState::Exported, async |engine| match new {
                Some(new) => Ok(engine.set_pool(PoolSetting::Name(new.into())).await?),
                None => Ok(()),
            })
            .await
    }

    /// Makes a pool's checkpoint its state, or only shows it. It is left exported.
    async fn go_back(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        if self.is_look() {
            let found = session.find_pool(name).await?;
            let mos = session.open_checkpoint(&found).await?;
            return self.show(session, &found, &mos).await;
        }
        let found = self.find_to_take(session, name).await?;
        session.rewind_to_checkpoint(&found).await?;
        Ok(Outcome::Done)
    }

    /// Makes the newest state that is whole the newest. The pool is left exported.
    async fn go_back_to_whole(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        if self.new_name.is_some() {
            return Err(CliError::Usage("-F: go back first, then give it another name".into()));
        }
        let found = self.find_to_take(session, name).await?;
        let state = session.rewind_to_whole(&found).await?;
        let time = ctime(state.timestamp_s.cast_signed());
        print(match found.uberblocks.first().filter(|newest| newest.txg > state.txg) {
            Some(newest) => format!(
                "pool '{}' went back from txg {} to txg {}, of {time}: what came after it ({}) is lost\n",
                found.name(),
                newest.txg,
                state.txg,
                counted(newest.timestamp_s.saturating_sub(state.timestamp_s), "second"),
            ),
            None => {
                format!("pool '{}' is whole in its newest state, of {time}: nothing is lost\n", found.name())
            }
        })?;
        Ok(Outcome::Done)
    }

    /// Gives up what can't be read of intent logs. The pool is left exported.
    async fn give_up_logs(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        let found = self.find_to_take(session, name).await?;
        session.give_up_lost_logs(&found).await?;
        Ok(Outcome::Done)
    }

    /// Finds a pool that nobody else has, or whoever has it.
    async fn find_to_take(&self, session: &Session, name: &str) -> Result<FoundPool, CliError> {
        let found = session.find_pool(name).await?;
        if !self.force {
            session.check_unused(&found)?;
        }
        Ok(found)
    }

    /// The pool is to be left alone.
    fn is_look(&self) -> bool {
        self.dry_run || self.options.iter().any(|option| option == "readonly=on")
    }

    fn check_options(&self) -> Result<(), CliError> {
        // Where a kernel would mount it and remember it.
        let is_idle = |option: &str| ["altroot=", "cachefile="].iter().any(|name| option.starts_with(name));
        match self.options.iter().find(|option| *option != "readonly=on" && !is_idle(option)) {
            None => Ok(()),
            Some(option) => Err(CliError::Usage(format!(
                "-o {option}: not possible here: an import looks, and commands that write open the pool themselves; nothing is mounted"
            ))),
        }
    }

    /// The pool named or all of them, for programs.
    async fn as_json(&self, session: &Session) -> Result<Outcome, CliError> {
        let discovery = session.discover().await;
        let is_meant = |found: &&FoundPool| match &self.pool {
            Some(name) => found.name() == name || found.guid().to_string() == *name,
            None => self.destroyed == (found.state() == PoolState::Destroyed),
        };
        let mut tried = Vec::new();
        for found in discovery.pools.iter().filter(is_meant) {
            tried.push((found, session.open_without_asking(found).await));
        }
        let outcome = match (tried.len(), &self.pool) {
            (0, _) => Outcome::Failed,
            (_, Some(_)) => tried.iter().fold(Outcome::Done, |worst, (_, opened)| {
                opened.as_ref().err().map_or(worst, |error| worst.and(error.outcome()))
            }),
            (_, None) => Outcome::Done,
        };
        print_json(&import_json::whole(&discovery, tried).await?)?;
        Ok(outcome)
    }

    /// Opens a pool and says what was found.
    async fn open(&self, session: &Session, found: &FoundPool) -> Result<Outcome, CliError> {
        let mos = session.open_without_asking(found).await?;
        self.show(session, found, &mos).await
    }

    async fn show(&self, session: &Session, found: &FoundPool, mos: &Mos) -> Result<Outcome, CliError> {
        let health = mos.pool().status();
        let circumstances = Circumstances::of_pool(mos).await?;
        let out = self.describe(found, &health, circumstances, true);
        let is_checkpoint = session.common().checkpoint || self.rewind_to_checkpoint;
        let out = out.replacen("config:\n", &(opened(found, mos, is_checkpoint) + "config:\n"), 1);
        print(out)?;
        Ok(Outcome::Done)
    }

    /// Lists all pools that can be found, with what is wrong with them.
    async fn list(&self, session: &Session) -> Result<Outcome, CliError> {
        let discovery = session.discover().await;
        let is_shown = |pool: &&FoundPool| self.destroyed == (pool.state() == PoolState::Destroyed);
        let mut outcome = Outcome::Done;
        let mut shown = 0;
        for found in discovery.pools.iter().filter(is_shown) {
            print(if shown > 0 { "\n" } else { "" })?;
            shown += 1;
            if self.all {
                let opened = self.open(session, found).await;
                outcome = outcome.and(opened.unwrap_or_else(|error| error.tell(found.name())));
                continue;
            }
            match session.open_without_asking(found).await {
                Ok(mos) => {
                    let circumstances = Circumstances::of_pool(&mos).await?;
                    print(self.describe(found, &mos.pool().status(), circumstances, true))?;
                }
                Err(error) => {
                    let text = self.describe(found, &found.status(), Circumstances::of_found(found), false);
                    let why = paragraph(" error", &error.to_string());
                    print(text.replacen("config:\n", &(why + "config:\n"), 1))?;
                }
            }
        }
        let destroyed = discovery.pools.len() - discovery.pools.iter().filter(is_shown).count();
        if shown == 0 && destroyed > 0 && !self.destroyed {
            return Err(CliError::NotFound(format!(
                "no pools available to import; {destroyed} destroyed: `zpool import -D` shows them"
            )));
        }
        if shown == 0 {
            return Err(session.nothing_found(&discovery));
        }
        print(problems("problems", &discovery.problems))?;
        Ok(outcome)
    }

    fn describe(
        &self,
        found: &FoundPool,
        health: &PoolHealth,
        circumstances: Circumstances,
        opens: bool,
    ) -> String {
        let destroyed = if found.state() == PoolState::Destroyed { " (DESTROYED)" } else { "" };
        let (name, guid) = (found.name(), found.guid());
        let mut out = format!("  pool: {name}\n    id: {guid}\n state: {}{destroyed}\n", health.state());
        let reason = judge(health, circumstances);
        if let Some(reason) = &reason {
            out += &paragraph("status", reason.status);
        }
        out += &paragraph("action", &action(health, opens, reason.as_ref().map(|reason| reason.action)));
        if let Some(comment) = &found.config.comment {
            out += &format!("comment: {comment}\n");
        }
        if let Some(page) = reason.and_then(|reason| reason.page()) {
            out += &format!("   see: {page}\n");
        }
        if let Some(note) = last_user(found) {
            out += &paragraph("  last", &note);
        }
        out += "config:\n\n";
        let style = tree::Style { names: self.names, ..tree::Style::default() };
        out += &tree::draw(health, style, &tree::Notes::new());
        out += &problems("notes", &found.notes);
        out
    }
}

/// Whether the pool can be opened, and what mends it.
fn action(health: &PoolHealth, opens: bool, reason: Option<&str>) -> String {
    let open = match (opens, health.is_importable()) {
        (true, true) => "The pool can be opened using its name or numeric identifier.",
        // Metadata has copies; some may lie whole on the devices that are there.
        (true, false) => "The pool can be read in part: what does not need the devices that are missing.",
        (false, true) => {
            "The pool cannot be opened as it is. An older state may be whole: `zpool import -F -n` shows which, -F goes back to it."
        }
        (false, false) => "The pool cannot be opened as it is.",
    };
    match reason {
        Some(reason) => format!("{open} {reason}"),
        None => open.into(),
    }
}

/// Who had the pool last, if it was not exported.
fn last_user(found: &FoundPool) -> Option<String> {
    if found.state() != PoolState::Active {
        return None;
    }
    let host = found.config.hostname.as_deref().unwrap_or("an unknown machine");
    let hostid = found.config.hostid.map_or_else(String::new, |id| format!(" (hostid={id:x})"));
    let newest = found.uberblocks.first();
    let when =
        newest.map_or_else(String::new, |u| format!(", written {}", ctime(u.timestamp_s.cast_signed())));
    Some(format!("in use by {host}{hostid}{when}, not exported"))
}

/// Which state was opened, and what of it may be missing.
fn opened(found: &FoundPool, mos: &Mos, is_checkpoint: bool) -> String {
    let at = mos.uberblock();
    let time = ctime(at.timestamp_s.cast_signed());
    let newest = found.uberblocks.first().map_or(at.txg, |newest| newest.txg);
    let oldest = found.uberblocks.last().map_or(at.txg, |oldest| oldest.txg);
    let which = match newest.0.saturating_sub(at.txg.0) {
        0 => "the newest state".to_owned(),
        _ if is_checkpoint => format!("the checkpoint; the newest state is txg {newest}"),
        behind => format!("{} before the newest state, txg {newest}", counted(behind, "txg")),
    };
    let kept = format!("{} states from txg {oldest} on can be asked for with --txg", found.uberblocks.len());
    paragraph("opened", &format!("read-only, as of txg {}, {time}: {which}. {kept}.", at.txg))
}

fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn problems(label: &str, problems: &[Problem]) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let lines: String = problems.iter().map(|p| format!("\t{}: {}\n", p.path, p.why)).collect();
    format!("\n{label}:\n\n{lines}")
}
