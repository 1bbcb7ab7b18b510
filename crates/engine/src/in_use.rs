//! Proofs that a head or snapshot is unused, for tasks that take it away.
//!
//! Idea: a task of txg N runs while clients already work in txg N+1. It must not free anything of N+1: log
//! blocks, changes, or blocks lent to another object set, whose new owner is counted only when N+1 is
//! written. So "in use" means more than an open handle:
//!
//! ```text
//!              the task of txg N finds                                 it gets
//!   head       an open handle                                          Busy
//!              a change, log block or loan of a later txg              NextTxg: it runs again in N+1
//!              neither                                                 Quiet
//!   snapshot   a hold: an open file, a client, a mount                 Busy
//!              a loan of a later txg                                   NextTxg
//!              neither                                                 Withdrawn: no new hold
//! ```
//!
//! Freeing a log or closing a dataset takes a [`Quiet`], removing a snapshot a [`Withdrawn`], so no task can
//! forget the check.
//!
//! Invariants: a [`Quiet`] stays true until its task ends, because datasets are opened under `Shared::names`,
//! held while tasks run. A hold on a snapshot is a counter; a withdrawn snapshot refuses it.
//!
//! Locking: the table of snapshots, then a snapshot's state, for one access each.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_long_hold`, `dsl_dataset_long_held`), `dsl_synctask.c` (a
//! task that answers `EAGAIN` runs again).

pub(crate) mod uses;

use std::time::Duration;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_format::units::{DatasetId, Txg};
use cenote_object::{DatasetError, Result};
use futures::future::BoxFuture;

use crate::context::SyncContext;
use crate::engine::Engine;
use crate::in_use::uses::{Quiet, Snapshot, Withdrawn};
use crate::space_check::SpaceCheck;

/// Reruns of a task. A dataset changed in so many successive txgs is in use.
const RUNS_MAX: u32 = 16;
/// How often a task that finds its dataset busy looks again, and when.
const BUSY_LOOKS: u32 = 2;
const BUSY_INTERVAL: Duration = Duration::from_millis(100);

impl Engine {
    /// A snapshot, with a handle for holds.
    ///
    /// # Errors
    /// No such snapshot.
    #[boxed]
    pub async fn snapshot(&self, name: &str) -> Result<(Dataset, Snapshot)> {
        // No task may destroy it before it is in the table.
        let _names = self.0.names.read().await;
        let dataset = self.mos().await?.dataset(name).await?;
        if !dataset.is_snapshot() {
            return Err(DatasetError::unsuitable(name, "is not a snapshot"));
        }
        let snapshot = self.0.snapshots.of(dataset.id(), self.synced()?);
        Ok((dataset, snapshot))
    }

    /// Runs tasks, one a txg, until one answers anything but [`DatasetError::NextTxg`].
    ///
    /// # Errors
    /// Those of the task; busy, if clients interfere in every txg.
    pub async fn run_when_quiet<T, F>(&self, check: SpaceCheck, task: impl Fn() -> F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_again(RUNS_MAX, check, task).await
    }

    /// The same for a task that answers [`DatasetError::NextTxg`] only if another was first in its txg: one
    /// is done in each, so none gives up.
    ///
    /// # Errors
    /// Those of the task.
    pub async fn run_in_turn<T, F>(&self, check: SpaceCheck, task: impl Fn() -> F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_again(u32::MAX, check, task).await
    }

    async fn run_again<T, F>(&self, mut reruns: u32, check: SpaceCheck, task: impl Fn() -> F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let mut looks = BUSY_LOOKS;
        loop {
            match self.run_within(check, task()).await {
                Err(DatasetError::NextTxg { name }) if reruns == 0 => {
                    return Err(DatasetError::busy(&name, IN_USE));
                }
                Err(DatasetError::NextTxg { .. }) => reruns -= 1,
                // The kernel tells of a closed file some time after `close` has returned.
                Err(DatasetError::Busy { .. }) if looks > 0 => {
                    looks -= 1;
                    self.runtime().sleep(BUSY_INTERVAL).await;
                }
                done => return done,
            }
        }
    }
}

const IN_USE: &str = "it is in use; close or unmount it first";

impl SyncContext {
    /// Proof that a head is unused and may go or get another tree.
    ///
    /// # Errors
    /// It is in use; [`DatasetError::NextTxg`].
    pub fn quiet(&self, head: &Dataset) -> Result<Quiet> {
        let (dataset, txg) = (head.id(), self.txg());
        let datasets = self.engine.datasets.lock();
        let quiet = Quiet { dataset, txg };
        let Some(open) = datasets.get(&dataset) else { return Ok(quiet) };
        if open.objset.is_shared() {
            return Err(DatasetError::busy(head.name(), IN_USE));
        }
        let next = Txg(txg.0 + 1);
        let is_logged = open.log.as_ref().is_some_and(|log| log.is_touched(next));
        match open.objset.is_dirty() || is_logged || open.objset.last_lent() > txg {
            true => Err(DatasetError::NextTxg { name: head.name().into() }),
            false => Ok(quiet),
        }
    }

    /// Forgets an open head that is gone or has another tree.
    pub fn close(&self, quiet: &Quiet) {
        assert_eq!(quiet.txg, self.txg(), "a task keeps its proof to itself");
        self.engine.datasets.lock().remove(&quiet.dataset);
        self.engine.room.0.lock().accounts.remove(&quiet.dataset);
    }

    /// Blocks new holds until the result is dropped or given to [`SyncContext::forget_snapshot`].
    ///
    /// # Errors
    /// It is in use; [`DatasetError::NextTxg`].
    pub fn withdraw(&self, snapshot: &Dataset) -> Result<Withdrawn> {
        let id = snapshot.id();
        let Some(known) = self.engine.snapshots.known(id) else {
            return Ok(Withdrawn { id, snapshot: None });
        };
        let mut state = known.0.lock();
        if state.holds > 0 {
            let why = "it is in use: a file of it is open, or a client reads it";
            return Err(DatasetError::busy(snapshot.name(), why));
        }
        if state.lent > self.txg() {
            return Err(DatasetError::NextTxg { name: snapshot.name().into() });
        }
        state.is_withdrawn = true;
        drop(state);
        Ok(Withdrawn { id, snapshot: Some(known) })
    }

    /// Another may get its number.
    pub fn forget_snapshot(&self, mut withdrawn: Withdrawn) {
        self.engine.snapshots.forget(withdrawn.id);
        withdrawn.snapshot = None;
    }
}

impl Engine {
    /// Closes unused datasets. If one is in use, returns it and closes none.
    ///
    /// # Errors
    /// Their changes could not be written.
    #[boxed]
    pub async fn close_datasets(&self, mut ids: Vec<DatasetId>) -> Result<Option<DatasetId>> {
        self.leave_raw(&mut ids);
        if let Some(used) = self.used_of(&ids) {
            return Ok(Some(used));
        }
        self.end_logs_of(|id| ids.contains(&id)).await?;
        self.sync_all().await?;
        let closed = self.run_when_quiet(SpaceCheck::None, || {
            let ids = ids.clone();
            move |context: &mut SyncContext| -> BoxFuture<'_, Result<Option<DatasetId>>> {
                context.touch_nothing();
                Box::pin(async move { close_all(context, ids).await })
            }
        });
        match closed.await {
            Err(DatasetError::Busy { .. }) => Ok(ids.first().copied()),
            closed => closed,
        }
    }

    /// Leaves out heads that raw receives are filling: they have no key, and need none.
    fn leave_raw(&self, ids: &mut Vec<DatasetId>) {
        let datasets = self.0.datasets.lock();
        ids.retain(|id| {
            !datasets.get(id).is_some_and(|open| open.objset.is_shared() && open.objset.is_raw())
        });
    }

    fn used_of(&self, ids: &[DatasetId]) -> Option<DatasetId> {
        let datasets = self.0.datasets.lock();
        let is_used = |id: &DatasetId| datasets.get(id).is_some_and(|open| open.objset.is_shared());
        ids.iter().copied().find(is_used)
    }
}

async fn close_all(context: &mut SyncContext, ids: Vec<DatasetId>) -> Result<Option<DatasetId>> {
    let mos = context.mos().await?;
    let mut quiet = Vec::new();
    for id in ids {
        match context.quiet(&mos.dataset_by_id(id).await?) {
            Ok(one) => quiet.push(one),
            Err(DatasetError::Busy { .. }) => return Ok(Some(id)),
            Err(error) => return Err(error),
        }
    }
    quiet.iter().for_each(|one| context.close(one));
    Ok(None)
}
