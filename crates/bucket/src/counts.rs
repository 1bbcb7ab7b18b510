//! Requests to a store, counted for metrics.
//!
//! Locking: relaxed atomics; one mutex for the table of disks, held for one look or change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Disks that this process has used, by name.
static DISKS: Mutex<BTreeMap<Arc<str>, Arc<Counts>>> = Mutex::new(BTreeMap::new());

/// A kind of request, as stores charge for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // S3's
pub enum Kind {
    Put,
    Get,
    List,
    Delete,
}

impl Kind {
    /// All kinds, in the order of the discriminants.
    pub const ALL: [Kind; 4] = [Kind::Put, Kind::Get, Kind::List, Kind::Delete];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::List => "list",
            Kind::Delete => "delete",
        }
    }

    /// Price of a million requests in US dollars: Amazon S3 Standard, us-east-1, 2025.
    pub fn usd_per_million(self) -> f64 {
        match self {
            Kind::Put | Kind::List => 5.0,
            Kind::Get => 0.4,
            Kind::Delete => 0.0,
        }
    }
}

/// Counters of one disk.
#[derive(Debug, Default)]
pub struct Counts {
    requests: [AtomicU64; 4],
    /// Requests that failed and were repeated.
    repeated: AtomicU64,
    /// Reads sent twice, because the first was slow.
    hedged: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

/// The counters at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Requests {
    /// Requests by kind, repetitions included.
    pub by_kind: [u64; 4],
    /// Requests that failed and were repeated.
    pub repeated: u64,
    /// Reads sent twice, because the first was slow.
    pub hedged: u64,
    /// Bytes of created objects.
    pub sent_bytes: u64,
    /// Bytes read.
    pub received_bytes: u64,
}

impl Requests {
    /// Requests of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.by_kind[kind as usize]
    }

    /// Cost of the requests in US dollars, at Amazon's prices.
    pub fn usd(&self) -> f64 {
        Kind::ALL.iter().map(|kind| self.of(*kind) as f64 * kind.usd_per_million() / 1e6).sum()
    }
}

impl Counts {
    /// The counters of a disk, whichever opening of it they are for.
    pub fn of_disk(name: &Arc<str>) -> Arc<Counts> {
        DISKS.lock().entry(name.clone()).or_default().clone()
    }

    /// All disks of [`Counts::of_disk`], with their counters.
    pub fn of_disks() -> Vec<(Arc<str>, Requests)> {
        DISKS.lock().iter().map(|(name, counts)| (name.clone(), counts.now())).collect()
    }

    pub(crate) fn ask(&self, kind: Kind) {
        self.requests[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn repeat(&self) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hedge(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counters now.
    pub fn now(&self) -> Requests {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            by_kind: Kind::ALL.map(|kind| get(&self.requests[kind as usize])),
            repeated: get(&self.repeated),
            hedged: get(&self.hedged),
            sent_bytes: get(&self.sent_bytes),
            received_bytes: get(&self.received_bytes),
        }
    }
}
