//! Sync tasks queued, and txgs brought to the disk.

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
use crate::txgs::Hold;

/// The turn of the one who writes a txg. If that panics, or its task is aborted, no other txg is written: the
/// next one would be made of a state that is half this txg's. Dropped before the lock on the turn.
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

/// Which of a txg's tasks one belongs to.
type Queue = fn(&mut Tasks) -> &mut Vec<Task>;

/// What became of a task.
enum Ran<T, F> {
    Done(Result<T>),
    /// It was not begun.
    Refused(F, DatasetError),
}

impl Engine {
    /// Runs a task when the open txg is written, and writes that txg: when this returns, it is on disk. A
    /// txg in which nothing has changed, since all its tasks were refused, is not written.
    ///
    /// A task checks before it changes: one that refuses must leave all as it was. If one meets damage when
    /// it has begun to change things, its txg is not written, and the engine stops.
    ///
    /// # Errors
    /// The task's own; or the txg could not be written; [`DatasetError::Suspended`], if a command asks.
    pub async fn run<T, F>(&self, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_within(SpaceCheck::None, task).await
    }

    /// The same for a task that may use so much of the slop.
    ///
    /// # Errors
    /// Those of [`Engine::run`], and that there is no room.
    pub async fn run_within<T, F>(&self, check: SpaceCheck, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_among(|tasks| &mut tasks.rest, check, task).await
    }

    /// The same for a task that must come before anything is freed in its txg.
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

    /// The same for a task that goes with what was done in the txg that is held open.
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
            // What was freed can be used some txgs later, and in an idle pool nothing else writes them.
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
        let task: Task = Box::new(move |context| {
            Box::pin(async move {
                let before = context.changes();
                context.actor = actor;
                let ran = match check_space(context, check).await {
                    Ok(()) => Ran::Done(task(context).await),
                    Err(error) => Ran::Refused(task, error),
                };
                if let Ran::Done(Err(error)) = &ran
                    && !error.is_refusal()
                    && context.changes() != before
                {
                    context.broken = Some(error.clone());
                }
                // Whoever asked may have gone: the task is done all the same.
                drop(answer.send(ran));
            })
        });
        queue(&mut self.0.tasks.lock()).push(task);
        drop(hold);
        self.for_command(self.sync(txg)).await?;
        answered.await.map_err(|_| self.stopped())
    }

    /// Brings txg `txg`, and all before it, to the disk.
    ///
    /// # Errors
    /// It could not be written.
    #[boxed]
    pub async fn sync(&self, txg: Txg) -> Result<()> {
        if self.0.txgs.synced()? >= txg {
            return Ok(());
        }
        // Somebody waits, so the disks get all that they can do.
        self.0.on_disk.read().pool.queue_settings().set_dirty_percent(100);
        self.write_soon(txg).await
    }

    /// The same at the pace that changes in memory ask for.
    pub(crate) async fn sync_gently(&self) -> Result<()> {
        // A txg under way may be one that somebody waits for.
        if self.0.turn.try_lock().is_ok() {
            let percent = self.0.throttle.percent();
            self.0.on_disk.read().pool.queue_settings().set_dirty_percent(percent);
        }
        self.write_soon(self.last_changed()).await
    }

    async fn write_soon(&self, txg: Txg) -> Result<()> {
        // A task of its own: who waits for it may give up, and the txg is written all the same.
        let engine = self.clone();
        let writing = self.0.runtime.spawn(async move { engine.write_through(txg).await });
        // A panic has stopped the engine before it gets here.
        writing.await.unwrap_or_else(|error| Err(self.stop(txg, error.to_string())))
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

    /// Brings everything done so far to the disk.
    ///
    /// # Errors
    /// It could not be written; a command's handle ([`Engine::acting_for`]) has waited too long.
    #[boxed]
    pub async fn sync_all(&self) -> Result<()> {
        self.for_command(self.sync(self.last_changed())).await
    }

    /// The last txg that has something in it.
    fn last_changed(&self) -> Txg {
        // In this order: what was done so far is in the open txg, or in one before.
        let has_work = self.0.has_work();
        let open = self.0.txgs.open();
        if has_work { open } else { Txg(open.0 - 1) }
    }

    /// Why there is no answer from a task.
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
        pool.note_stopped();
        DatasetError::Stopped { pool: pool.name().into(), txg, why: why.into() }
    }
}
