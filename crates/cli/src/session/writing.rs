//! A pool that a command changes: opened, marked as in use, changed, and left exported.
//!
//! Idea: there is no daemon, so a pool is this program's as long as a command runs. It leaves the pool exported, which is what the kernel and
//! other machines take without being forced to. One that was left in use by another machine may be in use there right now: it is refused
//! until somebody says that it is not (`zpool export -f`).

use std::fmt::Display;

use cenote_dataset::engine::{Engine, Host, LostLog};
use cenote_dataset::import;
use cenote_format::uberblock::Uberblock;
use cenote_fs::replay_logs;
use cenote_pool::{FoundPool, PoolState};

use super::Session;
use super::replay::{now, say_replayed};
use crate::outcome::{CliError, Outcome};

impl Session {
    /// Opens a pool, does `work` on it, and leaves it exported, whether the work succeeded or not. If it did, wholly, the pool's history has
    /// the command.
    pub async fn change_pool<T: Into<Outcome>>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&Engine) -> Result<T, CliError>,
    ) -> Result<Outcome, CliError> {
        self.change_unused(&self.find_pool(name).await?, work).await
    }

    /// The same for everything in `names`; a pool is opened once for all of its own that are in a row. What fails for one is told and does
    /// not keep the rest, unless somebody wants an end.
    pub async fn change_each<N: Display, T: Into<Outcome>>(
        &self,
        names: &[N],
        pool_of: impl Fn(&N) -> &str,
        work: impl AsyncFn(&Engine, &N) -> Result<T, CliError>,
    ) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::Done;
        for names in names.chunk_by(|one, next| pool_of(one) == pool_of(next)) {
            let pool = pool_of(&names[0]);
            let all = async |engine: &Engine| {
                let mut outcome = Outcome::Done;
                for name in names {
                    outcome = outcome.and(told(name, work(engine, name).await.map(T::into))?);
                }
                Ok(outcome)
            };
            outcome = outcome.and(told(pool, self.change_pool(pool, all).await)?);
        }
        Ok(outcome)
    }

    /// As `change_pool` for a pool that was found.
    pub async fn change_unused<T: Into<Outcome>>(
        &self,
        found: &FoundPool,
        work: impl AsyncFnOnce(&Engine) -> Result<T, CliError>,
    ) -> Result<Outcome, CliError> {
        self.check_unused(found)?;
        self.change_found(found, PoolState::Exported, work).await
    }

    /// The same for a pool that was found and may be taken whoever had it, which is left in `state` if the work succeeded.
    pub async fn change_found<T: Into<Outcome>>(
        &self,
        found: &FoundPool,
        state: PoolState,
        work: impl AsyncFnOnce(&Engine) -> Result<T, CliError>,
    ) -> Result<Outcome, CliError> {
        let found = self.open_to_change(found).await?;
        let mos = import(self.runtime(), &found, &self.newest()).await?;
        self.work_on(Engine::start(&mos).await?, state, work).await
    }

    /// Makes the checkpoint of a pool that was found and may be taken its state, for good.
    pub async fn rewind_to_checkpoint(&self, found: &FoundPool) -> Result<Outcome, CliError> {
        let found = self.open_to_change(found).await?;
        let engine = Engine::rewind_to_checkpoint(self.runtime(), &found, &self.newest()).await?;
        self.work_on(engine, PoolState::Exported, async |_| Ok(())).await
    }

    /// Takes a pool that was found and may be taken in its newest state that is whole, for good. Answers that state.
    pub async fn rewind_to_whole(&self, found: &FoundPool) -> Result<Uberblock, CliError> {
        check_kernel(found.name())?;
        let found = found.open_for_writing(self.runtime()).await?;
        let (engine, state) = Engine::rewind_to_whole(self.runtime(), &found, &self.newest()).await?;
        self.work_on(engine, PoolState::Exported, async |_| Ok(())).await?;
        Ok(state)
    }

    /// Opens a pool that may be taken and gives up what can't be read of its intent logs.
    pub async fn give_up_lost_logs(&self, found: &FoundPool) -> Result<Outcome, CliError> {
        let found = self.open_to_change(found).await?;
        let mos = import(self.runtime(), &found, &self.newest()).await?;
        let (engine, lost) = Engine::start_without_lost_logs(&mos).await?;
        for LostLog { dataset, kept, why } in lost {
            eprintln!("cenote: {dataset}: the intent log was given up after {kept} records: {why}");
        }
        self.work_on(engine, PoolState::Exported, async |_| Ok(())).await
    }

    async fn open_to_change(&self, found: &FoundPool) -> Result<FoundPool, CliError> {
        check_kernel(found.name())?;
        let common = self.common();
        if common.txg.is_some() || common.rewind || common.checkpoint {
            let why =
                "only the newest state can be changed: --txg, --rewind and --checkpoint are for looking";
            return Err(CliError::Usage(why.into()));
        }
        Ok(found.open_for_writing(self.runtime()).await?)
    }

    async fn work_on<T: Into<Outcome>>(
        &self,
        engine: Engine,
        state: PoolState,
        work: impl AsyncFnOnce(&Engine) -> Result<T, CliError>,
    ) -> Result<Outcome, CliError> {
        engine.set_state(PoolState::Active, this_host()).await?;
        for (dataset, report) in replay_logs(&engine, now(self.runtime())).await? {
            say_replayed(&dataset, &report);
        }
        let done = match work(&engine).await.map(T::into) {
            Ok(outcome) => {
                if outcome == Outcome::Done {
                    self.note_command(&engine);
                }
                engine.sync_all().await.map(|()| outcome).map_err(CliError::from)
            }
            Err(error) => Err(error),
        };
        let state = if done.is_ok() { state } else { PoolState::Exported };
        let closed = engine.set_state(state, this_host()).await;
        // If the pool can't be closed, that is because of what went wrong before.
        done.and_then(|done| closed.map(|()| done).map_err(CliError::from))
    }

    /// Notes the command line in the pool's history.
    pub fn note_command(&self, engine: &Engine) {
        engine.note_command(&self.command, rustix::process::getuid().as_raw().into());
    }

    fn newest(&self) -> cenote_dataset::ImportOptions {
        let (cache_bytes, keys) = (self.cache_bytes, self.keys.source());
        cenote_dataset::ImportOptions { cache_bytes, keys, ..Default::default() }
    }

    /// The pools named; if none is, all that are not destroyed.
    pub async fn pools_to_change(&self, names: &[String]) -> Result<Vec<FoundPool>, CliError> {
        let mut found = self.find_pools(names).await?;
        found.retain(|pool| !names.is_empty() || pool.state() != PoolState::Destroyed);
        Ok(found)
    }

    /// Refuses a pool that another machine seems to have, or that was destroyed.
    pub fn check_unused(&self, found: &FoundPool) -> Result<(), CliError> {
        let name = found.name();
        match found.state() {
            PoolState::Destroyed => Err(CliError::NotFound(format!("pool '{name}' was destroyed"))),
            PoolState::Active if !was_here(found) => Err(CliError::NotFound(format!(
                "pool '{name}' was last in use by {} and not exported; if that machine does not have it any more, \
                     `cenote zpool export -f {name}` takes it over",
                found.config.hostname.as_deref().unwrap_or("an unknown machine")
            ))),
            _ => Ok(()),
        }
    }

    /// Memory for cached blocks.
    pub fn cache_bytes(&self) -> usize {
        self.cache_bytes
    }
}

/// This machine had it last. Machines without a hostid go by their names.
fn was_here(found: &FoundPool) -> bool {
    let host = this_host();
    let name = found.config.hostname.as_deref().unwrap_or_default();
    found.config.hostid.unwrap_or(0) == host.id && (host.id != 0 || name == host.name)
}

/// Refuses a pool that this machine's kernel has imported: files it keeps open without a lock.
pub fn check_kernel(name: &str) -> Result<(), CliError> {
    match std::path::Path::new("/proc/spl/kstat/zfs").join(name).exists() {
        true => Err(CliError::NotFound(format!(
            "this machine's kernel has a pool '{name}' imported; `zpool export {name}` first"
        ))),
        false => Ok(()),
    }
}

/// This machine, as pools remember who had them: the hostid that `zgenhostid` made, if any.
pub fn this_host() -> Host {
    let id = std::fs::read("/etc/hostid").ok();
    let id = id.and_then(|bytes| bytes.first_chunk::<4>().copied()).map_or(0, u32::from_ne_bytes);
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Host { id: id.into(), name }
}

/// Tells what went wrong, and with what, unless it is that somebody wants an end.
fn told(name: impl Display, done: Result<Outcome, CliError>) -> Result<Outcome, CliError> {
    match done {
        Err(error @ CliError::Stopped(_)) => Err(error),
        Err(error) => Ok(error.tell(&name.to_string())),
        done => done,
    }
}
