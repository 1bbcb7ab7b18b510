//! Snapshot holds, and proofs that a head or snapshot is unused; independent of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_format::units::{DatasetId, Txg};
use parking_lot::Mutex;

/// Proof that a head is unused and has nothing of a later txg than the syncing one.
#[derive(Debug)]
pub struct Quiet {
    pub(super) dataset: DatasetId,
    pub(super) txg: Txg,
}

impl Quiet {
    /// The head.
    pub fn dataset(&self) -> DatasetId {
        self.dataset
    }

    pub(crate) fn txg(&self) -> Txg {
        self.txg
    }
}

/// A snapshot that can be held; cheap to clone.
#[derive(Debug, Clone)]
pub struct Snapshot(pub(super) Arc<Mutex<SnapshotState>>);

#[derive(Debug, Default)]
pub(super) struct SnapshotState {
    pub(super) holds: usize,
    pub(super) lent: Txg,
    pub(super) is_withdrawn: bool,
}

/// Keeps a snapshot from being destroyed until dropped.
#[derive(Debug)]
pub struct SnapshotHold(Snapshot);

impl Snapshot {
    /// Takes a hold; `None`: the snapshot is destroyed, or about to be.
    pub fn hold(&self) -> Option<SnapshotHold> {
        let mut state = self.0.lock();
        if state.is_withdrawn {
            return None;
        }
        state.holds += 1;
        Some(SnapshotHold(self.clone()))
    }
}

impl SnapshotHold {
    /// Notes a loan of blocks in the held txg `txg`.
    pub fn lend(&self, txg: Txg) {
        let mut state = self.0.0.lock();
        state.lent = state.lent.max(txg);
    }
}

impl Clone for SnapshotHold {
    fn clone(&self) -> SnapshotHold {
        self.0.0.lock().holds += 1;
        SnapshotHold(self.0.clone())
    }
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        self.0.0.lock().holds -= 1;
    }
}

/// Snapshots in use, now or recently; kept until the blocks lent from them are on disk.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<DatasetId, Snapshot>>);

impl Snapshots {
    pub(super) fn known(&self, id: DatasetId) -> Option<Snapshot> {
        self.0.lock().get(&id).cloned()
    }

    pub(super) fn of(&self, id: DatasetId, synced: Txg) -> Snapshot {
        let mut table = self.0.lock();
        if let Some(known) = table.get(&id) {
            return known.clone();
        }
        table.retain(|_, snapshot| Arc::strong_count(&snapshot.0) > 1 || snapshot.0.lock().lent > synced);
        table.entry(id).or_insert_with(|| Snapshot(Arc::default())).clone()
    }

    pub(super) fn forget(&self, id: DatasetId) {
        self.0.lock().remove(&id);
    }
}

/// An unused snapshot that refuses holds until this is dropped.
#[derive(Debug)]
pub struct Withdrawn {
    pub(super) id: DatasetId,
    /// `None`: never held.
    pub(super) snapshot: Option<Snapshot>,
}

impl Withdrawn {
    /// The snapshot.
    pub fn id(&self) -> DatasetId {
        self.id
    }
}

impl Drop for Withdrawn {
    fn drop(&mut self) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.0.lock().is_withdrawn = false;
        }
    }
}
