//! Uses of snapshots, and the proofs that a head or a snapshot is not in use: values that know no engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_format::units::{DatasetId, Txg};
use parking_lot::Mutex;

/// Proof that nobody uses a head and that nothing of it belongs to a later txg than the one being written.
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

    /// The txg that is being written: nothing of the head is of a later one.
    pub(crate) fn txg(&self) -> Txg {
        self.txg
    }
}

/// A snapshot that may be looked into for as long as it is there. Cloning it costs one atomic increment.
#[derive(Debug, Clone)]
pub struct Snapshot(pub(super) Arc<Mutex<SnapshotState>>);

#[derive(Debug, Default)]
pub(super) struct SnapshotState {
    pub(super) holds: usize,
    /// The last txg in which an object set got blocks of it.
    pub(super) lent: Txg,
    pub(super) is_withdrawn: bool,
}

/// A use of a snapshot: until this is dropped, the snapshot is not destroyed.
#[derive(Debug)]
pub struct SnapshotHold(Snapshot);

impl Snapshot {
    /// Keeps it from being destroyed; `None` if it has been, or is about to be.
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
    /// In txg `txg`, which the caller holds open, an object set gets blocks of the snapshot.
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

/// Snapshots that somebody looks into, or did a moment ago. What they have lent outlives those who borrowed
/// it, until it is on disk.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<DatasetId, Snapshot>>);

impl Snapshots {
    pub(super) fn known(&self, id: DatasetId) -> Option<Snapshot> {
        self.0.lock().get(&id).cloned()
    }

    /// `synced` is the last txg on disk.
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

/// A snapshot that nobody uses, and that nobody can hold until this is dropped.
#[derive(Debug)]
pub struct Withdrawn {
    pub(super) id: DatasetId,
    /// None if nobody has looked into it.
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
