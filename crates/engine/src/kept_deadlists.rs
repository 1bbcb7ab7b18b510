//! Deadlists that a sync task keeps opened.

use std::collections::BTreeMap;

use cenote_format::units::ObjectId;
use cenote_object::deadlist::PutAside;

/// Deadlists that are kept opened.
#[derive(Default)]
pub(crate) struct KeptDeadlists {
    pub(crate) is_kept: bool,
    pub(crate) aside: BTreeMap<ObjectId, PutAside>,
}
