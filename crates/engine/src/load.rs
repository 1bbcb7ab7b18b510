//! The load of a pool: dirty data and their limit, traffic, counters.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_format::units::DatasetId;
use cenote_object::Traffic;

use crate::engine::Engine;
use crate::kstat::Kstats;

/// A pool's load.
#[derive(Clone, Copy)]
pub struct Load<'a>(&'a Engine);

impl Engine {
    /// Dirty data, traffic, counters.
    pub fn load(&self) -> Load<'_> {
        Load(self)
    }
}

impl<'a> Load<'a> {
    /// Limits dirty data (`zfs_dirty_data_max`), including that of the syncing txg.
    pub fn set_dirty_bytes_max(&self, bytes: u64) {
        self.0.0.throttle.max_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Statistics.
    pub fn kstats(&self) -> &'a Kstats {
        &self.0.0.kstats
    }

    /// Traffic of each open dataset.
    pub fn traffic(&self) -> Vec<(DatasetId, Arc<Traffic>)> {
        let datasets = self.0.0.datasets.lock();
        datasets.iter().map(|(id, dataset)| (*id, dataset.objset.traffic())).collect()
    }

    /// Bytes changed and not yet on disk.
    pub fn dirty_bytes(&self) -> u64 {
        self.0.0.throttle.dirty.bytes()
    }
}
