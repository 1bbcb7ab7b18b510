//! Multihost protection at import: the watch for other machines, the claim, and notes about pools in use.

use std::time::Duration;

use cenote_device::{Gate, StorageLock};
use cenote_engine::Engine;
use cenote_format::uberblock::Uberblock;
use cenote_pool::multihost::{
    Legs, MultihostSettings, Phase, Waiting, Watched, begin_stake, must_watch, watch_time,
};
use cenote_pool::{FoundPool, PoolState};

use super::Session;
use super::writing::this_host;
use crate::caller::Progress;
use crate::error::ControlError;

/// A pool that a verb is about to take.
pub(super) struct Taking {
    /// Its devices, open for writing, below the gate.
    pub(super) opened: FoundPool,
    /// Holds its writes back.
    pub(super) gate: Gate,
    /// No other machine changed it, if that had to be seen.
    pub(super) watched: Option<Watched>,
}

impl Session {
    /// Waits until heartbeats of another machine would have been seen, if necessary.
    ///
    /// # Errors
    /// Another machine has the pool; this one has no hostid; the caller cancels.
    pub(crate) async fn watch(&self, found: &FoundPool) -> Result<Option<Watched>, ControlError> {
        let (hostid, defaults) = (this_host(self.runtime()).id, MultihostSettings::default());
        let settings = self.pools().map_or(&defaults, |pools| pools.tuning.multihost());
        let key = format!("{} is watched", found.guid());
        if let Some(newest) = found.uberblocks.first().filter(|_| hostid != 0 && must_watch(found, hostid))
            && self.told.lock().is_ok_and(|mut told| told.insert(key))
        {
            let longest = watch_time(newest, settings) * 5 / 4;
            self.caller().note(format!(
                "pool '{}': multihost is on: watching up to {} s for another machine",
                found.name(),
                seconds(longest)
            ));
        }
        let tell = |now: Waiting| self.tell_waiting(found.name(), now);
        let watch = async { Ok(found.watch(self.runtime(), hostid, settings, &tell).await?) };
        let watched = self.caller().until_cancelled(watch).await;
        self.caller().console.progress(None);
        watched
    }

    /// The same before a pool is opened for writing. A takeover need not wait if locks in the storage will
    /// fence every other machine, heartbeats or not.
    pub(super) async fn watch_to_take(&self, found: &FoundPool) -> Result<Option<Watched>, ControlError> {
        if self.options().takes_over && found.has_storage_locks(StorageLock::Offered) {
            return Ok(found.require_hostid(this_host(self.runtime()).id).map(|()| None)?);
        }
        self.watch(found).await
    }

    /// Claims a watched pool for its first change. A fenced one needs no claim: no other machine could write
    /// its own.
    ///
    /// # Errors
    /// Another machine has the pool, or would not see the claim; the caller cancels.
    pub(super) async fn claim(&self, engine: &Engine, taking: &Taking) -> Result<(), ControlError> {
        let Taking { opened, watched, .. } = taking;
        opened.require_hostid(this_host(self.runtime()).id)?;
        let Some(seen) = opened.uberblocks.first().filter(|newest| newest.mmp_is_on()) else { return Ok(()) };
        let is_fenced = self.options().takes_over && opened.has_storage_locks(StorageLock::Held);
        if watched.is_none() && !is_fenced && must_watch(opened, this_host(self.runtime()).id) {
            let why = "another machine has used it since it was found; try again";
            return Err(ControlError::Refused(format!("cannot import '{}': {why}", opened.name())));
        }
        let legs = Legs::of(self.runtime(), opened, &engine.pool().tree().config());
        let tell = |now: Waiting| self.tell_waiting(opened.name(), now);
        let claim = async { Ok(begin_stake(legs, *seen, *watched, &tell).await?) };
        let stake = self.caller().until_cancelled(claim).await;
        self.caller().console.progress(None);
        engine.multihost().hold(stake?);
        Ok(())
    }

    fn tell_waiting(&self, pool: &str, now: Waiting) {
        let does = match now.phase {
            Phase::Watch => "watching for another machine",
            Phase::Claim => "claiming",
        };
        let (done, total) = (seconds(now.done), seconds(now.total));
        let what = format!("pool '{pool}': {does}: {done} of {total} s");
        self.caller().console.progress(Some(Progress { what: &what, done_bytes: 0, total_bytes: 0 }));
    }

    /// Notes, once, that another machine seems to have a pool opened for reading.
    pub(super) fn tell_in_use(&self, found: &FoundPool) {
        let is_here = found.config.hostid == Some(this_host(self.runtime()).id);
        let Some(newest) = found.uberblocks.first().filter(|newest| newest.mmp_is_on() && !is_here) else {
            return;
        };
        let key = format!("{} is in use", found.guid());
        if found.state() != PoolState::Active || !self.told.lock().is_ok_and(|mut told| told.insert(key)) {
            return;
        }
        let host = found.config.hostname.as_deref().unwrap_or("<unknown>");
        let hostid = found.config.hostid.unwrap_or(0);
        self.caller().note(format!(
            "pool '{}' is imported on host '{host}' (hostid={hostid:x}): {}",
            found.name(),
            self.age_of(newest)
        ));
    }

    /// By this machine's clock.
    fn age_of(&self, newest: &Uberblock) -> String {
        let now_s = self.runtime().unix_time_ns() / 1_000_000_000;
        let age_s = now_s.saturating_sub(newest.timestamp_s);
        let interval_ms = u64::from(newest.mmp_interval_ms().unwrap_or(0));
        let fails = u64::from(newest.mmp_fail_intervals().unwrap_or(0));
        match fails == 0 || age_s * 1000 <= (interval_ms * fails).max(1000) {
            true => format!("its last heartbeat is {age_s} s old, so what is read here may change meanwhile"),
            false => format!("it was not exported there, but its last heartbeat is {age_s} s old"),
        }
    }
}

fn seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1000) as u64
}
