//! Handles on open datasets: one per dataset, shared by all users.
//!
//! Idea: all users must share the locks, tables and options of a file system or volume, so opening a dataset
//! asks here first. The engine holds a handle weakly, and tells it only that settings changed.
//!
//! Locking: an opener holds the dataset's lock in `opening`, so that it is opened once; opening may wait for
//! a txg. `table` is locked for one access, also by tasks. A task that changes settings of a dataset being
//! opened sets a flag, because the opener may have read the old ones.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cenote_dataset::{Dataset, Mos};
use cenote_format::units::DatasetId;
use cenote_object::{DatasetError, Result};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::engine::Engine;

/// State shared by users of a dataset.
pub trait Handle: Any + Send + Sync {
    /// Follows changed settings of the dataset or one above it.
    fn follow_settings<'a>(&'a self, mos: &'a Mos, dataset: &'a Dataset) -> BoxFuture<'a, Result<()>>;
}

#[derive(Default)]
pub(crate) struct Handles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: BTreeMap<DatasetId, Weak<dyn Handle>>,
    opening: BTreeMap<DatasetId, Opening>,
}

#[derive(Default)]
struct Opening {
    alone: Arc<tokio::sync::Mutex<()>>,
    users: usize,
    /// Whether settings have changed since the opening began.
    has_changed: bool,
}

impl Table {
    fn of(&self, dataset: DatasetId) -> Option<Arc<dyn Handle>> {
        self.open.get(&dataset).and_then(Weak::upgrade)
    }
}

impl Handles {
    pub(crate) fn to_follow(&self, dataset: DatasetId) -> Option<Arc<dyn Handle>> {
        let mut table = self.table.lock();
        if let Some(opening) = table.opening.get_mut(&dataset) {
            opening.has_changed = true;
        }
        table.of(dataset)
    }

    fn wants(&self, dataset: DatasetId) -> Wants<'_> {
        let mut table = self.table.lock();
        let opening = table.opening.entry(dataset).or_default();
        opening.users += 1;
        Wants { handles: self, dataset, alone: opening.alone.clone() }
    }
}

struct Wants<'a> {
    handles: &'a Handles,
    dataset: DatasetId,
    alone: Arc<tokio::sync::Mutex<()>>,
}

impl Wants<'_> {
    /// Without one, changes of settings are noted from here on.
    fn known(&self) -> Option<Arc<dyn Handle>> {
        let mut table = self.handles.table.lock();
        if let Some(opening) = table.opening.get_mut(&self.dataset) {
            opening.has_changed = false;
        }
        table.of(self.dataset)
    }

    /// Returns whether settings have changed meanwhile.
    fn opened(&self, handle: &Arc<dyn Handle>) -> bool {
        let mut table = self.handles.table.lock();
        table.open.retain(|_, handle| handle.strong_count() > 0);
        table.open.insert(self.dataset, Arc::downgrade(handle));
        table.opening.get(&self.dataset).is_some_and(|opening| opening.has_changed)
    }
}

impl Drop for Wants<'_> {
    fn drop(&mut self) {
        let mut table = self.handles.table.lock();
        if let std::collections::btree_map::Entry::Occupied(mut opening) = table.opening.entry(self.dataset) {
            opening.get_mut().users -= 1;
            if opening.get().users == 0 {
                opening.remove();
            }
        }
    }
}

impl Engine {
    /// The handle on a dataset, made by `open` if missing.
    ///
    /// # Errors
    /// Those of `open`; the settings are unreadable.
    pub async fn handle<T: Handle, E: From<DatasetError>>(
        &self,
        dataset: DatasetId,
        open: impl AsyncFnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let wants = self.0.handles.wants(dataset);
        let _alone = wants.alone.lock().await;
        let known = wants.known().map(|known| known as Arc<dyn Any + Send + Sync>);
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return Ok(known);
        }
        let opened = open().await?;
        let shared: Arc<dyn Handle> = opened.clone();
        if wants.opened(&shared) {
            // No task runs while this is held.
            let _names = self.0.names.read().await;
            let mos = self.mos().await?;
            opened.follow_settings(&mos, &mos.dataset_by_id(dataset).await?).await?;
        }
        Ok(opened)
    }
}
