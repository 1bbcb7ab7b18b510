//! Dirty data of a layer or a log, and the sum over all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sum over all layers and logs that share it.
#[derive(Debug, Clone, Default)]
pub struct DirtyTotal(Arc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    bytes: AtomicU64,
    finished_bytes: AtomicU64,
}

impl DirtyTotal {
    /// Dirty bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of blocks written from start to end: these hardly change again, so waiting gains nothing.
    pub fn finished_bytes(&self) -> u64 {
        self.0.finished_bytes.load(Ordering::Relaxed)
    }
}

/// A layer's or log's part of a sum.
#[derive(Debug)]
pub struct Dirty {
    own: Sum,
    total: DirtyTotal,
}

impl Dirty {
    /// An empty part of `total`.
    pub fn of(total: &DirtyTotal) -> Dirty {
        Dirty { own: Sum::default(), total: total.clone() }
    }

    /// Bytes of this part.
    pub fn bytes(&self) -> u64 {
        self.own.bytes.load(Ordering::Relaxed)
    }

    /// Replaces `before` bytes by `after`.
    pub fn replace(&self, before: u64, after: u64) {
        let more = after.wrapping_sub(before);
        self.own.bytes.fetch_add(more, Ordering::Relaxed);
        self.total.0.bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts a block written from start to end.
    pub fn finished(&self, bytes: u64) {
        self.own.finished_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.total.0.finished_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts this part from the sum.
    pub fn settle(&self) {
        let settle = |total: &AtomicU64, own: &AtomicU64| {
            total.fetch_sub(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        };
        settle(&self.total.0.bytes, &self.own.bytes);
        settle(&self.total.0.finished_bytes, &self.own.finished_bytes);
    }
}
