//! The engine: an opened pool that takes changes, and what all its parts share.

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
use cenote_format::units::{DatasetId, Guid, Txg, VdevId};
use cenote_l2arc::CacheDevices;
use cenote_object::{DatasetError, LiveObjset, Objset, Result};
use cenote_pool::alloc::{AllocClass, Allocator, BorrowedSpace};
use cenote_pool::{Pool, Waits};
use cenote_runtime::Runtime;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};

use crate::background::Background;
use crate::context::SyncContext;
use crate::handles::Handles;
use crate::in_use::uses::Snapshots;
use crate::kstat::Kstats;
use crate::locks::Ranked;
use crate::pending_frees::Freeing;
use crate::room::Room;
use crate::sharing::tables::Tables;
use crate::space::maps::SpaceMaps;
use crate::store::features::Features;
use crate::store::policy::StoragePolicy;
use crate::store::space_delta::SpaceDelta;
use crate::taking::Taking;
use crate::throttle::Throttle;
use crate::txgs::{Hold, Txgs};
use crate::zil::log::Log;

/// An opened pool that takes changes, and for whom it does. Cloning it costs one atomic increment.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Shared>, pub(crate) Actor);

/// A user; root unless said otherwise.
#[derive(Debug, Default, Clone)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// Whom limits bind: may do what was delegated, and no more.
    pub(crate) delegated: Option<Arc<Credentials>>,
}

/// For whom changes are made.
#[derive(Default, Clone)]
pub(crate) struct Actor {
    pub(crate) user: User,
    /// The last txg with a change of theirs; of nobody in particular it is not known.
    last_txg: Option<Arc<AtomicU64>>,
    /// Of whom keys of new encryption roots are asked; none: of whom all are.
    new_keys: Option<KeySource>,
}

pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) cache_devices: CacheDevices,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) keys: Arc<Keyring>,
    pub(crate) txgs: Arc<Txgs>,
    /// Changed only by whoever writes a txg.
    pub(crate) mos: LiveObjset,
    pub(crate) room: Arc<Room>,
    pub(crate) freeing: Freeing,
    pub(crate) throttle: Throttle,
    pub(crate) kstats: Kstats,
    pub(crate) mos_policy: Arc<StoragePolicy>,
    /// Who else has a block that is freed.
    pub(crate) tables: Tables,
    pub(crate) datasets: Ranked<Mutex<BTreeMap<DatasetId, LiveDataset>>>,
    pub(crate) tasks: Ranked<Mutex<Tasks>>,
    /// As the MOS and labels have it.
    pub(crate) config: Ranked<Mutex<PoolConfig>>,
    pub(crate) carried: Ranked<Mutex<Carried>>,
    pub(crate) on_disk: Ranked<RwLock<OnDisk>>,
    /// Changed only by whoever writes a txg.
    pub(crate) space_maps: tokio::sync::Mutex<SpaceMaps>,
    /// What users of datasets share.
    pub(crate) handles: Handles,
    /// Snapshots that somebody looks into.
    pub(crate) snapshots: Snapshots,
    /// Held while tasks change which datasets there are, and by who looks one up to open it.
    pub(crate) names: tokio::sync::RwLock<()>,
    pub(crate) background: Background,
    /// One txg is written at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) told: Told,
}

/// The pool as the last txg on disk left it: blocks of the one that is being written may be written over by
/// its next pass.
#[derive(Clone)]
pub(crate) struct OnDisk {
    /// With its uberblock.
    pub(crate) pool: Pool,
    pub(crate) mos: Objset,
    /// With the vdevs that it had then.
    pub(crate) vdevs: Arc<cenote_pool::PoolConfig>,
}

/// Tasks of the open txg, in order.
#[derive(Default)]
pub(crate) struct Tasks {
    /// These come before anything else in its sync.
    pub(crate) first: Vec<Task>,
    pub(crate) rest: Vec<Task>,
}

impl Tasks {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_empty()
    }
}

/// What the writer of txgs carries from one to the next.
pub(crate) struct Carried {
    /// As the last txg whose tasks ran left them.
    pub(crate) features: Features,
    /// What devices have missed, as their logs say.
    pub(crate) missed: Missed,
    /// What writing the MOS took and its directory has not been charged for.
    pub(crate) uncharged: SpaceDelta,
}

/// What the engine was told once, if at all.
#[derive(Default)]
pub(crate) struct Told {
    /// How the pool was found.
    pub(crate) taking: OnceLock<Taking>,
    /// Hears of each record that the history gets.
    pub(crate) history_listener: OnceLock<HistoryListener>,
    /// Hears of each change of the configuration, once labels have it.
    pub(crate) config_listener: OnceLock<ConfigListener>,
}

/// By leaf, runs of txgs that it missed: the first and the last of each.
pub(crate) type Missed = BTreeMap<Guid, Vec<(Txg, Txg)>>;

pub(crate) type HistoryListener = Box<dyn Fn(&Nvlist) + Send + Sync>;

pub(crate) type ConfigListener = Box<dyn Fn() + Send + Sync>;

/// A dataset whose objects may change.
#[derive(Clone)]
pub(crate) struct LiveDataset {
    pub(crate) objset: LiveObjset,
    pub(crate) policy: Arc<StoragePolicy>,
    /// Where operations leave records; none in one that was just made and that nobody has opened yet.
    pub(crate) log: Option<Log>,
}

/// Something to be done when the open txg is written. It answers through a channel of its own.
pub(crate) type Task = Box<dyn for<'a> FnOnce(&'a mut SyncContext) -> BoxFuture<'a, ()> + Send>;

impl Engine {
    pub(crate) fn of(shared: Arc<Shared>) -> Engine {
        Engine(shared, Actor::default())
    }

    /// Takes a hold on the open txg without asking for room. For the engine itself, and for tests: whatever
    /// else changes objects goes through [`Engine::change`], which also sees to it that no half of a change
    /// stays.
    ///
    /// # Errors
    /// [`DatasetError::Stopped`]: a txg could not be written.
    #[boxed]
    pub async fn hold(&self) -> Result<Hold> {
        // A log block that is being written to a silent device holds the txg open.
        let hold = self.for_command(self.0.txgs.hold()).await?;
        if let Some(last_txg) = &self.1.last_txg {
            last_txg.fetch_max(hold.txg().0, Ordering::AcqRel);
        }
        Ok(hold)
    }

    /// Waits until all that was changed through this handle of [`Engine::acting_for`], and its clones, is on
    /// disk.
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

    /// Whether this handle was made for a command.
    pub(crate) fn is_of_command(&self) -> bool {
        self.1.last_txg.is_some()
    }

    /// Takes steps that belong together: if this future is dropped once they have begun, they go on without
    /// it to their end.
    pub async fn to_end<F>(&self, steps: impl FnOnce(Engine) -> F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.runtime.to_end(steps(self.clone())).await
    }

    /// The same for steps that need the open txg to stay open, until they end or give the hold to
    /// [`Engine::run_in`].
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

    /// The same pool; what tasks make through this handle is made by user `uid`, who is given what `zfs allow
    /// -c` promises. Whether the user may is for the caller to know.
    pub fn acting_for(&self, uid: u32) -> Engine {
        self.acting(User { uid, delegated: None })
    }

    /// The same for a user who may do what was delegated, and whom `filesystem_limit` and `snapshot_limit`
    /// bind.
    pub fn acting_for_delegated(&self, who: Credentials) -> Engine {
        self.acting(User { uid: who.uid, delegated: Some(Arc::new(who)) })
    }

    fn acting(&self, user: User) -> Engine {
        let new_keys = self.1.new_keys.clone();
        Engine(self.0.clone(), Actor { user, last_txg: Some(Arc::default()), new_keys })
    }

    /// The same, which asks there for the keys of new encryption roots.
    pub fn asking(self, new_keys: KeySource) -> Engine {
        Engine(self.0, Actor { new_keys: Some(new_keys), ..self.1 })
    }

    /// Of whom keys of new encryption roots are asked.
    pub fn new_keys(&self) -> KeySource {
        self.1.new_keys.clone().unwrap_or_else(|| self.0.keys.source())
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// The pool as the last txg on disk left it. It stays so while this, or anything that was opened through
    /// it, is held: what is freed meanwhile is not allocated again, so that the tree can be walked while
    /// others change the pool. Those who hold it for long, and don't walk, let go of that
    /// ([`Objset::not_keeping`]). If the pool is short of space, it is taken from them
    /// ([`Pool::has_whole_tree`]).
    ///
    /// # Errors
    /// The object directory is damaged.
    #[boxed]
    pub async fn mos(&self) -> Result<Mos> {
        self.mos_keeping(false).await
    }

    /// The same for those who write to the blocks that they find in it, for some seconds: it is never taken
    /// from them.
    ///
    /// # Errors
    /// The object directory is damaged.
    #[boxed]
    pub async fn mos_to_mend(&self) -> Result<Mos> {
        self.mos_keeping(true).await
    }

    /// The same for a command that looks: a device that does not answer fails its reads after some seconds.
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
            // Together, so that no later tree is looked at than is kept.
            let on_disk = self.0.on_disk.read();
            (on_disk.clone(), self.0.allocator.keep_freed(is_firm))
        };
        let mos = on_disk.mos.in_view(&on_disk.mos.pool().keeping(kept).waiting(waits));
        Mos::at(&mos, self.0.keys.clone(), on_disk.vdevs).await
    }

    /// The same for those who must not keep the pool open.
    pub fn weak(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.0))
    }

    /// The txg that is open.
    pub(crate) fn open_txg(&self) -> Txg {
        self.0.txgs.open()
    }

    /// The last txg on disk.
    pub(crate) fn synced(&self) -> Result<Txg> {
        self.0.txgs.synced()
    }

    /// The pool, with the last uberblock on disk.
    pub fn pool(&self) -> Pool {
        self.0.on_disk.read().pool.clone()
    }

    /// The cache of its blocks.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.0.cache
    }

    /// Borrows free space of a metaslab: see [`Allocator::borrow_free`].
    pub fn borrow_free(&self, vdev: VdevId, metaslab: u64, from: u64, most_bytes: u64) -> BorrowedSpace {
        self.0.allocator.borrow_free(vdev, metaslab, from, most_bytes)
    }

    /// The same of what was freed lately: see [`Allocator::borrow_untrimmed`].
    pub fn borrow_untrimmed(&self, vdev: VdevId, metaslab: u64, most_bytes: u64) -> BorrowedSpace {
        self.0.allocator.borrow_untrimmed(vdev, metaslab, most_bytes)
    }

    /// From now on `listener` hears of each change of the configuration (devices, names, guids), by whatever
    /// cause, as soon as the labels have it. It must not wait. Said once.
    pub fn on_config(&self, listener: impl Fn() + Send + Sync + 'static) {
        drop(self.0.told.config_listener.set(Box::new(listener)));
    }

    /// What of the pool is allocated.
    pub fn allocator(&self) -> &Allocator {
        &self.0.allocator
    }
}

/// An engine that may be gone by now.
#[derive(Clone)]
pub struct WeakEngine(pub(crate) Weak<Shared>);

impl WeakEngine {
    /// # Errors
    /// It is gone.
    pub fn upgrade(&self) -> Result<Engine> {
        let gone = || DatasetError::unsuitable("the pool", "was closed; open it again");
        self.0.upgrade().map(Engine::of).ok_or_else(gone)
    }

    /// Whether the pool has devices for nothing but logs.
    pub(crate) fn has_log_device(&self) -> bool {
        self.0.upgrade().is_some_and(|engine| engine.allocator.has_class(AllocClass::Log))
    }
}
