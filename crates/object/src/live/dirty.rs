//! How much has changed in memory and is not on disk yet: of a layer or a log, and of all that count
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sum over all layers and logs that share it. Cloning it gives another hand on it.
#[derive(Debug, Clone, Default)]
pub struct DirtyTotal(Arc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    bytes: AtomicU64,
    finished_bytes: AtomicU64,
}

impl DirtyTotal {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of blocks that were written from start to end: hardly any of them will change once more, so
    /// there is nothing to be gained from waiting.
    pub fn finished_bytes(&self) -> u64 {
        self.0.finished_bytes.load(Ordering::Relaxed)
    }
}

/// A layer's or a log's part of a sum.
#[derive(Debug)]
pub struct Dirty {
    own: Sum,
    total: DirtyTotal,
}

impl Dirty {
    /// A part of that sum, empty.
    pub fn of(total: &DirtyTotal) -> Dirty {
        Dirty { own: Sum::default(), total: total.clone() }
    }

    /// Bytes of this part.
    pub fn bytes(&self) -> u64 {
        self.own.bytes.load(Ordering::Relaxed)
    }

    /// Something that took `before` bytes takes `after` now. Both sums wrap on the way down and back.
    pub fn replace(&self, before: u64, after: u64) {
        let more = after.wrapping_sub(before);
        self.own.bytes.fetch_add(more, Ordering::Relaxed);
        self.total.0.bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// A block was written from its start to its end.
    pub fn finished(&self, bytes: u64) {
        self.own.finished_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.total.0.finished_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The layer is on disk, or given up: it is not to be changed any more.
    pub fn settle(&self) {
        let settle = |total: &AtomicU64, own: &AtomicU64| {
            total.fetch_sub(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        };
        settle(&self.total.0.bytes, &self.own.bytes);
        settle(&self.total.0.finished_bytes, &self.own.finished_bytes);
    }
}
