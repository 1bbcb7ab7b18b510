//! Work on an open pool in the background, as far as it is in memory: whose turn it is, who hears of orders,
//! how fast the scan goes, and the tunables. How far each has come is in the pool.
//!
//! Locking: turns are held by whoever works. `walking` is shared by scans and rebuilds for a slice each, and
//! held alone by what must not happen in the middle of one; it is asked for under a turn, and nothing is
//! asked for under it. The others are locked for one look or change.

use std::sync::Arc;
use std::time::Duration;

use cenote_pool::{BadSetting, Tunable, Tunables};
use cenote_runtime::Instant;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, watch};

use crate::engine::Engine;

const TABLE: [Tunable; 16] = [
    ("raidz_expand_max_reflow_bytes", 0, 0, u64::MAX),
    ("zfs_condense_indirect_obsolete_pct", 25, 0, 100),
    ("zfs_condense_indirect_vdevs_enable", 1, 0, 1),
    ("zfs_condense_max_obsolete_bytes", 1 << 30, 0, u64::MAX),
    ("zfs_condense_min_mapping_bytes", 128 << 10, 0, u64::MAX),
    ("zfs_rebuild_max_segment", 1 << 20, 4096, 16 << 20),
    ("zfs_rebuild_scrub_enabled", 1, 0, 1),
    ("zfs_removal_suspend_progress", 0, 0, 1),
    ("zfs_remove_max_segment", 16 << 20, 4096, 16 << 20),
    ("zfs_resilver_min_time_ms", 3000, 1, 600_000),
    ("zfs_scan_suspend_progress", 0, 0, 1),
    ("zfs_scrub_after_expand", 1, 0, 1),
    ("zfs_scrub_error_blocks_per_txg", 1 << 12, 1, 1 << 20),
    ("zfs_scrub_min_time_ms", 5000, 1, 600_000),
    ("zfs_trim_extent_bytes_min", 32 << 10, 0, u32::MAX as u64),
    ("zfs_trim_txg_batch", 32, 1, 1 << 20),
];

/// The tunables of scans, removals and expansions, which may be changed at any time.
///
/// A slice of a scan takes `zfs_scrub_min_time_ms` or `zfs_resilver_min_time_ms`; OpenZFS spends at least so
/// much of each txg. Its default for scrubs is one second: slices here are longer, since each costs a txg.
#[derive(Debug)]
pub struct ScanSettings(Tunables<{ TABLE.len() }>);

impl Default for ScanSettings {
    fn default() -> ScanSettings {
        ScanSettings(Tunables::new(&TABLE))
    }
}

impl ScanSettings {
    /// All tunables with their values, by name.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.0.all()
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// There is none of that name, or the value is out of range.
    pub fn set(&self, name: &str, value: u64) -> Result<(), BadSetting> {
        self.0.set(name, value)
    }

    /// How long a slice takes.
    pub fn slice(&self, is_resilver: bool) -> Duration {
        Duration::from_millis(self.0.get(if is_resilver { 9 } else { 13 }))
    }

    /// Whether the mapping of a removed vdev is to be made shorter: so many percent of what it maps are
    /// obsolete; how long it is, and the map of what is obsolete.
    pub fn is_worth_condensing(&self, obsolete_percent: u64, mapping_bytes: u64, map_bytes: u64) -> bool {
        let is_much = obsolete_percent >= self.0.get(1) && mapping_bytes > self.0.get(4);
        self.0.get(2) != 0 && (is_much || map_bytes >= self.0.get(3))
    }

    /// The most bytes of a device that a rebuild reads at once.
    pub fn rebuild_segment_bytes(&self) -> u64 {
        self.0.get(5)
    }

    /// A scrub follows rebuilds.
    pub fn scrubs_after_rebuild(&self) -> bool {
        self.0.get(6) != 0
    }

    /// Removals stand still.
    pub fn is_removal_suspended(&self) -> bool {
        self.0.get(7) != 0
    }

    /// An expansion that has copied so much stands still; 0: it goes to its end.
    pub fn most_reflow_bytes(&self) -> u64 {
        self.0.get(0)
    }

    /// A scrub follows expansions.
    pub fn scrubs_after_expansion(&self) -> bool {
        self.0.get(11) != 0
    }

    /// The longest range that is copied off a vdev as a whole.
    pub fn removal_segment_bytes(&self) -> u64 {
        self.0.get(8)
    }

    /// Known errors that are scrubbed together.
    pub fn error_blocks_per_txg(&self) -> usize {
        usize::try_from(self.0.get(12)).unwrap_or(usize::MAX)
    }

    /// Automatic trim visits a metaslab each so many rounds.
    pub fn trim_batch(&self) -> u64 {
        self.0.get(15)
    }

    /// Whether so many bytes of a device, which lie together, are worth trimming.
    pub fn is_worth_trimming(&self, bytes: u64) -> bool {
        bytes >= self.0.get(14)
    }

    /// Scans stand still.
    pub fn is_suspended(&self) -> bool {
        self.0.get(10) != 0
    }
}

/// One kind of work in the background: one does it at a time, and hears when there is something else to do.
pub struct Work {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Counts orders.
    orders: watch::Sender<u64>,
}

impl Default for Work {
    fn default() -> Work {
        Work { turn: Arc::default(), orders: watch::Sender::new(0) }
    }
}

impl Work {
    /// Waits until nobody else does it, and lets nobody else until this is dropped.
    pub async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// There is something else to do, or nothing any more: whoever does it looks again.
    pub fn order(&self) {
        self.orders.send_modify(|orders| *orders += 1);
    }

    /// Hears of orders. It ends with the engine.
    pub fn orders(&self) -> watch::Receiver<u64> {
        self.orders.subscribe()
    }
}

/// What those who work on an open pool in the background share with those who order it and look at it.
#[derive(Default)]
pub struct Background {
    /// Scrubs and resilvers. Orders: one begins, pauses, goes on, ends; a device is back.
    pub scans: Work,
    /// Passes over free space (initialize, trim); nobody takes turns.
    pub passes: Work,
    /// Vdevs that are removed.
    pub removals: Work,
    /// RAID-Z vdevs that are expanded.
    pub expansions: Work,
    /// Sequential rebuilds.
    pub rebuilds: Work,
    /// Shared by those who walk over what the tree on disk refers to, a slice at a time.
    walking: Arc<tokio::sync::RwLock<()>>,
    pass: Mutex<Option<Pass>>,
    settings: ScanSettings,
}

/// A scan that runs, since this engine began it or went on with it.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// When that was.
    pub since: Instant,
    /// Bytes scanned since.
    pub done_bytes: u64,
}

impl Engine {
    /// Its work in the background.
    pub fn background(&self) -> &Background {
        &self.0.background
    }
}

impl Background {
    /// The tunables of scans; an order tells of changes.
    pub fn settings(&self) -> &ScanSettings {
        &self.settings
    }

    /// For a slice of a walk over what the tree on disk refers to. Who waits for [`Background::no_walks`]
    /// comes before later slices.
    pub async fn walk_turn(&self) -> OwnedRwLockReadGuard<()> {
        self.walking.clone().read_owned().await
    }

    /// Waits until the slices of walks that run have ended, and lets none begin until this is dropped.
    pub async fn no_walks(&self) -> OwnedRwLockWriteGuard<()> {
        self.walking.clone().write_owned().await
    }

    /// The scan that runs.
    pub fn scan_pass(&self) -> Option<Pass> {
        *self.pass.lock()
    }

    /// How far the scan has come that runs; `None`: it has ended.
    pub fn set_scan_pass(&self, pass: Option<Pass>) {
        *self.pass.lock() = pass;
    }
}
