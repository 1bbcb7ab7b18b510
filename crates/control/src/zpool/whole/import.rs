//! `zpool import`: describes pools on disks, or has the daemon open them until exported.
//!
//! Without a daemon no pool stays imported: it is open for reading while the verb runs. A rename, a rewind,
//! or discarded logs are still written; the pool is then left exported for a daemon to open.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_import`), zpool-import(8).

pub mod found;

use std::path::PathBuf;

use cenote_device::Place;
use cenote_inspect::rewind::Reach;
use cenote_pool::{FoundPool, PoolState, Problem, VdevClass, VdevConfig, VdevKind, VdevState, VdevStatus};
use cenote_tasks::PoolSetting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_name;
use crate::error::{ControlError, Outcome};
use crate::session::{Session, WayBack, check_kernel};
use crate::verb::{Answered, Looks, Needs, Runs, Verb};
use found::Found;

/// Import pools into the daemon; list, check, rewind or rename pools on disks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Import {
    /// Name or guid; none: all pools found.
    pub pool: Option<String>,
    /// Describe or open.
    pub purpose: Purpose,
    /// Places to search: paths, or addresses of remote disks; empty: everywhere.
    pub disks: Vec<PathBuf>,
    /// Destroyed pools.
    pub destroyed: bool,
    /// Take pools not exported by another machine, fencing it if the storage can; restore destroyed ones.
    pub force: bool,
    /// Mount nothing.
    pub no_mount: bool,
    /// Root of all mount points.
    pub root: Option<PathBuf>,
    /// Load keys.
    pub load_keys: bool,
    /// Pool's new name.
    pub new_name: Option<String>,
    /// Do not write the new name.
    pub temporary: bool,
    /// Give up data of lost log devices.
    pub missing_log: bool,
    /// Rewind to the newest intact state...
    pub rewind: bool,
    /// ...or even to one with only its metadata intact.
    pub extreme: bool,
    /// Rewind to the checkpoint.
    pub rewind_to_checkpoint: bool,
    /// Write nothing; report the outcome.
    pub dry_run: bool,
    /// Write nothing.
    pub read_only: bool,
}

/// The purpose of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Describe pools, even unopenable ones.
    #[default]
    Describe,
    /// Open pools.
    Open,
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// Described pools.
    pub pools: Vec<Found>,
    /// Problems of the search.
    pub problems: Vec<Problem>,
    /// Why no pool is described.
    pub nothing: Option<String>,
    /// States rewound to, or that would be.
    pub rewound: Vec<Rewound>,
}

/// A rewound pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rewound {
    /// Name.
    pub pool: String,
    /// State.
    pub way: WayBack,
}

impl Verb for Import {
    const NAME: &'static str = "zpool import";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const RUNS: Runs = Runs::AsWordsSay;
    type Answer = Imported;

    /// # Errors
    /// The pool is missing, does not open, or is in use elsewhere. Of several pools, failures are reported.
    async fn carry_out(self, session: &Session) -> Result<Answered<Imported>, ControlError> {
        let disks = self.disks.iter().map(|disk| session.caller().place(disk));
        let disks = disks.collect::<Result<Vec<Place>, ControlError>>()?;
        let elsewhere = (!disks.is_empty()).then(|| session.searching(disks));
        let session = elsewhere.as_ref().unwrap_or(session);
        let taking = (self.force && !self.is_look()).then(|| session.taking_over());
        let session = taking.as_ref().unwrap_or(session);
        let mut done = Imported::default();
        if self.purpose == Purpose::Open && session.pools().is_some() && !self.is_look() {
            let outcome = self.hold_all(session, &mut done).await?;
            return Ok(Answered { answer: done, outcome });
        }
        let outcome = match &self.pool {
            Some(name) if self.rewind && !self.read_only => {
                self.go_back_to_whole(session, name, &mut done).await?
            }
            _ if self.purpose == Purpose::Describe => self.describe(session, &mut done).await?,
            None => self.open_all(session, &mut done).await?,
            Some(name) if self.rewind_to_checkpoint => self.go_back(session, name, &mut done).await?,
            Some(name) if self.missing_log && !self.is_look() => self.give_up_logs(session, name).await?,
            Some(name) if self.written_name().is_some() || self.destroyed && self.force => {
                self.take(session, name).await?
            }
            Some(name) => {
                let found = session.find_on_disks(name).await?;
                if found.state() == PoolState::Destroyed && !self.destroyed {
                    let why = "the pool was destroyed; open it with -D";
                    return Err(ControlError::NotFound(format!("cannot import '{name}': {why}")));
                }
                // As in OpenZFS, an import for reading is an import: no other machine may have the pool.
                session.watch(&found).await?;
                done.pools.push(Found::open(session, &found).await?);
                Outcome::Done
            }
        };
        Ok(Answered { answer: done, outcome })
    }
}

impl Import {
    /// Whether pools must stay unchanged.
    pub fn is_look(&self) -> bool {
        self.dry_run || self.read_only
    }

    fn written_name(&self) -> Option<&str> {
        self.new_name.as_deref().filter(|_| !self.temporary)
    }

    async fn describe(&self, session: &Session, done: &mut Imported) -> Result<Outcome, ControlError> {
        let discovery = session.discover().await;
        let is_meant = |found: &&FoundPool| match &self.pool {
            Some(name) => found.name() == name || found.guid().to_string() == *name,
            None => self.destroyed == (found.state() == PoolState::Destroyed),
        };
        let mut outcome = Outcome::Done;
        for found in discovery.pools.iter().filter(is_meant) {
            session.tell_doubts(found);
            let (pool, failed) = Found::describe(session, found).await?;
            done.pools.push(pool);
            if self.pool.is_some() {
                outcome = outcome.and(failed);
            }
        }
        if done.pools.is_empty() {
            outcome = Outcome::Failed;
            let left_out = discovery.pools.len();
            done.nothing = Some(match left_out > 0 && !self.destroyed {
                true => format!(
                    "no pools available to import; {left_out} destroyed: `zpool import -D` shows them"
                ),
                false => session.nothing_found(&discovery).to_string(),
            });
        }
        done.problems = discovery.problems;
        Ok(outcome)
    }

    async fn open_all(&self, session: &Session, done: &mut Imported) -> Result<Outcome, ControlError> {
        let mut outcome = self.describe(session, done).await?;
        for pool in &done.pools {
            if let Err(failed) = &pool.opened {
                let error = ControlError::Told { text: failed.told.clone(), outcome: failed.outcome() };
                outcome = outcome.and(session.caller().tell(&pool.name, &error));
            }
        }
        Ok(outcome)
    }

    /// Has the daemon open the pool, or all.
    async fn hold_all(&self, session: &Session, done: &mut Imported) -> Result<Outcome, ControlError> {
        if let Some(name) = &self.pool {
            let held = self.hold(session, name, done).await;
            return match held {
                // Rewinds already done belong in the answer.
                Err(error) if !done.rewound.is_empty() => Ok(session.caller().tell("", &error)),
                held => held,
            };
        }
        let is_closed =
            |found: &FoundPool| found.state() != PoolState::Destroyed && session.held(found).is_none();
        let mut outcome = Outcome::Done;
        for found in session.discover().await.pools.into_iter().filter(is_closed) {
            let name = found.guid().to_string();
            let held = self.hold(session, &name, done).await;
            outcome = outcome.and(held.unwrap_or_else(|error| session.caller().tell(&name, &error)));
        }
        Ok(outcome)
    }

    async fn hold(
        &self,
        session: &Session,
        name: &str,
        done: &mut Imported,
    ) -> Result<Outcome, ControlError> {
        session.refuse_if_moving(name).await?;
        if self.missing_log || self.rewind_to_checkpoint || self.rewind {
            session.refuse_if_held(&session.find_on_disks(name).await?)?;
        }
        if self.rewind {
            self.go_back_to_whole(session, name, done).await?;
        }
        if self.rewind_to_checkpoint {
            self.go_back(session, name, done).await?;
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
            return Err(ControlError::NotFound(format!("cannot import '{name}': {why}")));
        }
        if !self.force {
            session.check_unused_or(&found, "the same command with -f")?;
        }
        if !self.missing_log {
            refuse_missing_logs(session, &found).await?;
        }
        let pool = session.hold(&found, self.root.clone()).await?;
        session.note_command(&pool.engine);
        let loaded = if self.load_keys { session.load_keys(&pool, None).await? } else { Outcome::Done };
        if self.no_mount { Ok(loaded) } else { Ok(loaded.and(session.mount_all(&pool).await?)) }
    }

    /// Renames a pool or restores a destroyed one, and leaves it exported.
    async fn take(&self, session: &Session, name: &str) -> Result<Outcome, ControlError> {
        let refused = |why: &str| ControlError::Refused(format!("cannot import '{name}': {why}"));
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

    /// Rewinds to the checkpoint and leaves the pool exported, or only describes the checkpoint.
    async fn go_back(
        &self,
        session: &Session,
        name: &str,
        done: &mut Imported,
    ) -> Result<Outcome, ControlError> {
        if self.is_look() {
            let found = session.find_on_disks(name).await?;
            let mos = session.open_checkpoint(&found).await?;
            done.pools.push(Found::of(session, &found, &mos, true).await?);
            return Ok(Outcome::Done);
        }
        session.rewind_to_checkpoint(&self.find_to_take(session, name).await?).await?;
        Ok(Outcome::Done)
    }

    /// Rewinds to the newest intact state and leaves the pool exported, or only names that state.
    async fn go_back_to_whole(
        &self,
        session: &Session,
        name: &str,
        done: &mut Imported,
    ) -> Result<Outcome, ControlError> {
        if self.new_name.is_some() {
            return Err(ControlError::Usage("-F: rewind first, then rename".into()));
        }
        let reach = if self.extreme { Reach::Extreme } else { Reach::Whole };
        let (found, way) = if self.dry_run {
            let found = session.find_on_disks(name).await?;
            let (state, way) = session.find_whole(&found, reach).await?;
            done.pools.push(Found::of(session, &found, state.mos(), false).await?);
            (found, way)
        } else {
            let found = self.find_to_take(session, name).await?;
            let way = session.rewind_to_whole(&found, reach).await?;
            (found, way)
        };
        done.rewound.push(Rewound { pool: found.name().into(), way });
        Ok(Outcome::Done)
    }

    /// Discards the unreadable part of intent logs and leaves the pool exported.
    async fn give_up_logs(&self, session: &Session, name: &str) -> Result<Outcome, ControlError> {
        session.give_up_lost_logs(&self.find_to_take(session, name).await?).await?;
        Ok(Outcome::Done)
    }

    async fn find_to_take(&self, session: &Session, name: &str) -> Result<FoundPool, ControlError> {
        let found = session.find_on_disks(name).await?;
        if !self.force {
            session.check_unused_or(&found, "the same command with -f")?;
        }
        Ok(found)
    }
}

/// A missing log device may hold commits. Without -m OpenZFS refuses even exported pools
/// (`spa_check_for_missing_logs`).
async fn refuse_missing_logs(session: &Session, found: &FoundPool) -> Result<(), ControlError> {
    let is_here = |top: &VdevConfig| top.leaves().any(|leaf| found.devices.contains_key(&leaf.guid));
    let mut tops = found.config.vdevs.iter().filter(|top| top.kind != VdevKind::Hole);
    if tops.all(|top| top.kind != VdevKind::Missing && is_here(top)) {
        return Ok(());
    }
    let Ok(mos) = session.open_without_asking(found).await else { return Ok(()) };
    let tops = mos.pool().status().root.children;
    let is_missing = |top: &&VdevStatus| top.class == VdevClass::Log && top.state == VdevState::Unavailable;
    let missing: Vec<String> = tops.iter().filter(is_missing).map(|top| format!("\t{}", top.name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(ControlError::Refused(format!(
        "cannot import '{0}': these log devices are missing or corrupted:\n{1}\nBring them back, or import \
         the pool without what only they hold: `zpool import -m {0}`",
        found.name(),
        missing.join("\n")
    )))
}
