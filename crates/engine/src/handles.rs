//! Handles on open datasets: one a dataset, shared by all who use it.
//!
//! Idea: what a file system or volume keeps in memory (locks, tables, options) protects nothing if two users
//! each have their own. So whoever opens one asks here first. The engine does not know what a handle is; it
//! holds it weakly, and it is closed with its last user.
//!
//! Locking: one lock for all handles, held while one is opened, so that a dataset is opened once. Nothing
//! else is locked meanwhile that could wait for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cenote_format::units::DatasetId;

use crate::engine::Engine;

/// All handles that are open.
#[derive(Default)]
pub(crate) struct Handles(tokio::sync::Mutex<BTreeMap<DatasetId, Weak<dyn Any + Send + Sync>>>);

impl Engine {
    /// The handle on a dataset; `open` makes it if there is none.
    ///
    /// # Errors
    /// Those of `open`.
    pub async fn handle<T: Any + Send + Sync, E>(
        &self,
        dataset: DatasetId,
        open: impl AsyncFnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let mut handles = self.0.handles.0.lock().await;
        let known = handles.get(&dataset).and_then(Weak::upgrade);
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return Ok(known);
        }
        let opened = open().await?;
        handles.retain(|_, handle| handle.strong_count() > 0);
        let shared: Arc<dyn Any + Send + Sync> = opened.clone();
        handles.insert(dataset, Arc::downgrade(&shared));
        Ok(opened)
    }
}
