//! What a task sees and may do: the txg that is being written, and the MOS as it leaves it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_boxed::boxed;
use cenote_dataset::keys::Keyring;
use cenote_dataset::{Credentials, Mos};
use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_format::features::Since;
use cenote_format::label::PoolConfig;
use cenote_format::objset::{ObjsetPhys, ObjsetType};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{DatasetId, Guid, ObjectId, Txg, VdevId};
use cenote_object::{DatasetError, Edit, LiveObjset, Objset, Result, Zap};
use cenote_pool::alloc::Allocator;
use cenote_pool::{Pool, PoolError, ReadContext, Zbookmark};
use cenote_runtime::Runtime;
use std::ops::DerefMut;

use crate::background::ScanSettings;
use crate::engine::{LiveDataset, Shared, User};
use crate::kept_deadlists::KeptDeadlists;
use crate::space::map_edit::SpaceMapEdit;
use crate::store::policy::StoragePolicy;
use crate::store::space_delta::SpaceDelta;
use crate::store::txg::SyncingTxg;
use crate::taking::{HELD_BYTES_MAX, refuse_changed};

/// The txg that is being written, for those who change the MOS in it.
pub struct SyncContext {
    pub(crate) engine: Arc<Shared>,
    pub(crate) syncing: SyncingTxg,
    /// Blocks that nothing refers to any more and that are not free yet.
    pub(crate) dead: Vec<Blkptr>,
    /// Object sets that tasks have made.
    pub(crate) born_objsets: Vec<LiveDataset>,
    /// The configuration has to be written again, in the MOS and in all labels.
    pub(crate) config_changed: bool,
    /// Features were enabled, or have got their first user.
    pub(crate) features_changed: bool,
    /// Deadlists that a task keeps opened.
    pub(crate) deadlists: parking_lot::Mutex<KeptDeadlists>,
    /// Something of the txg has been written, or is about to be.
    pub(crate) has_begun: bool,
    /// The txg is written although nothing has changed: time passes in txgs.
    pub(crate) is_forced: bool,
    /// A task has failed half-way: the txg must not be written.
    pub(crate) broken: Option<DatasetError>,
    /// For whom the task runs.
    pub(crate) actor: User,
}

impl SyncContext {
    /// The txg.
    pub fn txg(&self) -> Txg {
        self.syncing.txg
    }

    /// The user for whom the task runs ([`crate::Engine::acting_for`]).
    pub fn uid(&self) -> u32 {
        self.actor.uid
    }

    /// The same, if the user is none of the administrators.
    pub fn delegated(&self) -> Option<&Credentials> {
        self.actor.delegated.as_deref()
    }

    /// How often tasks have changed anything.
    pub(crate) fn changes(&self) -> u64 {
        self.edit().changes() + self.dead.len() as u64
    }

    /// A hand on the MOS.
    pub fn edit(&self) -> Edit {
        self.engine.mos.edit()
    }

    /// The MOS with all changes so far.
    ///
    /// # Errors
    /// Its directory is damaged.
    #[boxed]
    pub async fn mos(&self) -> Result<Mos> {
        Mos::at(&self.engine.mos.view(), self.engine.keys.clone(), self.syncing.pool.config()).await
    }

    /// An object that the object directory names.
    ///
    /// # Errors
    /// There is none of that name.
    #[boxed]
    pub async fn directory_object(&self, name: &str) -> Result<ObjectId> {
        let found = self.find_directory_object(name).await?;
        found.ok_or_else(|| self.damaged(&format!("the object directory has no '{name}'")))
    }

    /// An object that the object directory names, if it does.
    #[boxed]
    pub async fn find_directory_object(&self, name: &str) -> Result<Option<ObjectId>> {
        let directory = Zap::open_id(&self.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?;
        Ok(directory.get_u64(name).await?.map(ObjectId))
    }

    /// Gives a head that has no content yet an empty object set, which is written in this txg.
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

    /// Settings have changed: opened datasets follow them from now on, and so do the handles on them.
    #[boxed]
    pub async fn refresh_policies(&mut self) -> Result<()> {
        let open: Vec<DatasetId> = self.engine.datasets.lock().keys().copied().collect();
        for id in open {
            self.activate_missing(id).await?;
            let mos = self.mos().await?;
            let dataset = mos.dataset_by_id(id).await?;
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
        }
        Ok(())
    }

    /// Takes back object sets made for a dataset that is not to be.
    pub fn unmake_objset(&mut self, dataset: DatasetId) {
        self.born_objsets.retain(|born| born.objset.dataset_id() != dataset);
    }

    /// Whether the pool has what came with a version.
    pub fn has(&self, what: Since) -> bool {
        self.syncing.pool.has(what)
    }

    /// Refuses what old pools can't do.
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

    /// The pool, as this txg leaves its tree of vdevs.
    pub fn pool(&self) -> &Pool {
        &self.syncing.pool
    }

    /// Before anything of this txg is written, or a task whose checks are done changes what is not the txg's
    /// alone: the pool is marked as in use, if that was not done yet.
    ///
    /// # Errors
    /// Somebody else has taken the pool; a device fails.
    #[boxed]
    pub async fn begin_writing(&mut self) -> Result<()> {
        self.has_begun = true;
        let engine = self.engine.clone();
        let Some(taking) = engine.told.taking.get() else { return self.settle_scratch().await };
        let mark = taking.mark.lock().take();
        if let Some(mark) = mark {
            // As it is on disk: a task may have changed the vdevs of the txg's.
            let pool = engine.on_disk.read().pool.clone();
            refuse_changed(&pool, taking).await?;
            pool.write_config(&mark).await?;
            self.config_changed = true;
        }
        let may_wait =
            taking.preparing.load(Ordering::Acquire) > 0 && taking.gate.held_bytes() < HELD_BYTES_MAX;
        if !taking.gate.is_open() && !may_wait {
            taking.gate.open().await.map_err(PoolError::from)?;
        }
        if taking.gate.is_open() { self.settle_scratch().await } else { Ok(()) }
    }

    /// The power failed while an expansion had its first rows in the scratch area: they come to where they
    /// belong, before anything is written that would have to go there, too.
    async fn settle_scratch(&mut self) -> Result<()> {
        let last = self.last_uberblock();
        if self.pool().settle_scratch(&last, self.txg()).await? {
            let raidz_reflow_info = self.pool().reflow_info();
            let uberblock = Uberblock { raidz_reflow_info, ..*self.pool().uberblock() };
            self.write_to(self.pool().at(&uberblock));
        }
        Ok(())
    }

    /// The last one on disk.
    pub fn last_uberblock(&self) -> Uberblock {
        *self.engine.on_disk.read().pool.uberblock()
    }

    /// From here on the txg is written to `pool`: another tree of vdevs, or another version.
    pub fn write_to(&mut self, pool: Pool) {
        self.syncing.pool = pool;
    }

    /// What of the pool is allocated.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.syncing.allocator
    }

    /// The pool's configuration, to look at or to change; one that has changed is written after
    /// [`SyncContext::config_has_changed`].
    pub fn config(&self) -> impl DerefMut<Target = PoolConfig> + '_ {
        self.engine.config.lock()
    }

    /// The configuration has to be written again, in the MOS and in all labels.
    pub fn config_has_changed(&mut self) {
        self.config_changed = true;
    }

    /// A new vdev's space maps are listed in `array`.
    #[boxed]
    pub async fn add_metaslab_array(&self, vdev: VdevId, array: ObjectId) {
        self.engine.space_maps.lock().await.add_vdev(vdev, array);
    }

    /// A vdev is gone, and all that was on it: its space maps are given up.
    ///
    /// # Errors
    /// The MOS is damaged.
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

    /// The next txg brings all metaslabs' own space maps up to date.
    #[boxed]
    pub async fn flush_space_log(&self) {
        self.engine.space_maps.lock().await.log.flush_all();
    }

    /// Seconds since 1970.
    pub fn now_s(&self) -> u64 {
        self.engine.runtime.unix_time_ns() / 1_000_000_000
    }

    /// The tunables of scans.
    pub fn scan_settings(&self) -> &ScanSettings {
        self.engine.background.settings()
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.engine.runtime.random_u64()
    }

    /// 56 bits that name a dataset on this machine (`unique_create`).
    pub fn new_fsid(&self) -> Guid {
        Guid((self.random() >> 8).max(1))
    }

    /// The MOS makes no sense, and why.
    pub fn damaged(&self, why: &str) -> DatasetError {
        self.engine.mos.view().damaged(DMU_POOL_DIRECTORY_OBJECT, why)
    }

    /// Nothing refers to a block any more.
    pub(crate) fn free(&mut self, bp: Blkptr) {
        self.dead.push(bp);
    }

    /// Of blocks that are freed, those whose entries in tables are read at once.
    pub const FREES_AT_ONCE: usize = 256;

    /// Frees blocks in this txg. Nothing may refer to them when the txg is on disk.
    ///
    /// # Errors
    /// A block was not allocated.
    #[boxed]
    pub async fn free_all(&self, blocks: &[Blkptr]) -> Result<()> {
        let (pool, tables, mos) = (&self.syncing.pool, &self.engine.tables, self.edit());
        for some in blocks.chunks(Self::FREES_AT_ONCE) {
            match tables.fetch(pool, some).await {
                // Which block it is about shows below.
                Err(error) if !error.is_damage() => return Err(error),
                _ => {}
            }
            for bp in some {
                match tables.lock().await.release(&mos, pool, bp).await {
                    Ok(true) => self.free_unshared(bp).await?,
                    Ok(false) => {}
                    // Somebody else may have it: a leak is less than a loss.
                    Err(error) if error.is_damage() => pool.note_leak(pool.vdevs().dsize(bp), &error),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn free_unshared(&self, bp: &Blkptr) -> Result<()> {
        let (pool, allocator) = (&self.syncing.pool, &self.syncing.allocator);
        self.syncing.cache.forget(bp);
        Ok(pool.free(allocator, bp, self.txg(), &ReadContext::new(Zbookmark::default())).await?)
    }

    /// What a block takes.
    pub(crate) fn space_of(&self, bp: &Blkptr) -> SpaceDelta {
        SpaceDelta::of(&self.syncing.pool, bp)
    }
}
