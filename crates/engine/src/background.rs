//! Background work in memory: turns, orders, progress and tunables. Persistent progress is in the pool.
//!
//! Locking: a turn is held while working. Scans and rebuilds share `walking` for a slice each; work that must
//! not fall into a slice takes it exclusively, under a turn; no lock is taken under it. Others are held for
//! one access.

use std::sync::Arc;
use std::time::Duration;

use cenote_pool::{BadSetting, INITIALIZE_PATTERN, Tunable, Tunables};
use cenote_runtime::{Instant, Watched, Watcher};
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use crate::engine::Engine;
use crate::space::log::LogBounds;
use crate::throttle::Delays;

const TABLE: [Tunable; 38] = [
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
    ("vdev_raidz_outlier_check_interval_ms", 1000, 1, 3_600_000),
    ("vdev_raidz_outlier_insensitivity", 50, 1, 1 << 20),
    ("vdev_read_sit_out_secs", 600, 0, u32::MAX as u64),
    ("spa_note_txg_time", 600, 0, u32::MAX as u64),
    ("spa_flush_txg_time", 600, 0, u32::MAX as u64),
    ("zfs_txg_timeout", 5, 1, 3600),
    ("zfs_dirty_data_sync_percent", 20, 1, 100),
    ("zfs_delay_min_dirty_percent", 60, 0, 99),
    ("zfs_delay_scale", 500_000, 0, u32::MAX as u64),
    ("zfs_initialize_value", INITIALIZE_PATTERN, 0, u64::MAX),
    ("zfs_resilver_defer_percent", 10, 0, 100),
    ("zfs_keep_log_spacemaps_at_export", 0, 0, 1),
    ("zfs_unflushed_log_txg_max", 1000, 1, 1 << 20),
    ("zfs_unflushed_log_block_max", 1 << 17, 1, 1 << 30),
    ("zfs_unflushed_log_block_min", 1000, 1, 1 << 30),
    ("zfs_unflushed_log_block_pct", 400, 1, 1 << 20),
    ("zfs_unflushed_max_mem_amt", 1 << 30, 1 << 20, u64::MAX),
    ("zfs_unflushed_max_mem_ppm", 1000, 1, 1_000_000),
    ("zfs_livelist_max_entries", 500_000, 1, u64::MAX),
    ("zfs_livelist_min_percent_shared", 75, 0, 100),
    ("zfs_allow_redacted_dataset_mount", 0, 0, 1),
    ("zfs_disable_ivset_guid_check", 0, 0, 1),
];

/// Tunables, which may change at any time.
///
/// A slice of a scan takes `zfs_scrub_min_time_ms` or `zfs_resilver_min_time_ms`; OpenZFS spends at least
/// that much of each txg. Its default for scrubs is one second; slices here are longer, since each costs a
/// txg.
#[derive(Debug)]
pub struct ScanSettings(Tunables<{ TABLE.len() }>);

impl Default for ScanSettings {
    fn default() -> ScanSettings {
        ScanSettings(Tunables::new(&TABLE))
    }
}

impl ScanSettings {
    /// All tunables, by name.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.0.all()
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// Unknown name; value out of range.
    pub fn set(&self, name: &str, value: u64) -> Result<(), BadSetting> {
        self.0.set(name, value)
    }

    /// Length of a slice.
    pub fn slice(&self, is_resilver: bool) -> Duration {
        Duration::from_millis(self.0.get(if is_resilver { 9 } else { 13 }))
    }

    /// Whether to condense a removed vdev's mapping.
    pub fn is_worth_condensing(&self, obsolete_percent: u64, mapping_bytes: u64, map_bytes: u64) -> bool {
        let is_much = obsolete_percent >= self.0.get(1) && mapping_bytes > self.0.get(4);
        self.0.get(2) != 0 && (is_much || map_bytes >= self.0.get(3))
    }

    /// Most bytes a rebuild reads at once.
    pub fn rebuild_segment_bytes(&self) -> u64 {
        self.0.get(5)
    }

    /// Whether a scrub follows rebuilds.
    pub fn scrubs_after_rebuild(&self) -> bool {
        self.0.get(6) != 0
    }

    /// Whether removals pause.
    pub fn is_removal_suspended(&self) -> bool {
        self.0.get(7) != 0
    }

    /// Bytes after which expansions pause; 0: never.
    pub fn most_reflow_bytes(&self) -> u64 {
        self.0.get(0)
    }

    /// Whether a scrub follows expansions.
    pub fn scrubs_after_expansion(&self) -> bool {
        self.0.get(11) != 0
    }

    /// Longest range copied off a vdev as a whole.
    pub fn removal_segment_bytes(&self) -> u64 {
        self.0.get(8)
    }

    /// Known errors scrubbed together.
    pub fn error_blocks_per_txg(&self) -> usize {
        usize::try_from(self.0.get(12)).unwrap_or(usize::MAX)
    }

    /// Rounds between visits of automatic trim to a metaslab.
    pub fn trim_batch(&self) -> u64 {
        self.0.get(15)
    }

    /// Whether a run of free bytes is worth trimming.
    pub fn is_worth_trimming(&self, bytes: u64) -> bool {
        bytes >= self.0.get(14)
    }

    /// Time between looks for slow disks of RAID-Z and dRAID.
    pub fn outlier_interval(&self) -> Duration {
        Duration::from_millis(self.0.get(16))
    }

    /// Multiple of the range of usual read times beyond which a disk is too slow.
    pub fn outlier_insensitivity(&self) -> u64 {
        self.0.get(17)
    }

    /// How long slow disks sit out reads; zero: not at all.
    pub fn sit_out(&self) -> Duration {
        Duration::from_secs(self.0.get(18))
    }

    /// Least seconds between txgs whose times are noted.
    pub fn note_txg_seconds(&self) -> u64 {
        self.0.get(19)
    }

    /// Least seconds between writes of these times.
    pub fn flush_txg_seconds(&self) -> u64 {
        self.0.get(20)
    }

    pub(crate) fn txg_timeout(&self) -> Duration {
        Duration::from_secs(self.0.get(21))
    }

    /// Dirty data in percent of the limit at which a txg is written.
    pub(crate) fn sync_percent(&self) -> u64 {
        self.0.get(22)
    }

    pub(crate) fn delays(&self) -> Delays {
        Delays { min_percent: self.0.get(23), scale_ns: self.0.get(24) }
    }

    /// The word that a new `zpool initialize` writes.
    pub fn initialize_word(&self) -> u64 {
        self.0.get(25)
    }

    /// Progress in percent from which a resilver does not restart for a new device.
    pub fn resilver_defer_percent(&self) -> u64 {
        self.0.get(26)
    }

    /// Whether an export leaves the log of space maps.
    pub(crate) fn keeps_space_log(&self) -> bool {
        self.0.get(27) != 0
    }

    pub(crate) fn log_bounds(&self) -> LogBounds {
        LogBounds {
            txgs: self.0.get(28),
            blocks_max: self.0.get(29),
            blocks_min: self.0.get(30),
            blocks_percent: self.0.get(31),
            memory_bytes_max: self.0.get(32),
            memory_ppm: self.0.get(33),
        }
    }

    /// Blocks written before a clone begins a new livelist.
    pub(crate) fn livelist_entries(&self) -> u64 {
        self.0.get(34)
    }

    /// With no more in common with its origin, a clone drops its livelist.
    pub(crate) fn livelist_percent_shared(&self) -> u64 {
        self.0.get(35)
    }

    /// Whether file systems that were received redacted can be mounted.
    pub fn mounts_redacted(&self) -> bool {
        self.0.get(36) != 0
    }

    /// Whether a raw increment needs the IV set that it was made from.
    pub fn checks_ivsets(&self) -> bool {
        self.0.get(37) == 0
    }

    /// Whether scans pause.
    pub fn is_suspended(&self) -> bool {
        self.0.get(10) != 0
    }
}

/// One kind of background work: one worker at a time, and orders to it.
pub struct Work {
    turn: Arc<tokio::sync::Mutex<()>>,
    orders: Watched<u64>,
}

impl Default for Work {
    fn default() -> Work {
        Work { turn: Arc::default(), orders: Watched::new(0) }
    }
}

impl Work {
    /// Waits for the turn.
    pub async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// Has the worker check for changes.
    pub fn order(&self) {
        self.orders.modify(|orders| *orders += 1);
    }

    /// Receives orders; closed with the engine.
    pub fn orders(&self) -> Watcher<u64> {
        self.orders.watch()
    }
}

/// State of background work.
#[derive(Default)]
pub struct Background {
    /// Scrubs and resilvers. Orders: start, pause, resume, end; a device is back.
    pub scans: Work,
    /// Passes over free space (initialize, trim); no turns.
    pub passes: Work,
    /// Vdev removals.
    pub removals: Work,
    /// RAID-Z expansions.
    pub expansions: Work,
    /// Sequential rebuilds.
    pub rebuilds: Work,
    walking: Arc<tokio::sync::RwLock<()>>,
    pass: Mutex<Option<Pass>>,
    settings: ScanSettings,
}

/// A running scan, since this engine began or resumed it.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// Its start.
    pub since: Instant,
    /// Bytes scanned since.
    pub done_bytes: u64,
}

impl Engine {
    /// State of background work.
    pub fn background(&self) -> &Background {
        &self.0.background
    }
}

impl Background {
    /// Tunables; a change comes with an order.
    pub fn settings(&self) -> &ScanSettings {
        &self.settings
    }

    /// Takes a slice of a walk over the tree on disk. [`Background::no_walks`] precedes later slices.
    pub async fn walk_turn(&self) -> OwnedRwLockReadGuard<()> {
        self.walking.clone().read_owned().await
    }

    /// Waits for running slices, and blocks new ones.
    pub async fn no_walks(&self) -> OwnedRwLockWriteGuard<()> {
        self.walking.clone().write_owned().await
    }

    /// The running scan.
    pub fn scan_pass(&self) -> Option<Pass> {
        *self.pass.lock()
    }

    /// `None`: it has ended.
    pub fn set_scan_pass(&self, pass: Option<Pass>) {
        *self.pass.lock() = pass;
    }
}
