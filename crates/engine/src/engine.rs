//! The engine: a pool opened for writing, and the state its parts share.
//!
//! Idea: the engine itself opens datasets, makes changes, runs tasks and writes txgs. Everything else is
//! behind a face that borrows it:
//!
//! ```text
//!   background()   turns, orders and settings of background work   background
//!   frees()        destroyed datasets that are still being freed   freeing
//!   history()      records of commands                             history
//!   l2arc()        cache devices                                   second
//!   load()         dirty data, traffic, counters                   load
//!   logs()         intent logs                                     logs
//!   multihost()    heartbeats                                      multihost
//!   ownership()    the owner in the labels, and the first change   state
//!   suspension()   work while the pool may wait for its devices    suspended
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use cenote_boxed::boxed;
use cenote_cache::BlockCache;
use cenote_dataset::KeySource;
use cenote_dataset::keys::Keyring;
use cenote_dataset::{Credentials, Mos};
use cenote_format::label::PoolConfig;
use cenote_format::nvlist::Nvlist;
use cenote_format::units::{DatasetId, Guid, Txg};
use cenote_l2arc::CacheDevices;
use cenote_object::{DatasetError, LiveObjset, Objset, Result};
use cenote_pool::alloc::{AllocClass, Allocator};
use cenote_pool::{Pool, Waits};
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};

use crate::background::Background;
use crate::context::SyncContext;
use crate::handles::Handles;
use crate::import_export::OpenState;
use crate::in_use::uses::Snapshots;
use crate::kept_deadlists::HeadDeadlists;
use crate::kstat::Kstats;
use crate::locks::Ranked;
use crate::multihost::state::Multihost;
use crate::names::{Delegated, Names};
use crate::pending_frees::Freeing;
use crate::room::Room;
use crate::sharing::tables::Tables;
use crate::space::maps::SpaceMaps;
use crate::store::features::Features;
use crate::store::policy::StoragePolicy;
use crate::store::space_delta::SpaceDelta;
use crate::throttle::Throttle;
use crate::touched::Touched;
use crate::txg_times::noted::TxgTimes;
use crate::txgs::{Hold, Txgs};
use crate::zil::log::Log;

/// A handle on a pool opened for writing; cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Shared>, pub(crate) Actor);

#[derive(Debug, Default, Clone)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// Needs delegated permissions and obeys limits; `None`: an administrator.
    pub(crate) delegated: Option<Arc<Delegated>>,
}

/// The user or command that makes changes.
#[derive(Default, Clone)]
pub(crate) struct Actor {
    pub(crate) user: User,
    /// Last txg this actor changed; `None`: not a command.
    last_txg: Option<Arc<AtomicU64>>,
    /// `None`: from the keyring.
    new_keys: Option<KeySource>,
    /// By its tasks so far; `None`: not a command.
    pub(crate) touched: Option<Arc<Mutex<Touched>>>,
}

pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) cache_devices: CacheDevices,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) keys: Arc<Keyring>,
    pub(crate) txgs: Arc<Txgs>,
    /// Changed only by the writer of a txg.
    pub(crate) mos: LiveObjset,
    pub(crate) room: Arc<Room>,
    pub(crate) freeing: Freeing,
    pub(crate) throttle: Throttle,
    pub(crate) kstats: Kstats,
    pub(crate) mos_policy: Arc<StoragePolicy>,
    pub(crate) tables: Tables,
    pub(crate) datasets: Ranked<Mutex<BTreeMap<DatasetId, LiveDataset>>>,
    pub(crate) tasks: Ranked<Mutex<Tasks>>,
    /// As in the MOS and labels.
    pub(crate) config: Ranked<Mutex<PoolConfig>>,
    pub(crate) carried: Ranked<Mutex<Carried>>,
    pub(crate) on_disk: Ranked<RwLock<OnDisk>>,
    /// Changed only by the writer of a txg.
    pub(crate) space_maps: tokio::sync::Mutex<SpaceMaps>,
    /// Changed only by the writer of a txg.
    pub(crate) txg_times: tokio::sync::Mutex<TxgTimes>,
    pub(crate) handles: Handles,
    pub(crate) snapshots: Snapshots,
    /// Changed only by the writer of a txg.
    pub(crate) head_deadlists: Mutex<HeadDeadlists>,
    /// Write: tasks that create or remove datasets. Read: opens.
    pub(crate) names: tokio::sync::RwLock<()>,
    /// See `names`; changed only by the writer of a txg.
    pub(crate) renames: AtomicU64,
    pub(crate) background: Background,
    pub(crate) multihost: Multihost,
    /// Serializes the writing of txgs.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) told: Told,
}

/// The pool as of the last txg on disk. The syncing txg can't be read: its passes overwrite their blocks.
#[derive(Clone)]
pub(crate) struct OnDisk {
    pub(crate) pool: Pool,
    pub(crate) mos: Objset,
    pub(crate) vdevs: Arc<cenote_pool::PoolConfig>,
    pub(crate) renames: u64,
}

#[derive(Default)]
pub(crate) struct Tasks {
    /// Run before everything else in the sync.
    pub(crate) first: Vec<Task>,
    pub(crate) rest: Vec<Task>,
}

impl Tasks {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_empty()
    }
}

/// State carried from one txg to the next.
pub(crate) struct Carried {
    pub(crate) features: Features,
    /// From the DTLs.
    pub(crate) missed: Missed,
    /// Cost of writing the MOS, to be charged to its directory.
    pub(crate) uncharged: SpaceDelta,
}

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) taking: OnceLock<OpenState>,
    pub(crate) history_listener: OnceLock<HistoryListener>,
    /// Called once the labels have the change.
    pub(crate) config_listener: OnceLock<ConfigListener>,
}

/// By leaf: first and last txg of each missed run.
pub(crate) type Missed = BTreeMap<Guid, Vec<(Txg, Txg)>>;

pub(crate) type HistoryListener = Box<dyn Fn(&Nvlist) + Send + Sync>;

pub(crate) type ConfigListener = Box<dyn Fn() + Send + Sync>;

#[derive(Clone)]
pub(crate) struct LiveDataset {
    pub(crate) objset: LiveObjset,
    pub(crate) policy: Arc<StoragePolicy>,
    /// None in a new dataset never opened.
    pub(crate) log: Option<Log>,
}

/// Runs when the open txg is written; answers through its own channel.
pub(crate) type Task = Box<dyn for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, ()> + Send>;

impl Engine {
    pub(crate) fn of(shared: Arc<Shared>) -> Engine {
        Engine(shared, Actor::default())
    }

    /// Takes a hold without reserving space: for the engine and tests. Others use [`Engine::change`], which
    /// also runs a change to its end.
    ///
    /// # Errors
    /// [`DatasetError::Stopped`]; [`DatasetError::Renamed`], for delegated users.
    #[boxed]
    pub async fn hold(&self) -> Result<Hold> {
        // May wait: a log block in flight to an unresponsive device holds the txg open.
        let hold = self.for_command(self.0.txgs.hold()).await?;
        if let Some(delegated) = &self.1.user.delegated {
            self.0.check_names(delegated)?;
        }
        if let Some(last_txg) = &self.1.last_txg {
            last_txg.fetch_max(hold.txg().0, Ordering::AcqRel);
        }
        Ok(hold)
    }

    /// Waits until the changes of this handle and its clones are on disk.
    ///
    /// # Errors
    /// A txg could not be written.
    #[boxed]
    pub async fn sync_own(&self) -> Result<()> {
        match &self.1.last_txg {
            Some(last_txg) => self.for_command(self.sync(Txg(last_txg.load(Ordering::Acquire)))).await,
            None => self.sync_all().await,
        }
    }

    pub(crate) fn is_of_command(&self) -> bool {
        self.1.last_txg.is_some()
    }

    /// Runs steps to their end, even if this future is dropped.
    pub async fn to_end<F>(&self, steps: impl FnOnce(Engine) -> F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.runtime.to_end(steps(self.clone())).await
    }

    /// [`Engine::to_end`] with the open txg held until the steps end or call [`Engine::run_in`].
    ///
    /// # Errors
    /// Those of the steps; [`DatasetError::Stopped`].
    pub async fn to_end_held<T, F>(&self, steps: impl FnOnce(Engine, Hold) -> F + Send + 'static) -> Result<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.to_end(move |engine| async move {
            let hold = engine.hold().await?;
            steps(engine, hold).await
        })
        .await
    }

    /// Keys of encrypted datasets.
    pub fn keys(&self) -> &Keyring {
        &self.0.keys
    }

    /// A handle for user `uid`, who gets `zfs allow -c` permissions on created datasets. The caller checks
    /// permissions.
    pub fn acting_for(&self, uid: u32) -> Engine {
        self.acting(User { uid, delegated: None })
    }

    /// [`Engine::acting_for`] a delegated user, bound by `filesystem_limit` and `snapshot_limit`. The caller
    /// has checked its permissions on datasets of these names.
    pub fn acting_for_delegated(&self, who: Credentials, names: Names) -> Engine {
        self.acting(User { uid: who.uid, delegated: Some(Arc::new(Delegated::new(who, names))) })
    }

    fn acting(&self, user: User) -> Engine {
        let new_keys = self.1.new_keys.clone();
        let (last_txg, touched) = (Some(Arc::default()), Some(Arc::default()));
        Engine(self.0.clone(), Actor { user, last_txg, new_keys, touched })
    }

    /// Everything that completed tasks of this command's handle touched so far; empty for other handles.
    pub fn touched(&self) -> Touched {
        self.1.touched.as_ref().map(|touched| touched.lock().clone()).unwrap_or_default()
    }

    /// Asks `new_keys` for keys of new encryption roots.
    pub fn asking(self, new_keys: KeySource) -> Engine {
        Engine(self.0, Actor { new_keys: Some(new_keys), ..self.1 })
    }

    /// Source of keys for new encryption roots.
    pub fn new_keys(&self) -> KeySource {
        self.1.new_keys.clone().unwrap_or_else(|| self.0.keys.source())
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// The pool as of the last txg on disk. While it is held, freed blocks are not reused, so its tree can be
    /// walked. Holders that do not walk release this claim ([`Objset::not_keeping`]); a pool short of space
    /// revokes it ([`Pool::has_whole_tree`]).
    ///
    /// # Errors
    /// Damaged object directory.
    #[boxed]
    pub async fn mos(&self) -> Result<Mos> {
        self.mos_keeping(false).await
    }

    /// [`Engine::mos`] with a claim never revoked, for short repairs.
    ///
    /// # Errors
    /// Damaged object directory.
    #[boxed]
    pub async fn mos_to_mend(&self) -> Result<Mos> {
        self.mos_keeping(true).await
    }

    /// The same for a command that looks: an unresponsive device fails its reads after some seconds.
    ///
    /// # Errors
    /// The object directory is damaged, or does not come in time.
    #[boxed]
    pub async fn mos_to_look(&self) -> Result<Mos> {
        self.mos_for(false, Waits::Briefly).await
    }

    async fn mos_keeping(&self, is_firm: bool) -> Result<Mos> {
        self.mos_for(is_firm, Waits::Never).await
    }

    async fn mos_for(&self, is_firm: bool, waits: Waits) -> Result<Mos> {
        let (on_disk, kept) = {
            // Under one lock, so that the tree is no newer than its kept blocks.
            let on_disk = self.0.on_disk.read();
            (on_disk.clone(), self.0.allocator.keep_freed(is_firm))
        };
        let mos = on_disk.mos.in_view(&on_disk.mos.pool().keeping(kept).waiting(waits));
        Mos::at(&mos, self.0.keys.clone(), on_disk.vdevs).await
    }

    /// Does not keep the pool open.
    pub fn weak(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.0))
    }

    pub(crate) fn open_txg(&self) -> Txg {
        self.0.txgs.open()
    }

    pub(crate) fn synced(&self) -> Result<Txg> {
        self.0.txgs.synced()
    }

    /// The pool, with the last uberblock on disk.
    pub fn pool(&self) -> Pool {
        self.0.on_disk.read().pool.clone()
    }

    /// The block cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.0.cache
    }

    /// Sets the listener for configuration changes (devices, names, guids), called once the labels have them.
    /// It must not block. Only the first call counts.
    pub fn on_config(&self, listener: impl Fn() + Send + Sync + 'static) {
        drop(self.0.told.config_listener.set(Box::new(listener)));
    }

    /// Allocated and free space.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.0.allocator
    }
}

/// An engine that may be closed.
#[derive(Clone)]
pub struct WeakEngine(pub(crate) Weak<Shared>);

impl WeakEngine {
    /// # Errors
    /// It is closed.
    pub fn upgrade(&self) -> Result<Engine> {
        let gone = || DatasetError::unsuitable("the pool", "was closed; open it again");
        self.0.upgrade().map(Engine::of).ok_or_else(gone)
    }

    pub(crate) fn has_log_device(&self) -> bool {
        self.0.upgrade().is_some_and(|engine| engine.allocator.has_class(AllocClass::Log))
    }
}

/// See [`crate::names`].
impl Engine {
    /// The names on disk. A caller that checks rights asks for them before it reads the datasets.
    pub fn names(&self) -> Names {
        Names::at(self.0.on_disk.read().renames)
    }

    /// For a reader that has looked datasets up again.
    ///
    /// # Errors
    /// On disk, a dataset was renamed since the check.
    pub fn check_names(&self, names: &Names) -> Result<()> {
        let renames = self.0.on_disk.read().renames;
        if names.are_of(renames) { Ok(()) } else { Err(self.0.renamed()) }
    }
}

impl Shared {
    /// # Errors
    /// A dataset was renamed since the user's rights were checked.
    pub(crate) fn check_names(&self, user: &Delegated) -> Result<()> {
        let renames = self.renames.load(Ordering::Acquire);
        if user.is_valid(renames) { Ok(()) } else { Err(self.renamed()) }
    }

    fn renamed(&self) -> DatasetError {
        DatasetError::Renamed { pool: self.on_disk.read().pool.name().into() }
    }
}
