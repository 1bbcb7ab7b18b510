//! How much has changed in memory and is not on disk yet: of a layer, and of all layers that count together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sum over all layers of the sets that share it. Cloning it gives another hand on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirtyTotal(Arc<AtomicU64>);

impl DirtyTotal {
    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A layer's part of a sum.
#[derive(Debug)]
pub(crate) struct Dirty {
    own: AtomicU64,
    total: DirtyTotal,
}

impl Dirty {
    pub(crate) fn of(total: &DirtyTotal) -> Dirty {
        Dirty { own: AtomicU64::new(0), total: total.clone() }
    }

    /// Bytes of the layer.
    pub(crate) fn bytes(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Something that took `before` bytes takes `after` now. Both sums wrap on the way down and back.
    pub(crate) fn replace(&self, before: u64, after: u64) {
        let more = after.wrapping_sub(before);
        self.own.fetch_add(more, Ordering::Relaxed);
        self.total.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The layer is on disk, or given up: it is not to be changed any more.
    pub(crate) fn settle(&self) {
        self.total.0.fetch_sub(self.own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}
