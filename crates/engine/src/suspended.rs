//! Behaviour of a suspended pool, which waits for its devices.
//!
//! ```text
//!                      failmode=wait        failmode=continue
//!   clients            wait                 EIO
//!   commands           EAGAIN at once; if already waiting, after some seconds
//!   scans, removals    wait                 wait
//! ```
//!
//! An operation that has begun completes when the pool resumes, even if its caller got an error.
//!
//! Source: OpenZFS `POOL_CHECK_SUSPENDED` (`zfs_ioctl.c`), `dmu_tx_try_assign`.

use std::time::Duration;

use cenote_format::units::{Guid, VdevId};
use cenote_object::{DatasetError, Result};
use cenote_pool::{Cause, FailMode, Pool, VdevConfig};

use crate::engine::Engine;

/// How long a running command waits for a suspended pool or an unresponsive device.
const COMMAND_PATIENCE: Duration = Duration::from_secs(8);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Engine {
    /// For clients: waits, or refuses by failmode.
    ///
    /// # Errors
    /// Those of `done`; [`DatasetError::Suspended`].
    pub(crate) async fn for_client<T>(&self, done: impl Future<Output = Result<T>>) -> Result<T> {
        let pool = self.pool();
        match pool.suspension().failmode() {
            Some(FailMode::Continue) => match pool.suspension().suspended() {
                Some(suspended) => Err(suspended_error(&pool, suspended)),
                None => self.suspension().unless(Duration::ZERO, done).await?,
            },
            _ => done.await,
        }
    }

    /// With a command's handle ([`Engine::acting_for`]) waits for some seconds, otherwise without limit.
    ///
    /// # Errors
    /// Those of `done`; [`DatasetError::Suspended`].
    pub(crate) async fn for_command<T>(&self, done: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.is_of_command() {
            return done.await;
        }
        let pool = self.pool();
        if pool.suspension().failmode().is_none() {
            return done.await;
        }
        let mut done = std::pin::pin!(done);
        let began = self.runtime().now();
        loop {
            if let Ok(done) = self.runtime().timeout(LOOK_INTERVAL, &mut done).await {
                return done;
            }
            let has_waited = self.runtime().now() - began >= COMMAND_PATIENCE;
            if let Some(suspended) = pool.suspension().suspended().filter(|_| has_waited) {
                return Err(suspended_error(&pool, suspended));
            }
            // Count from when the device fell silent: a command may wait several times.
            let silent = pool.devices().unanswering().into_iter().max_by_key(|(_, since)| *since);
            if let Some((leaf, since)) = silent.filter(|(_, since)| has_waited || *since >= COMMAND_PATIENCE)
            {
                return Err(silent_error(&pool, leaf, since));
            }
        }
    }

    /// Refuses a command if the pool is suspended.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub(crate) fn refuse_if_suspended(&self) -> Result<()> {
        if self.is_of_command() { self.suspension().refuse() } else { Ok(()) }
    }
}

/// Work with a pool that waits for its devices, or may.
#[derive(Clone, Copy)]
pub struct Suspension<'a>(&'a Engine);

impl Engine {
    /// For work that a suspended pool would hold up.
    pub fn suspension(&self) -> Suspension<'_> {
        Suspension(self)
    }
}

impl Suspension<'_> {
    /// Waits until the pool has been suspended for `patience`.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub async fn unless<T>(&self, patience: Duration, done: impl Future<Output = T>) -> Result<T> {
        let pool = self.0.pool();
        let too_long = async {
            loop {
                let Some(suspended) = pool.suspension().suspended_or_not(true).await else { continue };
                let resumed = pool.suspension().suspended_or_not(false);
                if self.0.runtime().timeout(patience, resumed).await.is_err() {
                    return suspended;
                }
            }
        };
        tokio::select! {
            biased;
            done = done => Ok(done),
            suspended = too_long => Err(suspended_error(&pool, suspended)),
        }
    }

    /// Refuses if the pool takes no changes now.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`]; [`DatasetError::Stopped`].
    pub fn refuse_at_standstill(&self) -> Result<()> {
        self.0.synced()?;
        self.refuse()
    }

    /// Refuses if the pool is suspended.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub fn refuse(&self) -> Result<()> {
        let pool = self.0.pool();
        pool.suspension().suspended().map_or(Ok(()), |suspended| Err(suspended_error(&pool, suspended)))
    }

    /// Waits; after `patience`, gives up suspended I/O and unresponsive devices.
    pub async fn leave<T>(&self, patience: Duration, left: impl Future<Output = T>) -> T {
        let pool = self.0.pool();
        let giving_up = async {
            loop {
                self.0.runtime().sleep(patience / 2).await;
                let devices = pool.devices();
                devices.unanswering().into_iter().for_each(|(leaf, _)| devices.give_up_on(leaf));
                if pool.suspension().suspended().is_none() {
                    continue;
                }
                pool.suspension().resume();
                let resumed = pool.suspension().suspended_or_not(false);
                if self.0.runtime().timeout(patience, resumed).await.is_err() {
                    pool.suspension().give_up();
                }
            }
        };
        tokio::select! {
            biased;
            left = left => left,
            () = giving_up => unreachable!("it gives up whatever comes"),
        }
    }
}

fn suspended_error(pool: &Pool, suspended: cenote_pool::Suspended) -> DatasetError {
    if suspended.cause == Cause::Multihost {
        return DatasetError::Stopped { pool: pool.name().into(), txg: suspended.txg, why: suspended.why };
    }
    DatasetError::Suspended { pool: pool.name().into(), vdev: suspended.vdev, why: suspended.why }
}

fn silent_error(pool: &Pool, leaf: Guid, since: Duration) -> DatasetError {
    let (config, found) = (pool.tree().config(), pool.tree().device(leaf));
    let is_of = |top: &&VdevConfig| top.leaves().any(|one| one.guid == leaf);
    let vdev = VdevId(config.vdevs.iter().find(is_of).map_or(0, |top| top.id));
    let path = found.map_or_else(|| leaf.to_string(), |device| device.path.clone());
    let why = format!("{path} has not answered for {} s; `zpool offline` takes it out", since.as_secs());
    DatasetError::Suspended { pool: pool.name().into(), vdev, why: why.into() }
}
