//! Deadlists kept open: by a sync task, and those of heads between txgs.

use std::collections::BTreeMap;

use cenote_format::units::{ObjectId, Txg};
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

/// Most keys of heads' deadlists: 8 bytes each, 48 if they have a list of their own.
const HEAD_KEYS_MAX: usize = 1 << 18;
/// A deadlist unchanged for so many txgs is closed.
const IDLE_TXGS: u64 = 64;

/// Deadlists of changing heads. Each txg adds blocks to them, and looks for the lists among keys that only
/// snapshots change.
#[derive(Default)]
pub(crate) struct HeadDeadlists {
    open: BTreeMap<ObjectId, (Txg, PutAside)>,
    key_count: usize,
    last_txg: Txg,
}

impl HeadDeadlists {
    /// Closes it if there are too many keys.
    pub(crate) fn insert(&mut self, id: ObjectId, aside: PutAside, txg: Txg) {
        if self.last_txg != txg {
            self.last_txg = txg;
            self.open.retain(|_, (changed, _)| changed.0 + IDLE_TXGS >= txg.0);
            self.key_count = self.open.values().map(|(_, aside)| aside.key_count()).sum();
        }
        let key_count = self.key_count + aside.key_count();
        if key_count <= HEAD_KEYS_MAX {
            self.key_count = key_count;
            self.open.insert(id, (txg, aside));
        }
    }

    pub(crate) fn take(&mut self, id: ObjectId) -> Option<PutAside> {
        let (_, aside) = self.open.remove(&id)?;
        self.key_count -= aside.key_count();
        Some(aside)
    }
}
