//! Deadlists that a sync task keeps open.

use std::collections::BTreeMap;

use cenote_format::units::ObjectId;
use cenote_object::Result;
use cenote_object::deadlist::PutAside;
use cenote_runtime::AbortOnDrop;

/// Most keys in open deadlists, about: 48 bytes each.
const KEYS_MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct KeptDeadlists {
    pub(crate) is_kept: bool,
    aside: BTreeMap<ObjectId, PutAside>,
    /// Keys of `aside`.
    key_count: usize,
    /// Opened ahead.
    pub(crate) ahead: BTreeMap<ObjectId, AbortOnDrop<Result<PutAside>>>,
}

impl KeptDeadlists {
    pub(crate) fn is_open(&self, id: ObjectId) -> bool {
        self.aside.contains_key(&id) || self.ahead.contains_key(&id)
    }

    /// Returns those that are too many.
    pub(crate) fn insert(&mut self, id: ObjectId, aside: PutAside) -> BTreeMap<ObjectId, PutAside> {
        self.key_count += aside.key_count();
        self.aside.insert(id, aside);
        if self.key_count > KEYS_MAX { self.take_all() } else { BTreeMap::new() }
    }

    pub(crate) fn take(&mut self, id: ObjectId) -> Option<PutAside> {
        let aside = self.aside.remove(&id)?;
        self.key_count -= aside.key_count();
        Some(aside)
    }

    pub(crate) fn take_all(&mut self) -> BTreeMap<ObjectId, PutAside> {
        self.key_count = 0;
        std::mem::take(&mut self.aside)
    }
}
