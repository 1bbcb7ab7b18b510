//! Suspends a pool whose devices fail beyond its redundancy, and resumes it where it was.
//!
//! Idea: a write that no vdev takes keeps its bytes and waits, and with it the txg and its tasks. It is
//! retried on `zpool clear`, when a device comes back, and every few seconds. Once one succeeds, the others
//! follow.
//!
//! ```text
//!            a write fails everywhere            a write that waited succeeds
//!   works -------------------------> suspended ------------------------------> works
//!                                        |  give_up: export -f, the program ends
//!                                        '-----------------------------------> the error is returned
//! ```
//!
//! | operation | waits |
//! |---|---|
//! | a txg: blocks of its tree, its flush, labels, uberblock; its reads of failed devices | yes |
//! | clients' reads of failed devices | if `failmode` is `wait` |
//! | inspection (`zpool status`, scrubs) | no |
//! | a block of an intent log | no: the txg takes its place |
//!
//! Without a [`FailMode`] errors are returned, and the engine stops. A pool whose multihost heartbeats fail
//! does not wait either: it is suspended for good (`Suspension::fence`).
//!
//! Source: OpenZFS `zio_suspend`, `zio_resume`, `zfs_ioc_clear`; `failmode` in `zpoolprops(7)`.

pub(crate) mod state;

use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::vdev::leaf::Probe;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::{Txg, VdevId};
use cenote_runtime::Watched;
use futures::future::join_all;
use state::{Cause, FailMode, State, Suspended, Waits};
use std::time::Duration;

/// Interval between automatic retries.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The attempts of one operation that may wait, until one succeeds.
#[must_use = "others that wait are not told"]
pub(crate) struct Tries {
    /// The pool's retry counter at the last attempt.
    begun: u64,
    has_waited: bool,
    failing: Option<FailingWrite>,
}

struct FailingWrite(Watched<State>);

impl Drop for FailingWrite {
    fn drop(&mut self) {
        self.0.modify(|state| state.failing_writes -= 1);
    }
}

impl Pool {
    /// Whether reads through this view may wait for failed devices.
    pub fn reads_wait(&self) -> bool {
        !matches!(self.waits(), Waits::Briefly | Waits::Never)
    }

    pub(crate) fn begin_tries(&self) -> Tries {
        Tries { begun: self.suspension().0.borrow().tries, has_waited: false, failing: None }
    }

    /// Handles a failed attempt of txg `txg`. Returns when the next one is due: at once, if the pool has
    /// resumed since this one began.
    ///
    /// # Errors
    /// `error`, if not a device's, or the pool does not wait.
    pub(crate) async fn wait_out(&self, tries: &mut Tries, txg: Txg, error: PoolError) -> Result<()> {
        if tries.failing.is_none() && !matches!(error, PoolError::Unreadable { .. }) {
            let states = &self.suspension().0;
            states.modify(|state| state.failing_writes += 1);
            tries.failing = Some(FailingWrite(states.clone()));
        }
        self.wait_since(tries.begun, txg, error).await?;
        (tries.begun, tries.has_waited) = (self.begin_tries().begun, true);
        Ok(())
    }

    /// Ends a successful operation. If it waited, all others are retried. The pool resumes unless this was a
    /// read and writes wait.
    pub(crate) fn end_tries(&self, tries: Tries) {
        let Tries { has_waited, failing, .. } = tries;
        let is_write = failing.is_some();
        drop(failing);
        if has_waited {
            self.suspension().0.modify(|state| {
                if (is_write || state.failing_writes == 0) && !state.is_fenced {
                    state.suspended = None;
                }
                state.tries += 1;
            });
        }
    }

    async fn wait_since(&self, begun: u64, txg: Txg, error: PoolError) -> Result<()> {
        let (vdev, why) = match &error {
            PoolError::NotWritten { vdev, why, .. } | PoolError::Unavailable { vdev, why, .. } => {
                (*vdev, why)
            }
            PoolError::Unreadable { why, .. } => (VdevId(0), why),
            _ => return Err(error),
        };
        let why = why.clone();
        let mut states = self.suspension().0.watch();
        {
            let state = states.see();
            if state.mode.is_none() || state.is_given_up {
                return Err(error);
            }
            if state.tries != begun {
                return Ok(());
            }
        }
        let suspended = || Suspended { since: self.runtime().now(), txg, vdev, why, cause: Cause::Devices };
        self.suspension().0.modify_if(|state| {
            let is_new = state.suspended.is_none();
            state.suspended.get_or_insert_with(suspended);
            is_new
        });
        let told = states.until(|state| state.tries != begun || state.is_given_up);
        tokio::select! {
            biased;
            _ = told => {}
            () = self.runtime().sleep(RETRY_INTERVAL) => {}
        }
        // A device that hung may have answered since.
        self.tree().vdevs().leaves().iter().for_each(|leaf| leaf.forgive_if_answered());
        if self.suspension().0.borrow().is_given_up { Err(error) } else { Ok(()) }
    }

    pub(crate) fn does_read_wait(&self) -> bool {
        match (self.waits(), self.suspension().failmode()) {
            (_, None) | (Waits::Briefly | Waits::Never, _) => false,
            (Waits::AsClient, Some(mode)) => mode != FailMode::Continue,
            (Waits::AsTxg, Some(_)) => true,
        }
    }

    /// Whether a block is unreadable only because of failing devices. Without a [`FailMode`] errors are
    /// final.
    pub(crate) async fn may_be_back(&self, bp: &Blkptr) -> bool {
        self.suspension().failmode().is_some() && !self.reaches(bp).await
    }

    /// Whether enough devices work to read a copy: if so, an unreadable block is lost.
    async fn reaches(&self, bp: &Blkptr) -> bool {
        let vdevs = self.tree().vdevs();
        for dva in bp.dvas() {
            let Some(top) = vdevs.layout_of(dva.vdev) else { continue };
            let mut failed = 0;
            for slot in top.slots() {
                let probes = slot.leaves.iter().filter(|leaf| !leaf.is_out_of_use()).map(|leaf| leaf.probe());
                failed += usize::from(!join_all(probes).await.contains(&Probe::Works));
            }
            if failed <= top.config.parity {
                return true;
            }
        }
        false
    }
}
