//! Queueing sync tasks and writing txgs.

use std::sync::atomic::Ordering;

use cenote_boxed::boxed;
use cenote_format::units::Txg;
use cenote_object::{DatasetError, Result};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::context::SyncContext;
use crate::engine::{Engine, Task, Tasks};
use crate::room::PATIENCE;
use crate::space_check::{SpaceCheck, check_space};
use crate::sync;
use crate::touched::Touched;
use crate::txgs::Hold;

/// If writing a txg panics or is aborted, no other is written: memory holds half of this one. Dropped before
/// the lock on the turn.
struct Unwinding<'a> {
    engine: &'a Engine,
    txg: Txg,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        let stopped = self.engine.stop(self.txg, "writing it was broken off".into());
        self.engine.0.txgs.done(Err(stopped));
    }
}

type Queue = fn(&mut Tasks) -> &mut Vec<Task>;

enum Ran<T, F> {
    Done(Result<T>),
    /// Not begun.
    Refused(F, DatasetError),
}

impl Engine {
    /// Runs a task in the open txg and returns once that is on disk. A txg whose tasks were all refused is
    /// not written.
    ///
    /// A task checks before it changes: a refusal must leave no change. Damage after its first change stops
    /// the engine without writing the txg.
    ///
    /// # Errors
    /// Those of the task; the txg could not be written; [`DatasetError::Suspended`], for commands.
    pub async fn run<T, F>(&self, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_within(SpaceCheck::None, task).await
    }

    /// [`Engine::run`] for a task about the pool as a whole: no mount has to follow it.
    ///
    /// # Errors
    /// Those of [`Engine::run`].
    pub async fn run_on_pool<T, F>(&self, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run(move |context| {
            context.touch_nothing();
            task(context)
        })
        .await
    }

    /// [`Engine::run`] after a check of space.
    ///
    /// # Errors
    /// Those of [`Engine::run`]; no space.
    pub async fn run_within<T, F>(&self, check: SpaceCheck, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_among(|tasks| &mut tasks.rest, check, task).await
    }

    /// [`Engine::run_within`] before anything is freed in the txg.
    ///
    /// # Errors
    /// Those of [`Engine::run`].
    pub async fn run_first<T, F>(&self, check: SpaceCheck, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_among(|tasks| &mut tasks.first, check, task).await
    }

    /// [`Engine::run`] in the txg of a hold.
    ///
    /// # Errors
    /// Those of [`Engine::run`].
    pub async fn run_in<T, F>(&self, hold: Hold, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        match self.run_queued(|tasks| &mut tasks.rest, SpaceCheck::None, task, hold).await? {
            Ran::Done(outcome) => outcome,
            Ran::Refused(_, error) => Err(error),
        }
    }

    async fn run_among<T, F>(&self, queue: Queue, check: SpaceCheck, mut task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.refuse_if_suspended()?;
        let mut patience = PATIENCE;
        loop {
            let hold = self.hold().await?;
            let error = match self.run_queued(queue, check, task, hold).await? {
                Ran::Done(outcome) => return outcome,
                Ran::Refused(refused, error) => {
                    task = refused;
                    error
                }
            };
            patience -= 1;
            let is_full = matches!(error, DatasetError::NoSpace { .. });
            if !is_full || patience == 0 || !self.has_more_room_soon() {
                return Err(error);
            }
            // Freed space returns after some txgs, which nothing else writes in an idle pool.
            self.for_command(self.force_sync()).await?;
        }
    }

    async fn run_queued<T, F>(
        &self,
        queue: Queue,
        check: SpaceCheck,
        task: F,
        hold: Hold,
    ) -> Result<Ran<T, F>>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let (txg, actor) = (hold.txg(), self.1.user.clone());
        let by_command = self.1.touched.clone();
        let task: Task = Box::new(move |context| {
            Box::pin(async move {
                let before = context.changes();
                let delegated = actor.delegated.clone();
                context.actor = actor;
                context.touched = None;
                let names = delegated.as_ref().map_or(Ok(()), |user| context.engine.check_names(user));
                let checked = match names {
                    Ok(()) => check_space(context, check).await,
                    renamed => renamed,
                };
                let ran = match checked {
                    Ok(()) => Ran::Done(task(context).await),
                    Err(error) => Ran::Refused(task, error),
                };
                if let Some(user) = delegated.filter(|_| matches!(ran, Ran::Done(Ok(_)))) {
                    user.follow(context.engine.renames.load(Ordering::Acquire));
                }
                if let Some(by_command) = by_command {
                    match (&ran, context.touched.take()) {
                        (Ran::Done(Ok(_)), said) => {
                            by_command.lock().merge(said.unwrap_or_else(Touched::all));
                        }
                        // A refused task changes nothing, but a channel program may fail half-way.
                        _ if context.changes() != before => by_command.lock().merge(Touched::all()),
                        _ => {}
                    }
                }
                if let Ran::Done(Err(error)) = &ran
                    && !error.is_refusal()
                    && context.changes() != before
                {
                    context.broken = Some(error.clone());
                }
                // The caller may be gone; the task is done all the same.
                drop(answer.send(ran));
            })
        });
        queue(&mut self.0.tasks.lock()).push(task);
        drop(hold);
        self.for_command(self.sync(txg)).await?;
        answered.await.map_err(|_| self.stopped())
    }

    /// Writes txgs through `txg`.
    ///
    /// # Errors
    /// A txg could not be written.
    #[boxed]
    pub async fn sync(&self, txg: Txg) -> Result<()> {
        if self.0.txgs.synced()? >= txg {
            return Ok(());
        }
        // A caller waits: use full disk bandwidth.
        self.0.on_disk.read().pool.devices().queue_settings().set_dirty_percent(100);
        self.write_soon(txg).await
    }

    /// At a pace set by dirty data.
    pub(crate) async fn sync_gently(&self) -> Result<()> {
        // A caller may be waiting for a txg under way.
        if self.0.turn.try_lock().is_ok() {
            let percent = self.0.throttle.percent();
            self.0.on_disk.read().pool.devices().queue_settings().set_dirty_percent(percent);
        }
        self.write_soon(self.last_changed()).await
    }

    async fn write_soon(&self, txg: Txg) -> Result<()> {
        // A separate task, so that the txg is written even if the caller is cancelled.
        let engine = self.clone();
        let writing = self.0.runtime.spawn(async move { engine.write_through(txg).await });
        let pool = self.pool();
        tokio::select! {
            biased;
            // A panic has already stopped the engine.
            done = writing => done.unwrap_or_else(|error| Err(self.stop(txg, error.to_string()))),
            // The devices may not answer for long.
            () = pool.suspension().fenced() => self.0.txgs.synced().map(drop),
        }
    }

    async fn write_through(&self, txg: Txg) -> Result<()> {
        loop {
            if self.0.txgs.synced()? >= txg {
                return Ok(());
            }
            let _alone = self.0.turn.lock().await;
            if self.0.txgs.synced()? < txg {
                let unwinding = Unwinding { engine: self, txg: self.open_txg() };
                let outcome = sync::sync_open_txg(&self.0).await;
                std::mem::forget(unwinding);
                self.0.txgs.done(outcome.map_err(|(txg, error)| self.stop(txg, error.to_string())));
            }
        }
    }

    /// Writes all changes so far.
    ///
    /// # Errors
    /// A txg could not be written; a command's handle ([`Engine::acting_for`]) timed out.
    #[boxed]
    pub async fn sync_all(&self) -> Result<()> {
        self.for_command(self.sync(self.last_changed())).await
    }

    fn last_changed(&self) -> Txg {
        // In this order: earlier changes are in the open txg or before.
        let has_work = self.0.has_work();
        let open = self.0.txgs.open();
        if has_work { open } else { Txg(open.0 - 1) }
    }

    fn stopped(&self) -> DatasetError {
        let given_up = |txg| DatasetError::Stopped {
            pool: self.0.on_disk.read().pool.name().into(),
            txg,
            why: "a task was given up".into(),
        };
        self.0.txgs.synced().map_or_else(|error| error, given_up)
    }

    fn stop(&self, txg: Txg, why: String) -> DatasetError {
        let pool = self.pool();
        pool.suspension().note_stopped();
        DatasetError::Stopped { pool: pool.name().into(), txg, why: why.into() }
    }
}
