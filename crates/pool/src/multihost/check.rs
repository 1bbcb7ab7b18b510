//! The check before an import: watches the rings for changes by another machine.

use super::{Legs, MultihostError, MultihostSettings, Phase, Waiting};
use crate::config::PoolState;
use crate::discover::FoundPool;
use crate::error::{PoolError, Result};
use cenote_boxed::boxed;
use cenote_format::uberblock::Uberblock;
use cenote_runtime::Runtime;
use std::time::Duration;

/// `MMP_IMPORT_SAFETY_FACTOR`: the owner suspends long before the watch ends.
const SAFETY_FACTOR: u32 = 2;
/// The watch is extended by up to this part of a thousand, so that simultaneous imports part.
const SPREAD_PERMILLE: u64 = 250;
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks during a short watch.
const LOOKS_AT_LEAST: u32 = 10;

/// A pool that nobody changed during the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    pub(super) newest: Uberblock,
}

/// Whether an import must watch first. It need not, if multihost is off, the pool was destroyed, or this
/// machine exported it.
pub fn must_watch(found: &FoundPool, hostid: u64) -> bool {
    let is_on = found.uberblocks.first().is_some_and(Uberblock::mmp_is_on);
    let is_own = hostid != 0 && found.config.hostid == Some(hostid);
    let is_left = match found.state() {
        PoolState::Exported => is_own,
        PoolState::Destroyed => true,
        _ => false,
    };
    is_on && !is_left
}

/// How long to watch, without the random part. The values of the uberblock count if its writer suspends its
/// pool; otherwise nothing is certain, and this machine's tunables give the least time.
pub fn watch_time(uberblock: &Uberblock, settings: &MultihostSettings) -> Duration {
    let least = (settings.interval() * settings.import_intervals()).max(Duration::from_secs(1));
    let interval = uberblock.mmp_interval_ms().map(|ms| Duration::from_millis(ms.into()));
    let delay = Duration::from_nanos(uberblock.mmp_delay_ns);
    let expected =
        |interval: Duration| interval.saturating_add(delay).saturating_mul(settings.import_intervals());
    match (interval, uberblock.mmp_fail_intervals()) {
        (Some(interval), Some(fails @ 1..)) => interval * u32::from(fails) * SAFETY_FACTOR,
        (Some(interval), Some(0)) => least.max(expected(interval)),
        // Written by 0.7, which recorded no settings.
        _ if uberblock.mmp_is_on() => least.max(expected(settings.interval())),
        _ => least,
    }
}

impl FoundPool {
    /// Refuses a pool that heartbeats protect if this machine has no hostid.
    ///
    /// # Errors
    /// [`MultihostError::NoHostid`].
    pub fn require_hostid(&self, hostid: u64) -> Result<()> {
        let is_on = self.uberblocks.first().is_some_and(Uberblock::mmp_is_on);
        match hostid == 0 && is_on && self.state() != PoolState::Destroyed {
            true => Err(MultihostError::NoHostid.of(self.name())),
            false => Ok(()),
        }
    }

    /// Waits long enough to see a heartbeat of another machine, if necessary. May be dropped.
    ///
    /// # Errors
    /// [`MultihostError::Active`], [`MultihostError::NoHostid`].
    #[boxed]
    pub async fn watch(
        &self,
        rt: &Runtime,
        hostid: u64,
        settings: &MultihostSettings,
        tell: &(dyn Fn(Waiting) + Sync),
    ) -> Result<Option<Watched>> {
        self.require_hostid(hostid)?;
        let Some(first) = self.uberblocks.first().filter(|_| must_watch(self, hostid)) else {
            return Ok(None);
        };
        let time = watch_time(first, settings);
        self.watch_for(rt, time, tell).await.map(Some)
    }

    /// Watches for this time and up to a quarter more.
    ///
    /// # Errors
    /// [`MultihostError::Active`].
    async fn watch_for(
        &self,
        rt: &Runtime,
        time: Duration,
        tell: &(dyn Fn(Waiting) + Sync),
    ) -> Result<Watched> {
        let legs = Legs::of(rt, self, &self.config);
        let newest = self.uberblocks.first().copied();
        let spread = (rt.random_u64() % (SPREAD_PERMILLE + 1)) as u32;
        let (began, total) = (rt.now(), time + time / 1000 * spread);
        let interval = LOOK_INTERVAL.min(total / LOOKS_AT_LEAST);
        loop {
            let seen = legs.newest().await;
            let newest = newest.filter(|newest| seen.is_some_and(|seen| seen.rank() == newest.rank()));
            let newest = newest.ok_or_else(|| legs.active().of(self.name()))?;
            let done = rt.now() - began;
            if done >= total {
                return Ok(Watched { newest });
            }
            tell(Waiting { phase: Phase::Watch, done, total });
            rt.sleep(interval.min(total - done)).await;
        }
    }
}

impl MultihostError {
    pub(crate) fn of(self, pool: &str) -> PoolError {
        PoolError::Multihost { pool: pool.into(), why: self }
    }
}
