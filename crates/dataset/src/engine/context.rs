//! What a task sees and may do: the group that is being written, and the MOS as it leaves it.

use std::sync::Arc;

use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::features::Since;
use cenote_format::objset::{ObjsetPhys, ObjsetType};
use cenote_format::units::{DatasetId, Guid, ObjectId, Txg};

use cenote_runtime::Runtime;

use super::{Inner, LiveDataset};
use crate::error::{DatasetError, Result};
use crate::keys::Keyring;
use crate::live::{Edit, LiveObjset};
use crate::mos::Mos;
use crate::objset::Objset;
use crate::sync::blocks::{Group, Space};
use crate::sync::policy::StoragePolicy;
use crate::zap::Zap;

/// The group that is being written, for those who change the MOS in it.
pub struct SyncContext {
    pub(super) engine: Arc<Inner>,
    pub(crate) group: Group,
    /// Blocks that nothing refers to any more and that are not free yet.
    pub(super) dead: Vec<Blkptr>,
    /// Object sets that tasks have made.
    pub(super) born_objsets: Vec<LiveDataset>,
    /// The configuration has to be written again, in the MOS and in all labels.
    pub(super) config_changed: bool,
    /// A task has failed half-way: the group must not be written.
    pub(super) broken: Option<DatasetError>,
}

impl SyncContext {
    /// The group.
    pub fn txg(&self) -> Txg {
        self.group.txg
    }

    /// How often tasks have changed anything.
    pub(super) fn changes(&self) -> u64 {
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
    pub async fn mos(&self) -> Result<Mos> {
        Mos::at(&self.engine.mos.view(), self.engine.keys.clone()).await
    }

    /// An object that the object directory names.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) async fn directory_object(&self, name: &str) -> Result<ObjectId> {
        let found = self.find_directory_object(name).await?;
        found.ok_or_else(|| self.damaged(&format!("the object directory has no '{name}'")))
    }

    pub(crate) async fn find_directory_object(&self, name: &str) -> Result<Option<ObjectId>> {
        let directory = Zap::open_id(&self.edit().view(), DMU_POOL_DIRECTORY_OBJECT).await?;
        Ok(directory.get_u64(name).await?.map(ObjectId))
    }

    /// One of the directories that OpenZFS keeps for itself below the root.
    pub(crate) async fn special_dir(&self, name: &str) -> Result<ObjectId> {
        let root = self.directory_object(names::ROOT_DATASET).await?;
        let children = self.dir_phys(root).await?.child_dirs_zap;
        let found = Zap::open_id(&self.edit().view(), children).await?.get_u64(name).await?;
        found.map(ObjectId).ok_or_else(|| self.damaged(&format!("there is no directory '{name}'")))
    }

    /// Gives a head that has no content yet an empty object set, which is written in this group.
    pub(crate) async fn make_objset(&mut self, dataset: DatasetId, kind: ObjsetType) -> Result<LiveObjset> {
        self.activate_missing(dataset).await?;
        let counted = self.count_owners(dataset, kind).await?;
        let mut phys = ObjsetPhys::empty(kind);
        phys.flags = counted;
        let policy = StoragePolicy::of(&self.mos().await?.dataset_by_id(dataset).await?).await?;
        let engine = &self.engine;
        let empty = Objset::empty(&self.group.pool, &engine.cache, dataset, policy.key.clone(), phys);
        let objset = LiveObjset::counted(empty, self.group.txg, engine.throttle.dirty());
        self.born_objsets.push(LiveDataset { objset: objset.clone(), policy: Arc::new(policy) });
        Ok(objset)
    }

    /// Whether anybody has a dataset open to change it.
    pub(crate) fn is_open(&self, dataset: DatasetId) -> bool {
        self.engine.datasets.lock().get(&dataset).is_some_and(|open| open.objset.is_shared())
    }

    /// Forgets an opened dataset: it is gone, or has another tree.
    pub(crate) fn close(&self, dataset: DatasetId) {
        self.engine.datasets.lock().remove(&dataset);
    }

    /// Settings have changed: what is written to opened datasets from now on follows them.
    pub(crate) async fn refresh_policies(&mut self) -> Result<()> {
        let open: Vec<DatasetId> = self.engine.datasets.lock().keys().copied().collect();
        for id in open {
            self.activate_missing(id).await?;
            let mos = self.mos().await?;
            let policy = Arc::new(StoragePolicy::of(&mos.dataset_by_id(id).await?).await?);
            if let Some(dataset) = self.engine.datasets.lock().get_mut(&id) {
                dataset.objset.log().inspect(|log| log.set_policy(policy.log));
                dataset.policy = policy;
            }
        }
        Ok(())
    }

    /// Takes back object sets made for a dataset that is not to be.
    pub(crate) fn unmake_objset(&mut self, dataset: DatasetId) {
        self.born_objsets.retain(|born| born.objset.dataset_id() != dataset);
    }

    /// Whether the pool has what came with a version.
    pub(crate) fn has(&self, what: Since) -> bool {
        self.group.pool.has(what)
    }

    /// Refuses what old pools can't do.
    pub(crate) fn require(&self, what: Since, name: &str) -> Result<()> {
        match self.has(what) {
            true => Ok(()),
            false => Err(DatasetError::unsuitable(
                name,
                format!("pool must be upgraded to version {} for this (`zpool upgrade`)", what as u64),
            )),
        }
    }

    /// Keys of encrypted datasets.
    pub(crate) fn keys(&self) -> &Keyring {
        &self.engine.keys
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.engine.runtime
    }

    /// Seconds since 1970.
    pub(crate) fn now_s(&self) -> u64 {
        self.engine.runtime.unix_time_ns() / 1_000_000_000
    }

    pub(crate) fn random(&self) -> u64 {
        self.engine.runtime.random_u64()
    }

    /// 56 bits that name a dataset on this machine (`unique_create`).
    pub(crate) fn new_fsid(&self) -> Guid {
        Guid((self.random() >> 8).max(1))
    }

    pub(crate) fn damaged(&self, why: &str) -> DatasetError {
        self.engine.mos.view().damaged(DMU_POOL_DIRECTORY_OBJECT, why)
    }

    /// Nothing refers to a block any more.
    pub(crate) fn free(&mut self, bp: Blkptr) {
        self.dead.push(bp);
    }

    /// What a block takes.
    pub(crate) fn space_of(&self, bp: &Blkptr) -> Space {
        Space::of(&self.group.pool, bp)
    }
}
