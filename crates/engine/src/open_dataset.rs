//! Datasets opened to change their objects.

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

/// A dataset of a pool that takes changes.
#[derive(Debug, Clone)]
pub struct OpenDataset {
    objset: LiveObjset,
    log: Option<Log>,
}

impl OpenDataset {
    /// One without an intent log: nothing that is done to it can be committed but by a txg.
    pub fn without_log(objset: LiveObjset) -> OpenDataset {
        OpenDataset { objset, log: None }
    }

    /// A hand on its objects in the txg that is held open.
    pub fn edit(&self, _hold: &Hold) -> Edit {
        self.objset.edit()
    }

    pub(crate) fn with_log(objset: LiveObjset, log: Log) -> OpenDataset {
        OpenDataset { objset, log: Some(log) }
    }

    /// Where operations leave records of what they did, if they should.
    pub fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// Makes durable what was done to an object, or to all, and all that happened to names. Not under a hold.
    /// See [`crate::zil`].
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

    /// Its object set, for those that keep a hand on it over txgs: changes go through [`LiveObjset::edit`]
    /// under a hold.
    pub fn live(&self) -> &LiveObjset {
        &self.objset
    }

    /// Its objects as they are now.
    pub fn view(&self) -> Objset {
        self.objset.view()
    }
}

impl Engine {
    /// Opens a dataset to change its objects.
    ///
    /// # Errors
    /// There is none of that name, it is a snapshot, its key is missing, or its log waits to be replayed.
    #[boxed]
    pub async fn dataset(&self, name: &str) -> Result<OpenDataset> {
        // What its log and its features lack is no change of whoever opens it.
        self.prepare(self.open_dataset(name)).await
    }

    /// The same for a dataset that was found by its name.
    ///
    /// # Errors
    /// Those of [`Engine::dataset`]; [`DatasetError::NextTxg`]: another dataset has that name by now.
    #[boxed]
    pub async fn dataset_as(&self, found: &Dataset) -> Result<OpenDataset> {
        let opened = self.dataset(found.name()).await?;
        match opened.live().dataset_id() == found.id() {
            true => Ok(opened),
            false => Err(DatasetError::NextTxg { name: found.name().into() }),
        }
    }

    /// Opens the head that a stream fills; without its key if that is `raw`.
    ///
    /// # Errors
    /// There is none of that name and number, or its key is missing.
    #[boxed]
    pub async fn dataset_being_received(
        &self,
        name: &str,
        id: DatasetId,
        raw: Option<Arc<RawHead>>,
    ) -> Result<OpenDataset> {
        let opened = match raw {
            Some(raw) => self.prepare(self.open_raw(name, raw)).await?,
            None => self.prepare(self.open_head(name)).await?,
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
        // As it was made, it was to be written with a key, and nobody has it open but this receive.
        datasets.insert(dataset.id(), LiveDataset { objset: objset.clone(), policy, log: Some(log.clone()) });
        Ok(OpenDataset::with_log(objset, log))
    }

    async fn open_head(&self, name: &str) -> Result<OpenDataset> {
        // First of all, as it may wait for a txg.
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
        // The txg cannot close between this and the insertion: it takes the same lock to freeze.
        let fresh = || {
            let objset = LiveObjset::counted(objset, self.0.txgs.open(), self.0.throttle.dirty());
            LiveDataset { objset, policy, log: None }
        };
        let open = datasets.entry(dataset.id()).or_insert_with(fresh);
        // Another that opened it at the same time may have been faster: what both found is the same.
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
