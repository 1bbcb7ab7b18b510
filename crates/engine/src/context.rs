//! The context of a sync task: the syncing txg, and the MOS as it leaves it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_boxed::boxed;
use cenote_dataset::keys::Keyring;
use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_dataset::{Credentials, Dataset, Mos};
use cenote_device::{Device, DeviceError};
use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_format::features::Since;
use cenote_format::label::PoolConfig;
use cenote_format::objset::{ObjsetPhys, ObjsetType};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, Guid, ObjectId, TXG_CONCURRENT_STATES, Txg, VdevId};
use cenote_object::{DatasetError, Edit, LiveObjset, Objset, Result, Zap};
use cenote_pool::alloc::Allocator;
use cenote_pool::{Pool, ReadContext, Zbookmark};
use cenote_runtime::Runtime;
use std::ops::DerefMut;

use crate::background::ScanSettings;
use crate::engine::{LiveDataset, Shared, User};
use crate::import_export::{HELD_BYTES_MAX, refuse_changed};
use crate::kept_deadlists::KeptDeadlists;
use crate::space::map_edit::SpaceMapEdit;
use crate::store::policy::StoragePolicy;
use crate::store::space_delta::SpaceDelta;
use crate::store::txg::SyncingTxg;
use crate::touched::{Reach, Touch, Touched};

/// The syncing txg, for code that changes the MOS.
pub struct SyncContext {
    pub(crate) engine: Arc<Shared>,
    pub(crate) syncing: SyncingTxg,
    /// Unreferenced blocks, not free yet.
    pub(crate) dead: Vec<Blkptr>,
    pub(crate) born_objsets: Vec<LiveDataset>,
    /// Write it to the MOS and all labels.
    pub(crate) config_changed: bool,
    pub(crate) features_changed: bool,
    pub(crate) deadlists: parking_lot::Mutex<KeptDeadlists>,
    /// Part of the txg is written, or about to be.
    pub(crate) has_begun: bool,
    /// Write even an empty txg.
    pub(crate) is_forced: bool,
    /// A task failed half-way: do not write the txg.
    pub(crate) broken: Option<DatasetError>,
    pub(crate) actor: User,
    /// By the current task; `None`: it has not said.
    pub(crate) touched: Option<Touched>,
}

impl SyncContext {
    /// Counts a rename of a dataset, and so of all below it.
    pub fn note_renamed(&self) {
        self.engine.renames.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the task touches no dataset that may be mounted, unless it notes others.
    pub fn touch_nothing(&mut self) {
        self.touched.get_or_insert_default();
    }

    /// Notes that the task touches a file system or volume (not a snapshot), and no other that it does not
    /// note.
    pub fn touch(&mut self, head: &Dataset, reach: Reach) {
        let (with_below, is_new) = (reach == Reach::Below, reach == Reach::New);
        let is_itself = reach != Reach::Snapshots;
        let touch = Touch { name: head.name().into(), is_itself, with_below, is_new };
        self.touched.get_or_insert_default().add(head.id(), touch);
    }

    /// The syncing txg.
    pub fn txg(&self) -> Txg {
        self.syncing.txg
    }

    /// The user ([`crate::Engine::acting_for`]).
    pub fn uid(&self) -> u32 {
        self.actor.uid
    }

    /// Credentials, unless the user is an administrator.
    pub fn delegated(&self) -> Option<&Credentials> {
        self.actor.delegated.as_ref().map(|delegated| &delegated.who)
    }

    /// Grows with each change so far: an equal number means that nothing was changed in between.
    pub fn changes(&self) -> u64 {
        self.edit().changes() + self.dead.len() as u64
    }

    /// Edits the MOS.
    pub fn edit(&self) -> Edit {
        self.engine.mos.edit()
    }

    /// The MOS with all changes.
    ///
    /// # Errors
    /// Damaged directory.
    #[boxed]
    pub async fn mos(&self) -> Result<Mos> {
        Mos::at(&self.engine.mos.view(), self.engine.keys.clone(), self.syncing.pool.tree().config()).await
    }

    /// An object in the object directory.
    ///
    /// # Errors
    /// The name is missing.
    #[boxed]
    pub async fn directory_object(&self, name: &str) -> Result<ObjectId> {
        let found = self.find_directory_object(name).await?;
        found.ok_or_else(|| self.damaged(&format!("the object directory has no '{name}'")))
    }

    /// An object in the object directory, if listed.
    #[boxed]
    pub async fn find_directory_object(&self, name: &str) -> Result<Option<ObjectId>> {
        let directory = Zap::open_id(&self.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?;
        Ok(directory.get_u64(name).await?.map(ObjectId))
    }

    /// Gives a new head an empty object set.
    #[boxed]
    pub async fn make_objset(&mut self, dataset: DatasetId, kind: ObjsetType) -> Result<LiveObjset> {
        self.activate_missing(dataset).await?;
        let counted = self.count_owners(dataset, kind).await?;
        let mut phys = ObjsetPhys::empty(kind);
        phys.flags = counted;
        let policy = StoragePolicy::of(&self.mos().await?.dataset_by_id(dataset).await?).await?;
        let engine = &self.engine;
        let empty = Objset::empty(&self.syncing.pool, &engine.cache, dataset, policy.key.clone(), phys);
        let empty = empty.cached_as(policy.caching);
        let objset = LiveObjset::counted(empty, self.syncing.txg, engine.throttle.dirty());
        self.born_objsets.push(LiveDataset { objset: objset.clone(), policy: Arc::new(policy), log: None });
        Ok(objset)
    }

    /// Applies properties of the pool to all open datasets and handles.
    #[boxed]
    pub async fn refresh_policies(&mut self) -> Result<()> {
        let open: Vec<DatasetId> = self.engine.datasets.lock().keys().copied().collect();
        for id in open {
            let dataset = self.mos().await?.dataset_by_id(id).await?;
            self.refresh_policy(&dataset).await?;
        }
        Ok(())
    }

    /// Applies changed properties of a dataset to it and those below, which may inherit them, as far as they
    /// are open. A snapshot's properties concern none.
    #[boxed]
    pub async fn refresh_policies_below(&mut self, name: &str) -> Result<()> {
        let top = self.mos().await?.dataset(name).await?;
        if top.is_snapshot() {
            return Ok(());
        }
        for dataset in top.reachable().await.0 {
            // The head of a receive, which is not listed.
            let receiving = dataset.dir().child(RECV_CLONE_NAME).await?;
            if let Some(dir) = receiving {
                let dataset = dir.head().await?;
                self.refresh_if_open(&dataset).await?;
            }
            self.refresh_if_open(&dataset).await?;
        }
        Ok(())
    }

    async fn refresh_if_open(&mut self, dataset: &Dataset) -> Result<()> {
        let is_open = self.engine.datasets.lock().contains_key(&dataset.id());
        if is_open { self.refresh_policy(dataset).await } else { Ok(()) }
    }

    async fn refresh_policy(&mut self, dataset: &Dataset) -> Result<()> {
        let id = dataset.id();
        self.activate_missing_of(dataset).await?;
        let mos = self.mos().await?;
        let dataset = mos.dataset(dataset.name()).await?;
        let raw = self.engine.datasets.lock().get(&id).is_some_and(|open| open.policy.raw);
        let policy =
            if raw { StoragePolicy::raw(&dataset).await? } else { StoragePolicy::of(&dataset).await? };
        let policy = Arc::new(policy);
        if let Some(open) = self.engine.datasets.lock().get_mut(&id) {
            open.objset.view().caching().set(policy.caching);
            open.log.as_ref().inspect(|log| log.set_policy(policy.log));
            open.policy = policy;
        }
        if let Some(handle) = self.engine.handles.to_follow(id) {
            handle.follow_settings(&mos, &dataset).await?;
        }
        Ok(())
    }

    /// Withdraws the object set of a failed creation.
    pub fn unmake_objset(&mut self, dataset: DatasetId) {
        self.born_objsets.retain(|born| born.objset.dataset_id() != dataset);
    }

    /// Whether the pool's version allows it.
    pub fn has(&self, what: Since) -> bool {
        self.syncing.pool.uberblock().has(what)
    }

    /// Refuses what the pool's version does not allow.
    pub fn require(&self, what: Since, name: &str) -> Result<()> {
        match self.has(what) {
            true => Ok(()),
            false => Err(DatasetError::unsuitable(
                name,
                format!("pool must be upgraded to version {} for this (`zpool upgrade`)", what as u64),
            )),
        }
    }

    /// Keys of encrypted datasets.
    pub fn keys(&self) -> &Keyring {
        &self.engine.keys
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.engine.runtime
    }

    /// The pool with this txg's vdev tree.
    pub fn pool(&self) -> &Pool {
        &self.syncing.pool
    }

    /// Marks the pool as in use, once. Required before a txg's first write, and before a checked task changes
    /// state outside the txg.
    ///
    /// # Errors
    /// Another system has taken the pool; a device fails.
    #[boxed]
    pub async fn begin_writing(&mut self) -> Result<()> {
        self.has_begun = true;
        let engine = self.engine.clone();
        let Some(taking) = engine.told.taking.get() else { return self.settle_scratch().await };
        let mark = taking.mark.lock().take();
        if let Some(mark) = mark {
            // From disk: a task may have changed the txg's vdevs.
            let pool = engine.on_disk.read().pool.clone();
            refuse_changed(&pool, taking).await?;
            if taking.is_uneven {
                pool.labels().even_out().await;
            }
            pool.labels().write_config(&mark).await?;
            self.config_changed = true;
        }
        let may_wait =
            taking.preparing.load(Ordering::Acquire) > 0 && taking.gate.held_bytes() < HELD_BYTES_MAX;
        if !taking.gate.is_open() && !may_wait {
            // Behind the gate lie txgs since the one found, and blocks of the open ones.
            let txgs = (Txg(taking.found_txg.0 + 1), Txg(self.txg().0 + TXG_CONCURRENT_STATES));
            let pool = self.pool().clone();
            engine.multihost.begin(&engine).await?;
            let fails = |device: &dyn Device, error: &DeviceError| {
                pool.lacking().note_not_made(device.describe(), txgs, error)
            };
            taking.gate.open(fails).await?;
            engine.multihost.go_on(&engine);
        }
        if taking.gate.is_open() { self.settle_scratch().await } else { Ok(()) }
    }

    /// After a power cut during a RAIDZ expansion, moves its first rows from the scratch area before other
    /// writes go to their place.
    async fn settle_scratch(&mut self) -> Result<()> {
        let last = self.last_uberblock();
        if self.pool().expansion().settle_scratch(&last, self.txg()).await? {
            let raidz_reflow_info = self.pool().expansion().uberblock_info();
            let uberblock = Uberblock { raidz_reflow_info, ..*self.pool().uberblock() };
            self.write_to(self.pool().at(&uberblock));
        }
        Ok(())
    }

    /// The last uberblock on disk.
    pub fn last_uberblock(&self) -> Uberblock {
        *self.engine.on_disk.read().pool.uberblock()
    }

    /// Continues the txg with another vdev tree or version.
    pub fn write_to(&mut self, pool: Pool) {
        self.syncing.pool = pool;
    }

    /// Allocated and free space.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.syncing.allocator
    }

    /// The configuration; report changes with [`SyncContext::config_has_changed`].
    pub fn config(&self) -> impl DerefMut<Target = PoolConfig> + '_ {
        self.engine.config.lock()
    }

    /// Rewrites the configuration in the MOS and all labels.
    pub fn config_has_changed(&mut self) {
        self.config_changed = true;
    }

    /// Adds a new vdev's list of space maps.
    #[boxed]
    pub async fn add_metaslab_array(&self, vdev: VdevId, array: ObjectId) {
        self.engine.space_maps.lock().await.add_vdev(vdev, array);
    }

    /// Frees a removed vdev's space maps.
    ///
    /// # Errors
    /// Damaged MOS.
    #[boxed]
    pub async fn forget_vdev(&mut self, vdev: VdevId) -> Result<()> {
        let engine = self.engine.clone();
        let (array, maps) = engine.space_maps.lock().await.remove_vdev(vdev);
        let edit = self.edit();
        for map in maps {
            SpaceMapEdit::new(&edit, map, 0).free().await?;
        }
        match array {
            Some(array) => edit.destroy(array).await,
            None => Ok(()),
        }
    }

    /// Flushes the space map log in the next txg.
    #[boxed]
    pub async fn flush_space_log(&self) {
        self.engine.space_maps.lock().await.log.flush_all();
    }

    /// Seconds since 1970.
    pub fn now_s(&self) -> u64 {
        self.engine.runtime.unix_time_ns() / 1_000_000_000
    }

    /// Nanoseconds since 1970.
    pub fn now_ns(&self) -> u64 {
        self.engine.runtime.unix_time_ns()
    }

    /// Tunables of scans.
    pub fn scan_settings(&self) -> &ScanSettings {
        self.engine.background.settings()
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.engine.runtime.random_u64()
    }

    /// A dataset's 56-bit id on this machine (`unique_create`).
    pub fn new_fsid(&self) -> Guid {
        Guid((self.random() >> 8).max(1))
    }

    /// The error for a damaged MOS.
    pub fn damaged(&self, why: &str) -> DatasetError {
        self.engine.mos.view().damaged(DMU_POOL_DIRECTORY_OBJECT, why)
    }

    pub(crate) fn free(&mut self, bp: Blkptr) {
        self.dead.push(bp);
    }

    /// Blocks freed at a time.
    pub const FREES_AT_ONCE: usize = 256;

    /// Frees blocks that nothing refers to after this txg.
    ///
    /// # Errors
    /// A block was not allocated.
    #[boxed]
    pub async fn free_all(&self, blocks: &[Blkptr]) -> Result<()> {
        let (pool, tables, mos) = (&self.syncing.pool, &self.engine.tables, self.edit());
        for some in blocks.chunks(Self::FREES_AT_ONCE) {
            match tables.fetch(pool, some).await {
                // `release` finds out which block it is.
                Err(error) if !error.is_damage() => return Err(error),
                _ => {}
            }
            for bp in some {
                match tables.lock().await.release(&mos, pool, bp).await {
                    Ok(true) => self.free_unshared(bp).await?,
                    Ok(false) => {}
                    // Better a leak than a free under another owner.
                    Err(error) if error.is_damage() => {
                        pool.read_errors().note_leak(pool.tree().vdevs().dsize(bp), &error)
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Takes deduplicated blocks with one reference since before a time, in seconds since 1970, out of their
    /// table. Returns their number.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn prune_dedup(&self, blocks: &[Blkptr], before_s: u64) -> Result<u64> {
        let mut pruned = 0;
        for some in blocks.chunks(Self::FREES_AT_ONCE) {
            pruned += self.engine.tables.prune(&self.syncing.pool, some, before_s).await?;
        }
        Ok(pruned)
    }

    pub(crate) async fn free_unshared(&self, bp: &Blkptr) -> Result<()> {
        let (pool, allocator) = (&self.syncing.pool, &self.syncing.allocator);
        self.syncing.cache.forget(bp);
        Ok(pool.free(allocator, bp, self.txg(), &ReadContext::new(Zbookmark::default())).await?)
    }

    pub(crate) fn space_of(&self, bp: &Blkptr) -> SpaceDelta {
        SpaceDelta::of(&self.syncing.pool, bp)
    }
}
