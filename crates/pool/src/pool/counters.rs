//! Counters of the leaves: errors, operations and bytes, queues.
//!
//! Source: OpenZFS `vdev_stat_t`, `vdev_stat_ex_t`.

use super::tree::Tree;
use crate::health::ErrorCounts;
use crate::leaf_io::LeafIoTable;
use crate::vdev::queue::{ClassLoad, IoClass, Moved};
use cenote_format::units::Guid;
use std::sync::Arc;

/// Counters of a pool's leaves.
#[derive(Clone, Copy)]
pub struct Counters<'a>(pub(super) &'a Tree);

impl Counters<'_> {
    /// Error counts of each leaf with a device.
    pub fn errors(&self) -> Vec<(Guid, ErrorCounts)> {
        self.0.vdevs().leaves().iter().map(|leaf| (leaf.guid, leaf.errors())).collect()
    }

    /// Slow operations of each leaf with a device (`zio_slow_io_ms`).
    pub fn slow_ios(&self) -> Vec<(Guid, u64)> {
        self.0.vdevs().leaves().iter().map(|leaf| (leaf.guid, leaf.slow_ios())).collect()
    }

    /// Resets the errors of one leaf, or of all.
    pub fn clear(&self, only: Option<Guid>) {
        let vdevs = self.0.vdevs();
        let leaves = vdevs.leaves().iter().filter(|leaf| only.is_none_or(|only| only == leaf.guid));
        leaves.for_each(|leaf| leaf.clear_errors());
    }

    /// Load of each leaf, by [`IoClass::ALL`].
    pub fn loads(&self) -> Vec<(Guid, [ClassLoad; IoClass::ALL.len()])> {
        self.0.vdevs().leaves().iter().map(|leaf| (leaf.guid, leaf.load())).collect()
    }

    /// Reads and writes sent to all devices.
    pub fn moved(&self) -> [Moved; 2] {
        let mut sum = [Moved::default(); 2];
        for leaf in self.0.vdevs().leaves() {
            for (sum, moved) in sum.iter_mut().zip(leaf.moved()) {
                sum.operations += moved.operations;
                sum.bytes += moved.bytes;
            }
        }
        sum
    }

    /// Counters and fault switches, if the pool was opened for good.
    pub fn leaf_io(&self) -> Option<Arc<LeafIoTable>> {
        self.0.found().taps.clone()
    }
}
