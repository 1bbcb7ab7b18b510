//! Changing a pool: open it, mark it as in use, make the change, export it.
//!
//! Idea: without a daemon a pool is in use only while a command runs. The command leaves it exported, so the
//! kernel and other machines import it without force. A pool last used by another machine and not exported
//! may still be in use there: it is refused, unless the administrator insists (`zpool export -f`). A refused
//! command leaves the pool byte for byte unchanged ([`Engine::take`]).

use std::fmt::Display;
use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::KeySource;
use cenote_device::{Fence, Gate};
use cenote_engine::{Engine, Host, LostLog};
use cenote_fs::replay_logs;
use cenote_pool::multihost::Watched;
use cenote_pool::{FoundPool, LeafIoTable, PoolState};
use cenote_runtime::Runtime;

use super::held::NewDatasets;
use super::multihost::Taking;
use super::replay::now;
use super::{Session, State};
use crate::error::{ControlError, Outcome};

/// Dirty data of one command: two txgs of 64 MiB, plus the changes made while they are written.
const DIRTY_BYTES_MAX: u64 = 256 << 20;

impl Session {
    /// Opens a pool, runs `work` on it, and leaves it exported in any case. The pool's history records a
    /// command that succeeded or was interrupted.
    pub async fn change_pool<T: Into<Outcome>>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&Engine) -> Result<T, ControlError>,
    ) -> Result<Outcome, ControlError> {
        self.change_pool_with(name, NewDatasets::AreMounted, work).await
    }

    /// The same, with the fate of datasets that the work makes.
    pub async fn change_pool_with<T: Into<Outcome>>(
        &self,
        name: &str,
        new: NewDatasets<'_>,
        work: impl AsyncFnOnce(&Engine) -> Result<T, ControlError>,
    ) -> Result<Outcome, ControlError> {
        // An open pool needs no look at its labels.
        if let Some(pool) = self.held_by_name(name) {
            return self.change_held(&pool, new, work).await;
        }
        self.change_unused(&self.find_pool(name).await?, work).await
    }

    /// Runs `work` for each of `names`, opening a pool once per run of consecutive names in it. Failures are
    /// reported and do not stop the rest, except an interruption.
    pub async fn change_each<N: Display, T: Into<Outcome>>(
        &self,
        names: &[N],
        pool_of: impl Fn(&N) -> &str,
        work: impl AsyncFn(&Engine, &N) -> Result<T, ControlError>,
    ) -> Result<Outcome, ControlError> {
        let all = async |engine: &Engine, names: &[N]| {
            let mut outcome = Outcome::Done;
            for name in names {
                outcome = outcome.and(self.told(name, work(engine, name).await.map(T::into))?);
            }
            Ok(outcome)
        };
        self.change_runs(names, pool_of, all).await
    }

    /// The same for work that takes many names in one txg. If the batch is refused, each name is tried alone,
    /// and the failures are reported.
    pub async fn change_together<N: Display>(
        &self,
        names: &[N],
        pool_of: impl Fn(&N) -> &str,
        work: impl AsyncFn(&Engine, &[N]) -> Result<(), ControlError>,
    ) -> Result<Outcome, ControlError> {
        let all = async |engine: &Engine, names: &[N]| {
            if names.len() > 1 && work(engine, names).await.is_ok() {
                return Ok(Outcome::Done);
            }
            let mut outcome = Outcome::Done;
            for name in names {
                let done = work(engine, std::slice::from_ref(name)).await;
                outcome = outcome.and(self.told(name, done.map(|()| Outcome::Done))?);
            }
            Ok(outcome)
        };
        self.change_runs(names, pool_of, all).await
    }

    async fn change_runs<N: Display>(
        &self,
        names: &[N],
        pool_of: impl Fn(&N) -> &str,
        work: impl AsyncFn(&Engine, &[N]) -> Result<Outcome, ControlError>,
    ) -> Result<Outcome, ControlError> {
        let mut outcome = Outcome::Done;
        for names in names.chunk_by(|one, next| pool_of(one) == pool_of(next)) {
            let pool = pool_of(&names[0]);
            let changed = self.change_pool(pool, async |engine| work(engine, names).await).await;
            outcome = outcome.and(self.told(pool, changed)?);
        }
        Ok(outcome)
    }

    /// Like `change_pool`, for a pool already found.
    pub async fn change_unused<T: Into<Outcome>>(
        &self,
        found: &FoundPool,
        work: impl AsyncFnOnce(&Engine) -> Result<T, ControlError>,
    ) -> Result<Outcome, ControlError> {
        self.check_unused(found)?;
        self.change_found(found, PoolState::Exported, work).await
    }

    /// The same for a pool that may be taken from its last user. It is left in `state` if the work succeeded.
    pub async fn change_found<T: Into<Outcome>>(
        &self,
        found: &FoundPool,
        state: PoolState,
        work: impl AsyncFnOnce(&Engine) -> Result<T, ControlError>,
    ) -> Result<Outcome, ControlError> {
        if let Some(pool) = self.held(found) {
            return self.change_held(&pool, NewDatasets::AreMounted, work).await;
        }
        let engine = self.import_to_change(found).await?;
        let done = work(&engine).await.map(T::into);
        self.leave(&engine, done, state).await
    }

    async fn import_to_change(&self, found: &FoundPool) -> Result<Engine, ControlError> {
        let (found, taking) = self.open_to_change(found).await?;
        let mos = self.import(&found, &self.newest(&found)).await?;
        self.take(Engine::start(&mos).await?, &taking).await
    }

    /// Permanently makes a pool's checkpoint its current state. The caller has checked that the pool may be
    /// taken.
    pub async fn rewind_to_checkpoint(&self, found: &FoundPool) -> Result<Outcome, ControlError> {
        let (found, taking) = self.open_to_change(found).await?;
        let engine = Engine::rewind_to_checkpoint(self.runtime(), &found, &self.newest(&found)).await?;
        self.only_write(engine, &taking).await
    }

    /// Opens a pool and discards the unreadable part of its intent logs. The caller has checked that it may
    /// be taken.
    pub async fn give_up_lost_logs(&self, found: &FoundPool) -> Result<Outcome, ControlError> {
        let (found, taking) = self.open_to_change(found).await?;
        let mos = self.import(&found, &self.newest(&found)).await?;
        let (engine, lost) = Engine::start_without_lost_logs(&mos).await?;
        for LostLog { dataset, kept, why } in lost {
            self.caller()
                .note(format!("{dataset}: the intent log was discarded after {kept} records: {why}"));
        }
        self.only_write(engine, &taking).await
    }

    async fn open_to_change(&self, found: &FoundPool) -> Result<(FoundPool, Taking), ControlError> {
        if self.options().state != State::Newest {
            let why = "only the newest state can be changed; --txg, --rewind and --checkpoint are read-only";
            return Err(ControlError::Usage(why.into()));
        }
        self.open_behind_gate(found).await
    }

    /// Opens a pool for writing, once other machines are seen not to have it; no write passes before the gate
    /// opens.
    pub(super) async fn open_behind_gate(
        &self,
        found: &FoundPool,
    ) -> Result<(FoundPool, Taking), ControlError> {
        check_kernel(found.name())?;
        let watched = self.watch_to_take(found).await?;
        self.open_watched(found, watched, None).await
    }

    /// Opens a pool, watched if necessary, for writing, with counters of its devices if wanted. No write
    /// passes before the gate opens, nor after heartbeats have failed.
    pub(super) async fn open_watched(
        &self,
        found: &FoundPool,
        watched: Option<Watched>,
        taps: Option<Arc<LeafIoTable>>,
    ) -> Result<(FoundPool, Taking), ControlError> {
        let gate = Gate::default();
        let opened = match self.options().takes_over {
            true => found.take_over(self.runtime()).await?,
            false => found.open_for_writing(self.runtime()).await?,
        };
        let fenced = opened.clone().fenced(&Fence::under(self.runtime(), self.options().tenure.clone()));
        let counted = match taps {
            Some(taps) => fenced.tapped(taps),
            None => fenced,
        };
        Ok((counted.behind(&gate), Taking { opened, gate, watched }))
    }

    /// Takes a pool and replays its logs.
    pub(super) async fn begin(&self, engine: &Engine, taking: &Taking) -> Result<(), ControlError> {
        self.claim(engine, taking).await?;
        engine.ownership().take(&taking.gate, this_host(self.runtime()));
        for (dataset, report) in engine.ownership().prepare(replay_logs(engine, now(self.runtime()))).await? {
            self.say_replayed(&dataset, &report);
        }
        Ok(())
    }

    /// Takes a pool for one command, on behalf of its user.
    async fn take(&self, engine: Engine, taking: &Taking) -> Result<Engine, ControlError> {
        engine.load().set_dirty_bytes_max(DIRTY_BYTES_MAX);
        self.begin(&engine, taking).await?;
        Ok(engine.acting_for(self.caller().who.uid))
    }

    /// Writes the txg for work done by opening the pool, and leaves the pool exported.
    pub(super) async fn only_write(&self, engine: Engine, taking: &Taking) -> Result<Outcome, ControlError> {
        let engine = self.take(engine, taking).await?;
        let done = engine.force_sync().await.map(|_| Outcome::Done).map_err(ControlError::from);
        self.leave(&engine, done, PoolState::Exported).await
    }

    /// Leaves a pool after a command: in `state`, or exported on failure.
    async fn leave(
        &self,
        engine: &Engine,
        done: Result<Outcome, ControlError>,
        state: PoolState,
    ) -> Result<Outcome, ControlError> {
        let done = match done {
            Err(error) if error.is_broken_pipe() => {
                let why = "the reader of standard output went away; the rest was not done";
                Err(ControlError::Stopped(why.into()))
            }
            done => done,
        };
        let succeeded = matches!(done, Ok(Outcome::Done));
        if !succeeded && !engine.ownership().has_changed() {
            engine.multihost().give_back().await;
            return done;
        }
        // Work done before an interruption stays on the pool.
        if succeeded || matches!(done, Err(ControlError::Stopped(_))) {
            self.note_command(engine);
        }
        if engine.ownership().has_changed() {
            // Mends errors that reads found. On failure, the next read finds them again.
            cenote_tasks::mend(engine).await.ok();
        }
        let state = if done.is_ok() { state } else { PoolState::Exported };
        let closed = engine.close(state).await;
        // If closing fails, the cause is the earlier error.
        done.and_then(|done| closed.map(|()| done).map_err(ControlError::from))
    }

    /// Records the command line in the pool's history.
    pub fn note_command(&self, engine: &Engine) {
        engine.history().note_command(self.command_line(), self.caller().who.uid.into());
    }

    /// The newest state. The daemon follows the pool's stored key locations only if no one else can have
    /// written them.
    pub(super) fn newest(&self, found: &FoundPool) -> cenote_dataset::ImportOptions {
        let follows = self.pools.is_none() || !found.others_may_write();
        let (cache, keys) = (self.options().cache, self.keys_of(follows));
        cenote_dataset::ImportOptions { cache, keys, ..Default::default() }
    }

    /// Keys from the caller; if `follows`, also from the locations stored in pools.
    pub(super) fn keys_of(&self, follows: bool) -> KeySource {
        self.options().keys.source(self.caller(), follows)
    }

    /// The named pools; with no names, all but destroyed ones.
    pub async fn pools_to_change(&self, names: &[String]) -> Result<Vec<FoundPool>, ControlError> {
        let mut found = self.find_pools(names).await?;
        found.retain(|pool| !names.is_empty() || pool.state() != PoolState::Destroyed);
        Ok(found)
    }

    /// Refuses a pool that another machine seems to use, or that was destroyed.
    pub fn check_unused(&self, found: &FoundPool) -> Result<(), ControlError> {
        self.check_unused_or(found, &format!("`cenote zpool export -f {}`", found.name()))
    }

    /// The same, naming another command that takes the pool over.
    pub fn check_unused_or(&self, found: &FoundPool, what_takes_it: &str) -> Result<(), ControlError> {
        let (name, host) = (found.name(), this_host(self.runtime()));
        if self.held(found).is_some() {
            return Ok(());
        }
        match found.state() {
            PoolState::Destroyed => Err(ControlError::NotFound(format!("pool '{name}' was destroyed"))),
            PoolState::Active if !was_here(found, &host) => Err(ControlError::NotFound(format!(
                "pool '{name}' was last in use by {} and not exported; if that machine no longer uses it, \
                     {what_takes_it} takes it over",
                found.config.hostname.as_deref().unwrap_or("an unknown machine")
            ))),
            _ => Ok(()),
        }
    }

    /// Cache options for pools opened.
    pub fn cache(&self) -> CacheOptions {
        self.options().cache
    }

    /// Reports an error; passes an interruption on.
    fn told(&self, name: impl Display, done: Result<Outcome, ControlError>) -> Result<Outcome, ControlError> {
        match done {
            Err(error @ ControlError::Stopped(_)) => Err(error),
            Err(error) => Ok(self.caller().tell(&name.to_string(), &error)),
            done => done,
        }
    }
}

/// Machines without a hostid are identified by name.
fn was_here(found: &FoundPool, host: &Host) -> bool {
    let name = found.config.hostname.as_deref().unwrap_or_default();
    found.config.hostid.unwrap_or(0) == host.id && (host.id != 0 || name == host.name)
}

/// Refuses a pool that this machine's kernel has imported: the kernel holds image files open without a lock.
pub fn check_kernel(name: &str) -> Result<(), ControlError> {
    match std::path::Path::new("/proc/spl/kstat/zfs").join(name).exists() {
        true => Err(ControlError::NotFound(format!(
            "this machine's kernel has a pool '{name}' imported; `zpool export {name}` first"
        ))),
        false => Ok(()),
    }
}

/// This machine as recorded in pools: its hostid, if it has one, and its name.
pub fn this_host(runtime: &Runtime) -> Host {
    if let Some(simulated) = runtime.part::<Host>() {
        return Host::clone(&simulated);
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Host { id: cenote_device::hostid().into(), name }
}
