//! Deadlists that a sync task keeps open.

use std::collections::BTreeMap;

use cenote_format::units::ObjectId;
use cenote_object::Result;
use cenote_object::deadlist::PutAside;
use cenote_runtime::AbortOnDrop;

#[derive(Default)]
pub(crate) struct KeptDeadlists {
    pub(crate) is_kept: bool,
    pub(crate) aside: BTreeMap<ObjectId, PutAside>,
    /// Opened ahead.
    pub(crate) ahead: BTreeMap<ObjectId, AbortOnDrop<Result<PutAside>>>,
}
