//! A pool that waits for its devices, as those who change it see it.
//!
//! ```text
//!                      failmode=wait        failmode=continue
//!   clients            wait                 EIO
//!   commands           EAGAIN at once; those that wait already, after some seconds
//!   scans, removals    wait                 wait
//! ```
//!
//! What somebody has begun is done when the pool goes on, although an error was told.
//!
//! Source: OpenZFS `POOL_CHECK_SUSPENDED` (`zfs_ioctl.c`), `dmu_tx_try_assign`.

use std::time::Duration;

use cenote_object::{DatasetError, Result};
use cenote_pool::{FailMode, Pool};

use crate::engine::Engine;

/// How long a command that has begun waits for a pool that is suspended.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    /// Waits for what a client wants, or refuses it.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub(crate) async fn for_client<T>(&self, done: impl Future<Output = T>) -> Result<T> {
        let pool = self.pool();
        match pool.failmode() {
            Some(FailMode::Continue) => match pool.suspended() {
                Some(suspended) => Err(suspended_error(&pool, suspended)),
                None => self.unless_suspended(Duration::ZERO, done).await,
            },
            _ => Ok(done.await),
        }
    }

    /// Waits for what a command wants, if this is its handle ([`Engine::acting_for`]); or whoever has it.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub(crate) async fn for_command<T>(&self, done: impl Future<Output = T>) -> Result<T> {
        let pool = self.pool();
        match pool.failmode() {
            Some(_) if self.is_of_command() => self.unless_suspended(COMMAND_PATIENCE, done).await,
            _ => Ok(done.await),
        }
    }

    /// Waits for something until the pool has been suspended for so long.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub async fn unless_suspended<T>(&self, patience: Duration, done: impl Future<Output = T>) -> Result<T> {
        let pool = self.pool();
        let too_long = async {
            loop {
                let Some(suspended) = pool.suspended_or_not(true).await else { continue };
                if self.runtime().timeout(patience, pool.suspended_or_not(false)).await.is_err() {
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

    /// Refuses what needs a pool that takes changes now.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`]; [`DatasetError::Stopped`].
    pub fn refuse_at_standstill(&self) -> Result<()> {
        self.synced()?;
        self.refuse_suspended()
    }

    /// Refuses what would wait for the pool.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub fn refuse_suspended(&self) -> Result<()> {
        let pool = self.pool();
        pool.suspended().map_or(Ok(()), |suspended| Err(suspended_error(&pool, suspended)))
    }

    /// Lets a pool wait for its devices so long in all while it is being left: then what waits is given up.
    pub async fn leaving<T>(&self, patience: Duration, left: impl Future<Output = T>) -> T {
        let pool = self.pool();
        let giving_up = async {
            loop {
                if pool.suspended_or_not(true).await.is_none() {
                    continue;
                }
                pool.resume();
                if self.runtime().timeout(patience, pool.suspended_or_not(false)).await.is_err() {
                    pool.give_up_suspended();
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            biased;
            left = left => left,
            () = giving_up => unreachable!("it waits for ever once it has given up"),
        }
    }

    /// Refuses a command on a pool that waits for its devices.
    ///
    /// # Errors
    /// [`DatasetError::Suspended`].
    pub(crate) fn refuse_if_suspended(&self) -> Result<()> {
        if self.is_of_command() { self.refuse_suspended() } else { Ok(()) }
    }
}

fn suspended_error(pool: &Pool, suspended: cenote_pool::Suspended) -> DatasetError {
    DatasetError::Suspended { pool: pool.name().into(), vdev: suspended.vdev, why: suspended.why }
}
