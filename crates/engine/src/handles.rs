//! Handles on open datasets: one a dataset, shared by all who use it.
//!
//! Idea: what a file system or volume keeps in memory (locks, tables, options) protects nothing if two users
//! each have their own. So whoever opens one asks here first. The engine holds a handle weakly, and it is
//! closed with its last user. All that the engine tells it is that settings have changed.
//!
//! Locking: `opening` is held while a handle is opened, so that a dataset is opened once; opening may wait
//! for a txg. Tasks in a txg look at `known`, which is locked for one look or change.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cenote_dataset::{Dataset, Mos};
use cenote_format::units::DatasetId;
use cenote_object::{DatasetError, Result};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::engine::Engine;

/// What users of a dataset share.
pub trait Handle: Any + Send + Sync {
    /// Settings of the dataset, or of one above it, may have changed: it follows them from now on.
    fn follow_settings<'a>(&'a self, mos: &'a Mos, dataset: &'a Dataset) -> BoxFuture<'a, Result<()>>;
}

/// All handles that are open.
#[derive(Default)]
pub(crate) struct Handles {
    opening: tokio::sync::Mutex<()>,
    known: Mutex<BTreeMap<DatasetId, Weak<dyn Handle>>>,
}

impl Handles {
    /// The handle on a dataset, if it is open.
    pub(crate) fn of(&self, dataset: DatasetId) -> Option<Arc<dyn Handle>> {
        self.known.lock().get(&dataset).and_then(Weak::upgrade)
    }
}

impl Engine {
    /// The handle on a dataset; `open` makes it if there is none.
    ///
    /// # Errors
    /// Those of `open`; the settings can't be read.
    pub async fn handle<T: Handle, E: From<DatasetError>>(
        &self,
        dataset: DatasetId,
        open: impl AsyncFnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let handles = &self.0.handles;
        let _alone = handles.opening.lock().await;
        let known = handles.of(dataset).map(|known| known as Arc<dyn Any + Send + Sync>);
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return Ok(known);
        }
        let opened = open().await?;
        {
            let mut known = handles.known.lock();
            known.retain(|_, handle| handle.strong_count() > 0);
            let shared: Arc<dyn Handle> = opened.clone();
            known.insert(dataset, Arc::downgrade(&shared));
        }
        // A task that has changed settings meanwhile did not find it yet. No task runs while this is held.
        let _names = self.0.names.read().await;
        let mos = self.mos().await?;
        opened.follow_settings(&mos, &mos.dataset_by_id(dataset).await?).await?;
        Ok(opened)
    }
}
