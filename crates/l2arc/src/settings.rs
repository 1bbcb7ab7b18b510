//! Tunables of cache devices, under OpenZFS's names.
//!
//! Source: OpenZFS `arc.c` (`l2arc_*`), zfs(4).

use std::time::Duration;

use cenote_pool::{BadSetting, Tunable, Tunables};

const TABLE: [Tunable; 11] = [
    ("l2arc_exclude_special", 0, 0, 1),
    ("l2arc_feed_again", 1, 0, 1),
    ("l2arc_feed_min_ms", 200, 1, 60_000),
    ("l2arc_feed_secs", 1, 1, 3600),
    ("l2arc_mfuonly", 0, 0, 1),
    ("l2arc_noprefetch", 1, 0, 1),
    ("l2arc_norw", 0, 0, 1),
    ("l2arc_rebuild_blocks_min_l2size", 1 << 30, 0, 1 << 50),
    ("l2arc_rebuild_enabled", 1, 0, 1),
    ("l2arc_write_boost", 32 << 20, 0, 1 << 32),
    ("l2arc_write_max", 32 << 20, 1 << 20, 1 << 32),
];

/// Tunables of cache devices, changeable at any time.
#[derive(Debug)]
pub struct L2Settings(Tunables<{ TABLE.len() }>);

impl Default for L2Settings {
    fn default() -> L2Settings {
        L2Settings(Tunables::new(&TABLE))
    }
}

impl L2Settings {
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

    /// Skip blocks on special vdevs.
    pub(crate) fn excludes_special(&self) -> bool {
        self.0.get(0) != 0
    }

    /// The pause after a round of feeding; `is_busy`: it wrote much of its limit.
    pub(crate) fn pause(&self, is_busy: bool) -> Duration {
        match is_busy && self.0.get(1) != 0 {
            true => Duration::from_millis(self.0.get(2)),
            false => Duration::from_secs(self.0.get(3)),
        }
    }

    /// Take only blocks used more than once.
    pub(crate) fn is_mfu_only(&self) -> bool {
        self.0.get(4) != 0
    }

    /// Take blocks read ahead only once used.
    pub(crate) fn excludes_prefetch(&self) -> bool {
        self.0.get(5) != 0
    }

    /// Don't read a device being written.
    pub(crate) fn reads_wait(&self) -> bool {
        self.0.get(6) != 0
    }

    /// Smaller devices have no log blocks.
    pub(crate) fn persistent_from_bytes(&self) -> u64 {
        self.0.get(7)
    }

    /// Read the logs at an import.
    pub(crate) fn rebuilds(&self) -> bool {
        self.0.get(8) != 0
    }

    /// Bytes of a round of feeding; more until memory is full.
    pub(crate) fn round_bytes(&self, is_warm: bool) -> u64 {
        self.0.get(10) + if is_warm { 0 } else { self.0.get(9) }
    }
}
