//! Deadlists that a sync task keeps opened.

use std::collections::BTreeMap;

use cenote_format::units::ObjectId;
use cenote_object::Result;
use cenote_object::deadlist::PutAside;
use cenote_runtime::AbortOnDrop;

/// Deadlists that are kept opened.
#[derive(Default)]
pub(crate) struct KeptDeadlists {
    pub(crate) is_kept: bool,
    pub(crate) aside: BTreeMap<ObjectId, PutAside>,
    /// Being opened, for whoever opens them next.
    pub(crate) ahead: BTreeMap<ObjectId, AbortOnDrop<Result<PutAside>>>,
}
