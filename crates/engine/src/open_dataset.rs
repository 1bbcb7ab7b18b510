//! Datasets opened for writing.

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_dataset::Dataset;
use cenote_format::units::{DatasetId, ObjectId};
use cenote_object::objset::RawHead;
use cenote_object::{DatasetError, Edit, LiveObjset, Objset, Result};
use cenote_pool::Waits;

use crate::engine::{Engine, LiveDataset};
use crate::store::policy::StoragePolicy;
use crate::txgs::Hold;
use crate::zil::log::Log;

/// A dataset open for writing.
#[derive(Debug, Clone)]
pub struct OpenDataset {
    objset: LiveObjset,
    log: Option<Log>,
}

impl OpenDataset {
    /// Without an intent log: only a txg makes changes durable.
    pub fn without_log(objset: LiveObjset) -> OpenDataset {
        OpenDataset { objset, log: None }
    }

    /// Edits objects in the held txg.
    pub fn edit(&self, _hold: &Hold) -> Edit {
        self.objset.edit()
    }

    pub(crate) fn with_log(objset: LiveObjset, log: Log) -> OpenDataset {
        OpenDataset { objset, log: Some(log) }
    }

    /// The log for records of operations.
    pub fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// Makes changes to an object, or to all, and to names durable. Not under a hold. See [`crate::zil`].
    ///
    /// # Errors
    /// Neither the log nor a txg could be written.
    #[boxed]
    pub async fn commit(&self, object: Option<ObjectId>) -> Result<()> {
        match &self.log {
            Some(log) => log.commit(&self.objset, object).await,
            None => Err(self.view().damaged(ObjectId(0), "is not open to change")),
        }
    }

    /// Its object set, for use across txgs: [`LiveObjset::edit`] requires a hold.
    pub fn live(&self) -> &LiveObjset {
        &self.objset
    }

    /// Its objects with all changes.
    pub fn view(&self) -> Objset {
        self.objset.view()
    }
}

impl Engine {
    /// Opens a dataset for writing.
    ///
    /// # Errors
    /// No such dataset; it is a snapshot; its key is missing; its log awaits replay.
    #[boxed]
    pub async fn dataset(&self, name: &str) -> Result<OpenDataset> {
        // BehindGate its log and features is not a change by the opener.
        self.ownership().prepare(self.open_dataset(name)).await
    }

    /// Opens a dataset found by name.
    ///
    /// # Errors
    /// Those of [`Engine::dataset`]; [`DatasetError::NextTxg`]: the name was reused.
    #[boxed]
    pub async fn dataset_as(&self, found: &Dataset) -> Result<OpenDataset> {
        let opened = self.dataset(found.name()).await?;
        match opened.live().dataset_id() == found.id() {
            true => Ok(opened),
            false => Err(DatasetError::NextTxg { name: found.name().into() }),
        }
    }

    /// Opens the head that a stream fills; without its key if `raw` is given.
    ///
    /// # Errors
    /// No such dataset; its key is missing.
    #[boxed]
    pub async fn dataset_being_received(
        &self,
        name: &str,
        id: DatasetId,
        raw: Option<Arc<RawHead>>,
    ) -> Result<OpenDataset> {
        let opened = match raw {
            Some(raw) => self.ownership().prepare(self.open_raw(name, raw)).await?,
            None => self.ownership().prepare(self.open_head(name)).await?,
        };
        match opened.live().dataset_id() == id {
            true => Ok(opened),
            false => Err(DatasetError::NextTxg { name: name.into() }),
        }
    }

    async fn open_dataset(&self, name: &str) -> Result<OpenDataset> {
        if self.mos().await?.dataset(name).await?.phys().is_inconsistent() {
            let why = "it is being received, or a receive broke off; `zfs receive -A` gives that up";
            return Err(DatasetError::busy(name, why));
        }
        self.open_head(name).await
    }

    async fn open_raw(&self, name: &str, raw: Arc<RawHead>) -> Result<OpenDataset> {
        let _names = self.0.names.read().await;
        let dataset = self.mos().await?.dataset(name).await?;
        let objset = dataset.objset_head().await?.written_raw(raw);
        let objset = objset.in_view(&objset.pool().waiting(Waits::AsClient));
        let policy = Arc::new(StoragePolicy::raw(&dataset).await?);
        let log = self.log_of_raw(dataset.id(), &policy);
        let mut datasets = self.0.datasets.lock();
        let objset = LiveObjset::counted(objset, self.0.txgs.open(), self.0.throttle.dirty());
        // Replaces the entry from its creation, which had a key; only this receive has it open.
        datasets.insert(dataset.id(), LiveDataset { objset: objset.clone(), policy, log: Some(log.clone()) });
        Ok(OpenDataset::with_log(objset, log))
    }

    async fn open_head(&self, name: &str) -> Result<OpenDataset> {
        // First, as it may wait for a txg.
        self.activate_missing(name).await?;
        let _names = self.0.names.read().await;
        let dataset = self.mos().await?.dataset(name).await?;
        if dataset.is_snapshot() {
            let why = "is a snapshot, which never changes; clone it to change the copy".into();
            return Err(DatasetError::Unsuitable { name: name.into(), why });
        }
        let open = self.0.datasets.lock().get(&dataset.id()).cloned();
        if let Some(LiveDataset { objset, log: Some(log), .. }) = open {
            return unless_log_waits(name, objset, log);
        }
        let objset = dataset.objset().await?;
        let objset = objset.in_view(&objset.pool().waiting(Waits::AsClient));
        let policy = Arc::new(StoragePolicy::of(&dataset).await?);
        let log = self.open_log(dataset.id(), &objset, &policy).await?;
        let mut datasets = self.0.datasets.lock();
        // The txg cannot close before the insertion: freezing takes this lock.
        let fresh = || {
            let objset = LiveObjset::counted(objset, self.0.txgs.open(), self.0.throttle.dirty());
            LiveDataset { objset, policy, log: None }
        };
        let open = datasets.entry(dataset.id()).or_insert_with(fresh);
        // A concurrent open may have been first; its log is equal.
        let log = open.log.get_or_insert(log).clone();
        unless_log_waits(name, open.objset.clone(), log)
    }
}

fn unless_log_waits(name: &str, objset: LiveObjset, log: Log) -> Result<OpenDataset> {
    if log.needs_replay() {
        let why = "has an intent log that has to be replayed first";
        return Err(DatasetError::busy(name, why));
    }
    Ok(OpenDataset::with_log(objset, log))
}
