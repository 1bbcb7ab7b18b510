//! Initial properties and contents of a new dataset.

use cenote_dataset::Value;
use cenote_object::{LiveObjset, Result};
use futures::future::BoxFuture;

/// Properties by name, as stored.
pub type Settings = Vec<(String, Value)>;

/// Fills the object set of a new file system or volume, in the txg that creates it.
pub type Fill = Box<dyn FnOnce(LiveObjset) -> BoxFuture<'static, Result<()>> + Send>;
