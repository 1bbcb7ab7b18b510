//! The shared state of read-ahead: tunables, counters, and the limit on bytes under way.
//!
//! Idea: each window needs a [`Permit`], which counts its bytes and lets the pool's close wait for the last
//! one. Permits are refused rather than waited for: a block not read ahead is read on demand.
//!
//! Source: OpenZFS `dmu_zfetch.c` (tunables and `zfetchstats`), zfs(4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_pool::{BadSetting, Tunable, Tunables};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const MOST_WINDOWS: usize = 512;
/// The part of the cache for unused read-ahead: 6 %, as in OpenZFS.
const ACTIVE_SHIFT: u32 = 4;

const TUNABLES: [Tunable; 9] = [
    ("zfetch_hole_shift", 2, 0, 63),
    ("zfetch_max_distance", 64 << 20, 0, 1 << 32),
    ("zfetch_max_idistance", 128 << 20, 0, 1 << 32),
    ("zfetch_max_reorder", 16 << 20, 0, 1 << 32),
    ("zfetch_max_sec_reap", 2, 0, 86_400),
    ("zfetch_max_streams", 8, 0, 1024),
    ("zfetch_min_distance", 4 << 20, 0, 1 << 32),
    ("zfetch_min_sec_reap", 1, 0, 86_400),
    ("zfs_prefetch_disable", 0, 0, 1),
];

/// Tunables of read-ahead, changeable at any time.
#[derive(Debug)]
pub struct PrefetchSettings(Tunables<{ TUNABLES.len() }>);

/// Current values of the tunables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // zfs(4) says what they are
pub struct PrefetchValues {
    pub hole_shift: u32,
    pub max_distance: u64,
    pub max_idistance: u64,
    pub max_reorder: u64,
    pub max_reap_ns: u64,
    pub max_streams: usize,
    pub min_distance: u64,
    pub min_reap_ns: u64,
    pub is_disabled: bool,
}

impl Default for PrefetchSettings {
    fn default() -> PrefetchSettings {
        PrefetchSettings(Tunables::new(&TUNABLES))
    }
}

impl PrefetchSettings {
    /// All tunables, by name.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.0.all()
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// The name is unknown, or the value out of range.
    pub fn set(&self, name: &str, value: u64) -> Result<(), BadSetting> {
        self.0.set(name, value)
    }

    /// All values.
    pub fn values(&self) -> PrefetchValues {
        const SECOND_NS: u64 = 1_000_000_000;
        let [hole, max_distance, max_idistance, max_reorder, max_reap, streams, min_distance, min_reap, off] =
            self.0.values();
        PrefetchValues {
            hole_shift: hole as u32,
            max_distance,
            max_idistance,
            max_reorder,
            max_reap_ns: max_reap * SECOND_NS,
            max_streams: streams as usize,
            min_distance,
            min_reap_ns: min_reap * SECOND_NS,
            is_disabled: off != 0,
        }
    }
}

/// The relation of an access to the streams of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It continues a stream.
    Hit,
    /// Ahead of a stream, and kept until its turn.
    Future,
    /// Ahead of a stream, which continues with it.
    Stride,
    /// Behind a stream.
    Past,
    /// In no stream.
    Miss,
    /// In no stream, and no more streams are allowed.
    MaxStreams,
}

/// Statistics of read-ahead (`zfetchstats`, and `arcstats` of prefetch).
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[allow(missing_docs)] // by OpenZFS's names
pub struct PrefetchStats {
    pub hits: u64,
    pub future: u64,
    pub stride: u64,
    pub past: u64,
    pub misses: u64,
    pub max_streams: u64,
    /// Blocks read ahead.
    pub io_issued: u64,
    /// Bytes being read ahead now.
    pub active_bytes: u64,
    /// Blocks to read ahead that were cached already (`prefetch_data_hits`, `.._metadata_hits`).
    pub found: u64,
    /// Blocks read ahead and then used (`demand_hit_predictive_prefetch`).
    pub used: u64,
    /// Blocks requested while being read ahead (`demand_iohit_predictive_prefetch`).
    pub iohits: u64,
    /// Blocks read ahead and evicted unused.
    pub wasted: u64,
}

impl PrefetchStats {
    /// Combines each count with that of `other`.
    pub fn zip(&self, other: &PrefetchStats, f: fn(u64, u64) -> u64) -> PrefetchStats {
        PrefetchStats {
            hits: f(self.hits, other.hits),
            future: f(self.future, other.future),
            stride: f(self.stride, other.stride),
            past: f(self.past, other.past),
            misses: f(self.misses, other.misses),
            max_streams: f(self.max_streams, other.max_streams),
            io_issued: f(self.io_issued, other.io_issued),
            active_bytes: f(self.active_bytes, other.active_bytes),
            found: f(self.found, other.found),
            used: f(self.used, other.used),
            iohits: f(self.iohits, other.iohits),
            wasted: f(self.wasted, other.wasted),
        }
    }
}

/// State shared by all read-ahead into one cache.
#[derive(Debug)]
pub struct Prefetch {
    settings: PrefetchSettings,
    seen: [AtomicU64; 6],
    pub(crate) issued: AtomicU64,
    pub(crate) found: AtomicU64,
    pub(crate) used: AtomicU64,
    pub(crate) iohits: AtomicU64,
    pub(crate) wasted: AtomicU64,
    active_bytes: Arc<AtomicU64>,
    windows: Arc<Semaphore>,
    budget_bytes: AtomicU64,
}

/// The right to read a window ahead.
#[derive(Debug)]
pub struct Permit {
    bytes: u64,
    active_bytes: Arc<AtomicU64>,
    _window: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.active_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Prefetch {
    pub(crate) fn new(budget_bytes: usize) -> Prefetch {
        Prefetch {
            settings: PrefetchSettings::default(),
            seen: Default::default(),
            issued: AtomicU64::default(),
            found: AtomicU64::default(),
            used: AtomicU64::default(),
            iohits: AtomicU64::default(),
            wasted: AtomicU64::default(),
            active_bytes: Arc::default(),
            windows: Arc::new(Semaphore::new(MOST_WINDOWS)),
            budget_bytes: AtomicU64::new(budget_bytes as u64),
        }
    }

    /// Its tunables.
    pub fn settings(&self) -> &PrefetchSettings {
        &self.settings
    }

    /// Counts an access.
    pub fn note(&self, seen: Seen) {
        self.seen[seen as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Most bytes ahead of one stream, and of all together.
    pub fn most_active_bytes(&self) -> u64 {
        self.budget_bytes.load(Ordering::Relaxed) >> ACTIVE_SHIFT
    }

    /// Bytes being read ahead.
    pub fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_budget(&self, budget_bytes: usize) {
        self.budget_bytes.store(budget_bytes as u64, Ordering::Relaxed);
    }

    /// The right to read `bytes` ahead; `None`: enough is under way, or the pool is closing.
    pub fn permit(&self, bytes: u64) -> Option<Permit> {
        let window = self.windows.clone().try_acquire_owned().ok()?;
        let permit = Permit { bytes, active_bytes: self.active_bytes.clone(), _window: window };
        // A drop takes the bytes back.
        let before = self.active_bytes.fetch_add(bytes, Ordering::Relaxed);
        (before == 0 || before + bytes <= self.most_active_bytes()).then_some(permit)
    }

    /// Ends read-ahead, and waits for windows under way.
    pub async fn end(&self) {
        // Fails only if read-ahead has ended.
        drop(self.windows.acquire_many(MOST_WINDOWS as u32).await);
        self.windows.close();
    }

    pub(crate) fn stats(&self) -> PrefetchStats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let seen = |seen: Seen| count(&self.seen[seen as usize]);
        PrefetchStats {
            hits: seen(Seen::Hit),
            future: seen(Seen::Future),
            stride: seen(Seen::Stride),
            past: seen(Seen::Past),
            misses: seen(Seen::Miss) + seen(Seen::MaxStreams),
            max_streams: seen(Seen::MaxStreams),
            io_issued: count(&self.issued),
            active_bytes: count(&self.active_bytes),
            found: count(&self.found),
            used: count(&self.used),
            iohits: count(&self.iohits),
            wasted: count(&self.wasted),
        }
    }
}
