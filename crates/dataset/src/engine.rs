//! The engine: an opened pool that takes changes.
//!
//! ```text
//!   operation --hold--> open group: layers over object sets       (memory only)
//!   task      --------> syncing group: the MOS                    (snapshots, properties, new datasets)
//!
//!   sync:  freeze layers -> write datasets -> settle their space in the MOS -> tasks -> write the MOS and space maps,
//!          again until nothing changes -> labels and uberblock    (the group is on disk)
//! ```
//!
//! Idea: two kinds of change. What concerns one object set (files, volumes) happens in the open group under a [`Hold`] and is only memory
//! until the group is written. What concerns the pool or several datasets at once (a snapshot, say) is a *task*: it runs when
//! its group is written, alone, on the MOS as the group leaves it. So a snapshot shows a dataset exactly at the end of a group.
//!
//! Read in this order: [`groups`] (which group is open), `context` (what a task may do), `sync` (how a group is written).
//!
//! Source: OpenZFS `spa.c` (`spa_sync`), `dsl_pool.c` (`dsl_pool_sync`), `dsl_synctask.c`.

mod auxiliary;
mod checkpoint;
mod context;
mod create;
mod features;
mod freeing;
mod groups;
mod history;
mod logs;
mod missed;
mod open;
mod removed;
mod rewind;
mod room;
mod settings;
mod space;
mod space_check;
mod space_log;
mod state;
mod sync;
mod throttle;
mod upgrade;
mod vdevs;
mod writable;

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_cache::BlockCache;
use cenote_codec::compress::Compression;
use cenote_format::label::PoolConfig;
use cenote_format::units::{DatasetId, Txg};
use cenote_pool::Pool;
use cenote_pool::alloc::Allocator;
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::error::{DatasetError, Result};
use crate::keys::Keyring;
use crate::live::{Edit, LiveObjset};
use crate::mos::Mos;
use crate::objset::Objset;
use crate::sharing::SharedBlocks;
use crate::sync::blocks::Space;
use crate::sync::policy::StoragePolicy;
use crate::zil::Log;
use freeing::Freeing;
use groups::Groups;
use missed::Missed;
use room::Room;
use space::SpaceMaps;
use throttle::Throttle;

pub use context::SyncContext;
pub use create::{FillRoot, NewPool};
pub(crate) use features::{feature_of, features_of_block};
pub use groups::Hold;
pub(crate) use history::NO_DETAILS;
pub use logs::LostLog;
pub(crate) use logs::WeakEngine;
pub use room::Need;
pub use settings::PoolSetting;
pub(crate) use space_check::SpaceCheck;
pub use state::Host;

/// An opened pool that takes changes. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    /// With the last uberblock on disk.
    pool: RwLock<Pool>,
    cache: Arc<BlockCache>,
    allocator: Arc<Allocator>,
    keys: Arc<Keyring>,
    groups: Arc<Groups>,
    /// Changed only by whoever writes a group.
    mos: LiveObjset,
    /// As the last group on disk left it: blocks of the one that is being written may be written over by its next pass.
    mos_on_disk: RwLock<Objset>,
    room: Arc<Room>,
    freeing: Freeing,
    throttle: Throttle,
    mos_policy: Arc<StoragePolicy>,
    features: Features,
    /// As the MOS and labels have it.
    config: Mutex<PoolConfig>,
    /// Changed only by whoever writes a group.
    space_maps: tokio::sync::Mutex<SpaceMaps>,
    /// Who else has a block that is freed.
    shared: Arc<tokio::sync::Mutex<SharedBlocks>>,
    /// What devices have missed since the pool was opened, as their logs say.
    missed: Mutex<Missed>,
    /// What writing the MOS took and its directory has not been charged for.
    uncharged: Mutex<Space>,
    datasets: Mutex<BTreeMap<DatasetId, LiveDataset>>,
    /// Tasks that come before anything else in the open group's sync.
    first_tasks: Mutex<Vec<Task>>,
    /// Tasks of the open group, in order.
    tasks: Mutex<Vec<Task>>,
    /// Held while tasks change which datasets there are, and by who looks one up to open it.
    names: tokio::sync::RwLock<()>,
    /// One group is written at a time.
    syncing: tokio::sync::Mutex<()>,
}

/// Features that change how blocks are written.
#[derive(Debug, Clone, Copy)]
struct Features {
    hole_birth: bool,
    embedded_data: bool,
    /// What `compression=on` means.
    compression: Compression,
}

impl Default for Features {
    /// Those of a pool without feature flags.
    fn default() -> Features {
        Features { hole_birth: false, embedded_data: false, compression: Compression::Lzjb }
    }
}

/// A dataset whose objects may change.
#[derive(Clone)]
struct LiveDataset {
    objset: LiveObjset,
    policy: Arc<StoragePolicy>,
}

/// Something to be done when the open group is written. It answers through a channel of its own.
type Task = Box<dyn for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, ()> + Send>;

impl Engine {
    /// Takes a hold on the open group, in which objects may then be changed: without asking for room, and at once. Whoever changes what users asked
    /// for takes [`Engine::hold_for`]; this is for what must not be refused (what was promised before: logs, replays) and bounds itself.
    ///
    /// # Errors
    /// [`DatasetError::Stopped`]: a group could not be written.
    pub async fn hold(&self) -> Result<Hold> {
        self.0.groups.hold().await
    }

    /// Runs a task when the open group is written, and writes that group: when this returns, it is on disk.
    ///
    /// A task checks before it changes: one that refuses must leave all as it was. If one meets damage when it has begun to change
    /// things, its group is not written, and the engine stops.
    ///
    /// # Errors
    /// The task's own; or the group could not be written.
    pub async fn run<T, F>(&self, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_within(SpaceCheck::None, task).await
    }

    /// The same for a task that may use so much of the slop.
    pub(crate) async fn run_within<T, F>(&self, check: SpaceCheck, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_among(&self.0.tasks, check, task).await
    }

    /// The same for a task that must come before anything is freed in its group.
    async fn run_first<T, F>(&self, check: SpaceCheck, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.run_among(&self.0.first_tasks, check, task).await
    }

    async fn run_among<T, F>(&self, queue: &Mutex<Vec<Task>>, check: SpaceCheck, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let hold = self.hold().await?;
        let txg = hold.txg();
        let task: Task = Box::new(move |context| {
            Box::pin(async move {
                let before = context.changes();
                let outcome = match context.check_space(check).await {
                    Ok(()) => task(context).await,
                    Err(full) => Err(full),
                };
                if let Err(error) = &outcome
                    && !error.is_refusal()
                    && context.changes() != before
                {
                    context.broken = Some(error.clone());
                }
                // Whoever asked may have gone: the task is done all the same.
                drop(answer.send(outcome));
            })
        });
        queue.lock().push(task);
        drop(hold);
        self.sync(txg).await?;
        answered.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    /// Brings group `txg`, and all before it, to the disk.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn sync(&self, txg: Txg) -> Result<()> {
        if self.0.groups.synced()? >= txg {
            return Ok(());
        }
        // A task of its own: who waits for it may give up, and the group is written all the same.
        let engine = self.clone();
        let writing = self.0.runtime.spawn(async move { engine.write_through(txg).await });
        writing.await.unwrap_or_else(|error| {
            let stopped = self.stop(txg, error.to_string());
            self.0.groups.done(Err(stopped.clone()));
            Err(stopped)
        })
    }

    async fn write_through(&self, txg: Txg) -> Result<()> {
        loop {
            if self.0.groups.synced()? >= txg {
                return Ok(());
            }
            let _alone = self.0.syncing.lock().await;
            if self.0.groups.synced()? < txg {
                let outcome = sync::sync_open_group(&self.0).await;
                self.0.groups.done(outcome.map_err(|(txg, error)| self.stop(txg, error.to_string())));
            }
        }
    }

    /// Brings everything done so far to the disk.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn sync_all(&self) -> Result<()> {
        let open = self.0.groups.open();
        self.sync(open).await
    }

    /// Keys of encrypted datasets.
    pub(crate) fn keys(&self) -> &Keyring {
        &self.0.keys
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Why there is no answer from a task.
    fn stopped(&self) -> DatasetError {
        let given_up = |txg| DatasetError::Stopped {
            pool: self.0.pool.read().name().into(),
            txg,
            why: "a task was given up".into(),
        };
        self.0.groups.synced().map_or_else(|error| error, given_up)
    }

    fn stop(&self, txg: Txg, why: String) -> DatasetError {
        let pool = self.0.pool.read().name().into();
        DatasetError::Stopped { pool, txg, why: why.into() }
    }
}

/// A dataset of a pool that takes changes.
#[derive(Clone)]
pub struct OpenDataset(LiveObjset);

impl OpenDataset {
    /// A hand on its objects in the group that is held open.
    pub fn edit(&self, _hold: &Hold) -> Edit {
        self.0.edit()
    }

    pub(crate) fn of(objset: LiveObjset) -> OpenDataset {
        OpenDataset(objset)
    }

    /// Its object set, for those that keep a hand on it over groups: changes go through [`LiveObjset::edit`] under a hold.
    pub fn live(&self) -> &LiveObjset {
        &self.0
    }

    /// Its objects as they are now.
    pub fn view(&self) -> Objset {
        self.0.view()
    }
}

impl Engine {
    /// Opens a dataset to change its objects.
    ///
    /// # Errors
    /// There is none of that name, it is a snapshot, its key is missing, or its log waits to be replayed.
    pub async fn dataset(&self, name: &str) -> Result<OpenDataset> {
        // First of all, as it may wait for a group.
        self.activate_missing(name).await?;
        let _names = self.0.names.read().await;
        let dataset = self.mos().await?.dataset(name).await?;
        if dataset.is_snapshot() {
            let why = "is a snapshot, which never changes; clone it to change the copy".into();
            return Err(DatasetError::Unsuitable { name: name.into(), why });
        }
        let open = self.0.datasets.lock().get(&dataset.id()).map(|open| open.objset.clone());
        if let Some(open) = open.filter(|open| open.log().is_some()) {
            return self.unless_log_waits(name, open);
        }
        let objset = dataset.objset().await?;
        let policy = Arc::new(StoragePolicy::of(&dataset).await?);
        let log = self.open_log(dataset.id(), &objset, &policy).await?;
        let mut datasets = self.0.datasets.lock();
        // The group cannot close between this and the insertion: it takes the same lock to freeze.
        let fresh = || {
            let objset = LiveObjset::counted(objset, self.0.groups.open(), self.0.throttle.dirty());
            LiveDataset { objset, policy }
        };
        let open = datasets.entry(dataset.id()).or_insert_with(fresh).objset.clone();
        drop(datasets);
        open.set_log(log);
        self.unless_log_waits(name, open)
    }

    fn unless_log_waits(&self, name: &str, open: LiveObjset) -> Result<OpenDataset> {
        if open.log().is_some_and(Log::needs_replay) {
            let why = "has an intent log that has to be replayed first";
            return Err(DatasetError::busy(name, why));
        }
        Ok(OpenDataset(open))
    }

    /// The pool as the last group on disk left it.
    ///
    /// # Errors
    /// The object directory is damaged.
    pub async fn mos(&self) -> Result<Mos> {
        let mos = self.0.mos_on_disk.read().clone();
        Mos::at(&mos, self.0.keys.clone()).await
    }
}
