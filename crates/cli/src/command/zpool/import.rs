//! `zpool import`: lists the pools on the disks and checks whether they open.
//!
//! Without a daemon nothing stays imported: a pool is open for reading while the command runs. The listing
//! opens each pool to see its state, and `import POOL` reports what it found. Permanent changes (a rename, a
//! rewind, discarded logs) are written, and the pool is left exported. A daemon has it open afterwards.

use std::path::PathBuf;

use cenote_control::zpool::shown::status::circumstances::Circumstances;
use cenote_control::zpool::shown::status::reason::judge;
use cenote_control::zpool::shown::status::unopened::Unopened;
use cenote_control::zpool::whole::check_name;
use cenote_dataset::Mos;
use cenote_inspect::rewind::Reach;
use cenote_pool::{FoundPool, PoolHealth, PoolState, VdevClass, VdevConfig, VdevKind, VdevState, VdevStatus};
use cenote_tasks::PoolSetting;
use serde_json::{Map, Value};

use super::import_text::{action, last_user, opened, problems, went_back, would_go_back};
use super::{Import, cachefile, import_json, tree};
use crate::command::json::document;
use crate::outcome::{CliError, Outcome, Printed, Say};
use crate::render::paragraph;
use crate::session::{Session, WayBack, check_kernel, print, print_json};

impl Import {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        self.check_options()?;
        let cached = self.cache_file.as_deref().map(cachefile::devices).transpose()?;
        let cached = cached.map(|devices| session.searching(devices));
        let session = cached.as_ref().unwrap_or(session);
        if session.pools().is_some() && (self.pool.is_some() || self.all) && !self.is_look() {
            return self.give_to_daemon(session).await;
        }
        if let Some(name) = self.pool.as_deref().filter(|_| session.common().rewind && !self.is_look_only()) {
            return self.go_back_to_whole(session, name).await;
        }
        if session.json() {
            return self.as_json(session).await;
        }
        match &self.pool {
            Some(name) if self.rewind_to_checkpoint => self.go_back(session, name).await,
            Some(name) if self.missing_log && !self.is_look() => self.give_up_logs(session, name).await,
            Some(name) if self.written_name().is_some() || self.destroyed && self.force => {
                self.take(session, name).await
            }
            Some(name) => {
                let found = session.find_on_disks(name).await?;
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

    /// Whether this is about a pool on disks, not about having one open.
    pub fn is_for_disks(&self) -> bool {
        self.is_look()
    }

    /// Imports pools for good: the daemon has them from now on.
    async fn give_to_daemon(&self, session: &Session) -> Result<Outcome, CliError> {
        let names: Vec<String> = match &self.pool {
            Some(name) => vec![name.clone()],
            None => {
                let found = session.discover().await.pools.into_iter();
                let is_closed = |found: &FoundPool| {
                    found.state() != PoolState::Destroyed && session.held(found).is_none()
                };
                found.filter(is_closed).map(|found| found.guid().to_string()).collect()
            }
        };
        let mut outcome = Outcome::Done;
        for name in &names {
            let imported = self.import_into_daemon(session, name).await;
            outcome = outcome.and(match (imported, self.all) {
                (Err(error), true) => error.tell(name),
                (imported, _) => imported?,
            });
        }
        Ok(outcome)
    }

    async fn import_into_daemon(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        let rewinds = session.common().rewind;
        if self.missing_log || self.rewind_to_checkpoint || rewinds {
            session.refuse_if_held(&session.find_on_disks(name).await?)?;
        }
        if rewinds {
            self.go_back_to_whole(session, name).await?;
        }
        if self.rewind_to_checkpoint {
            self.go_back(session, name).await?;
        }
        if self.missing_log {
            self.give_up_logs(session, name).await?;
        }
        if self.written_name().is_some() || self.destroyed {
            self.take(session, name).await?;
        }
        let name = self.written_name().unwrap_or(name);
        let found = session.find_on_disks(name).await?;
        if found.state() == PoolState::Destroyed {
            let why = "the pool was destroyed; import it with -D";
            return Err(CliError::NotFound(format!("cannot import '{name}': {why}")));
        }
        if !self.force {
            session.check_unused_or(&found, "the same command with -f")?;
        }
        if !self.missing_log {
            refuse_missing_logs(session, &found).await?;
        }
        let altroot = self.options.iter().find_map(|option| option.strip_prefix("altroot="));
        let root = self.altroot.as_deref().or(altroot).map(PathBuf::from);
        let pool = session.hold(&found, root).await?;
        session.note_command(&pool.engine);
        let loaded = if self.load_keys { session.load_keys(&pool, None).await? } else { Outcome::Done };
        if self.no_mount { Ok(loaded) } else { Ok(loaded.and(session.mount_all(&pool).await?)) }
    }

    fn written_name(&self) -> Option<&str> {
        self.new_name.as_deref().filter(|_| !self.temporary)
    }

    /// Renames a pool or restores a destroyed one, and leaves it exported.
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
        let found = session.find_on_disks(name).await?;
        let is_back = self.destroyed && found.state() == PoolState::Destroyed;
        if !self.force && !is_back {
            session.check_unused_or(&found, "the same command with -f")?;
        }
        session
            .change_found(&found, PoolState::Exported, async |engine| match new {
                Some(new) => Ok(cenote_tasks::set_pool(engine, PoolSetting::Name(new.into())).await?),
                None => Ok(()),
            })
            .await
    }

    /// Rewinds a pool to its checkpoint and leaves it exported, or only shows the checkpoint.
    async fn go_back(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        if self.is_look() {
            let found = session.find_on_disks(name).await?;
            let mos = session.open_checkpoint(&found).await?;
            return self.show(session, &found, &mos).await;
        }
        let found = self.find_to_take(session, name).await?;
        session.rewind_to_checkpoint(&found).await?;
        Ok(Outcome::Done)
    }

    /// Rewinds to the newest intact state and leaves the pool exported; with -n only says which state that
    /// is.
    async fn go_back_to_whole(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        if self.new_name.is_some() {
            return Err(CliError::Usage("-F: rewind first, then rename".into()));
        }
        let reach = if self.extreme { Reach::Extreme } else { Reach::Whole };
        if self.dry_run {
            let found = session.find_on_disks(name).await?;
            let (state, way) = session.find_whole(&found, reach).await?;
            if session.json() {
                print_json(&document("zpool import", "would_rewind", one(&found, &way)))?;
                return Ok(Outcome::Done);
            }
            self.show(session, &found, state.mos()).await?;
            let letters = if self.extreme { "-FX" } else { "-F" };
            print("\n".to_owned() + &would_go_back(&found, &way, letters))?;
            return Ok(Outcome::Done);
        }
        let found = self.find_to_take(session, name).await?;
        let way = session.rewind_to_whole(&found, reach).await?;
        let printed = match session.json() {
            true => print_json(&document("zpool import", "rewound", one(&found, &way))),
            false => print(went_back(&found, &way)),
        };
        Ok(Outcome::Done.printed(printed))
    }

    /// Discards the unreadable part of intent logs and leaves the pool exported.
    async fn give_up_logs(&self, session: &Session, name: &str) -> Result<Outcome, CliError> {
        let found = self.find_to_take(session, name).await?;
        session.give_up_lost_logs(&found).await?;
        Ok(Outcome::Done)
    }

    /// Finds a pool that no other machine uses, or with -f any pool.
    async fn find_to_take(&self, session: &Session, name: &str) -> Result<FoundPool, CliError> {
        let found = session.find_on_disks(name).await?;
        if !self.force {
            session.check_unused_or(&found, "the same command with -f")?;
        }
        Ok(found)
    }

    /// Whether the pool must not be changed.
    fn is_look(&self) -> bool {
        self.dry_run || self.is_look_only()
    }

    fn is_look_only(&self) -> bool {
        self.options.iter().any(|option| option == "readonly=on")
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

    /// The named pool or all pools, as JSON.
    async fn as_json(&self, session: &Session) -> Result<Outcome, CliError> {
        let discovery = session.discover().await;
        let is_meant = |found: &&FoundPool| match &self.pool {
            Some(name) => found.name() == name || found.guid().to_string() == *name,
            None => self.destroyed == (found.state() == PoolState::Destroyed),
        };
        let mut tried = Vec::new();
        for found in discovery.pools.iter().filter(is_meant) {
            session.tell_doubts(found);
            let opened = match session.open_without_asking(found).await {
                Ok(mos) => Ok(mos),
                Err(error) => {
                    let unopened = Unopened::look(session, found, &error).await;
                    Err((error, unopened))
                }
            };
            tried.push((found, opened));
        }
        let outcome = match (tried.len(), &self.pool) {
            (0, _) => Outcome::Failed,
            (_, Some(_)) => tried.iter().fold(Outcome::Done, |worst, (_, opened)| {
                opened.as_ref().err().map_or(worst, |(error, _)| worst.and(error.outcome()))
            }),
            (_, None) => Outcome::Done,
        };
        print_json(&import_json::whole(&discovery, tried).await?)?;
        Ok(outcome)
    }

    /// Opens a pool and prints what was found.
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

    /// Lists all pools on the disks and their problems.
    async fn list(&self, session: &Session) -> Result<Outcome, CliError> {
        let discovery = session.discover().await;
        let is_shown = |pool: &&FoundPool| self.destroyed == (pool.state() == PoolState::Destroyed);
        let mut outcome = Outcome::Done;
        let mut shown = 0;
        for found in discovery.pools.iter().filter(is_shown) {
            print(if shown > 0 { "\n" } else { "" })?;
            shown += 1;
            session.tell_doubts(found);
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
                    let Unopened { health, circumstances } = Unopened::look(session, found, &error).await;
                    let text = self.describe(found, &health, circumstances, false);
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
            out += &paragraph("status", &reason.status);
        }
        out += &paragraph("action", &action(health, opens, reason.as_ref().map(|reason| &*reason.action)));
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

/// Nobody knows whether a log device that is missing holds commits. Without -m OpenZFS refuses even pools
/// that were exported (`spa_check_for_missing_logs`).
async fn refuse_missing_logs(session: &Session, found: &FoundPool) -> Result<(), CliError> {
    let is_here = |top: &VdevConfig| top.leaves().any(|leaf| found.devices.contains_key(&leaf.guid));
    let mut tops = found.config.vdevs.iter().filter(|top| top.kind != VdevKind::Hole);
    if tops.all(|top| top.kind != VdevKind::Missing && is_here(top)) {
        return Ok(());
    }
    // If it does not open, the import says why.
    let Ok(mos) = session.open_without_asking(found).await else { return Ok(()) };
    let tops = mos.pool().status().root.children;
    let is_missing = |top: &&VdevStatus| top.class == VdevClass::Log && top.state == VdevState::Unavailable;
    let missing: Vec<String> = tops.iter().filter(is_missing).map(|top| format!("\t{}", top.name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::Refused(format!(
        "cannot import '{0}': these log devices are missing or corrupted:\n{1}\nBring them back, or import \
         the pool without what only they hold: `zpool import -m {0}`",
        found.name(),
        missing.join("\n")
    )))
}

fn one(found: &FoundPool, way: &WayBack) -> Map<String, Value> {
    Map::from_iter([(found.name().to_owned(), import_json::rewound(way))])
}
