//! Settings of a pool and its leaf queues: tunables with OpenZFS's names, which apply to the next
//! operation; and the recorder of transfers.
//!
//! Source: OpenZFS `vdev_queue.c`, zfs(4).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cenote_format::units::Guid;

use super::IoClass;
use super::join::Limits;
use crate::recorder::Recorder;
use crate::tunables::{BadSetting, Tunable, Tunables};

const CLASSES: usize = IoClass::ALL.len();
/// Minimum and maximum of each class, in the order of [`IoClass::ALL`]; then the others.
const TABLE: [Tunable; 2 * CLASSES + 18] = [
    ("zfs_vdev_sync_read_min_active", 10, 1, 1000),
    ("zfs_vdev_sync_read_max_active", 10, 1, 1000),
    ("zfs_vdev_sync_write_min_active", 10, 1, 1000),
    ("zfs_vdev_sync_write_max_active", 10, 1, 1000),
    ("zfs_vdev_async_read_min_active", 1, 1, 1000),
    ("zfs_vdev_async_read_max_active", 3, 1, 1000),
    ("zfs_vdev_async_write_min_active", 2, 1, 1000),
    ("zfs_vdev_async_write_max_active", 10, 1, 1000),
    ("zfs_vdev_scrub_min_active", 1, 1, 1000),
    ("zfs_vdev_scrub_max_active", 3, 1, 1000),
    ("zfs_vdev_removal_min_active", 1, 1, 1000),
    ("zfs_vdev_removal_max_active", 2, 1, 1000),
    ("zfs_vdev_initializing_min_active", 1, 1, 1000),
    ("zfs_vdev_initializing_max_active", 1, 1, 1000),
    ("zfs_vdev_trim_min_active", 1, 1, 1000),
    ("zfs_vdev_trim_max_active", 2, 1, 1000),
    ("zfs_vdev_rebuild_min_active", 1, 1, 1000),
    ("zfs_vdev_rebuild_max_active", 3, 1, 1000),
    ("zfs_vdev_max_active", 1000, 1, 10_000),
    ("zfs_vdev_async_write_active_min_dirty_percent", 30, 0, 100),
    ("zfs_vdev_async_write_active_max_dirty_percent", 60, 1, 100),
    ("zfs_vdev_nia_credit", 5, 1, 10_000),
    ("zfs_vdev_nia_delay", 5, 1, 10_000),
    ("zfs_vdev_aggregation_limit", 1 << 20, 0, MOST_JOINED),
    ("zfs_vdev_aggregation_limit_non_rotating", 128 << 10, 0, MOST_JOINED),
    ("zfs_vdev_read_gap_limit", 32 << 10, 0, MOST_JOINED),
    ("zfs_vdev_write_gap_limit", 4 << 10, 0, MOST_JOINED),
    ("zio_slow_io_ms", 30_000, 1, u32::MAX as u64),
    ("zfs_vdev_mirror_rotating_inc", 0, 0, 1 << 20),
    ("zfs_vdev_mirror_rotating_seek_inc", 5, 0, 1 << 20),
    ("zfs_vdev_mirror_rotating_seek_offset", 1 << 20, 0, u32::MAX as u64),
    ("zfs_vdev_mirror_non_rotating_inc", 0, 0, 1 << 20),
    ("zfs_vdev_mirror_non_rotating_seek_inc", 1, 0, 1 << 20),
    ("zfs_special_class_metadata_reserve_pct", 25, 0, 100),
    ("zfs_initialize_chunk_size", 1 << 20, LARGEST_SECTOR, 16 << 20),
    ("zfs_trim_extent_bytes_max", 128 << 20, LARGEST_SECTOR, u32::MAX as u64),
];
/// `SPA_MAXBLOCKSIZE`.
const MOST_JOINED: u64 = 16 << 20;
const MAX_ACTIVE: usize = 2 * CLASSES;
const RAMP_FROM: usize = MAX_ACTIVE + 1;
const RAMP_TO: usize = MAX_ACTIVE + 2;
const NIA_CREDIT: usize = MAX_ACTIVE + 3;
const NIA_DELAY: usize = MAX_ACTIVE + 4;
const JOINED_ROTATING: usize = MAX_ACTIVE + 5;
const JOINED: usize = MAX_ACTIVE + 6;
const READ_GAP: usize = MAX_ACTIVE + 7;
const WRITE_GAP: usize = MAX_ACTIVE + 8;
const SLOW_IO: usize = MAX_ACTIVE + 9;
const MIRROR: usize = MAX_ACTIVE + 10;
const SPECIAL_RESERVE: usize = MAX_ACTIVE + 15;
const INITIALIZE_CHUNK: usize = MAX_ACTIVE + 16;
const TRIM_MAX: usize = MAX_ACTIVE + 17;
/// Lengths are rounded down to it.
const LARGEST_SECTOR: u64 = 64 << 10;

/// Settings of all queues of a pool.
#[derive(Debug)]
pub struct QueueSettings {
    tunables: Tunables<{ TABLE.len() }>,
    /// 100 if a caller waits for the txg.
    dirty_percent: AtomicU32,
    transfers: Recorder<Transfer>,
}

/// A transfer to or from a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Nanoseconds since the pool's runtime began.
    pub now_ns: u64,
    /// The leaf.
    pub leaf: Guid,
    /// Its class.
    pub class: IoClass,
    /// Whether it is a write.
    pub is_write: bool,
    /// Offset on the device.
    pub offset_bytes: u64,
    /// Length.
    pub bytes: u64,
    /// Operations joined in it.
    pub operations: u32,
}

impl Default for QueueSettings {
    fn default() -> QueueSettings {
        QueueSettings {
            tunables: Tunables::new(&TABLE),
            dirty_percent: AtomicU32::new(100),
            transfers: Recorder::default(),
        }
    }
}

impl QueueSettings {
    /// All tunables and their values.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.tunables.all()
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// Unknown name, or value out of range.
    pub fn set(&self, name: &str, value: u64) -> Result<(), BadSetting> {
        self.tunables.set(name, value)
    }

    /// Sets the dirty percentage; 100 if a caller waits for the txg.
    pub fn set_dirty_percent(&self, percent: u32) {
        self.dirty_percent.store(percent, Ordering::Relaxed);
    }

    /// The recorder of all transfers of the pool's devices.
    pub fn transfers(&self) -> &Recorder<Transfer> {
        &self.transfers
    }

    /// Operations that take so long count as slow.
    pub(crate) fn slow_io(&self) -> Duration {
        Duration::from_millis(self.tunables.get(SLOW_IO))
    }

    /// Cost of a read so far from the last one, in operations (`vdev_mirror_load`).
    pub(crate) fn seek_cost(&self, rotates: bool, distance_bytes: u64) -> u64 {
        let [turning, seek, near, still, jump] = [0, 1, 2, 3, 4].map(|at| self.tunables.get(MIRROR + at));
        match (rotates, distance_bytes) {
            (true, 0) => turning,
            (true, distance) if distance < near => turning + seek / 2,
            (true, _) => turning + seek,
            (false, 0) => still,
            (false, _) => still + jump,
        }
    }

    /// Share of special vdevs that is kept for metadata, in percent.
    pub fn special_reserve_percent(&self) -> u64 {
        self.tunables.get(SPECIAL_RESERVE)
    }

    /// Length of the writes of `zpool initialize`.
    pub(crate) fn initialize_chunk_bytes(&self) -> u64 {
        self.tunables.get(INITIALIZE_CHUNK) / LARGEST_SECTOR * LARGEST_SECTOR
    }

    /// The longest discard.
    pub(crate) fn trim_bytes_max(&self) -> u64 {
        self.tunables.get(TRIM_MAX) / LARGEST_SECTOR * LARGEST_SECTOR
    }

    pub(super) fn min_active(&self, class: IoClass) -> u32 {
        self.number(2 * class as usize)
    }

    pub(super) fn max_active_of(&self, class: IoClass) -> u32 {
        self.number(2 * class as usize + 1).max(self.min_active(class))
    }

    pub(super) fn max_active(&self) -> u32 {
        self.number(MAX_ACTIVE)
    }

    pub(super) fn background_credit(&self) -> u32 {
        self.number(NIA_CREDIT)
    }

    pub(super) fn background_delay(&self) -> u32 {
        self.number(NIA_DELAY)
    }

    /// Grows from the minimum to the maximum with the dirty data (`vdev_queue_max_async_writes`).
    pub(super) fn async_writes_max(&self) -> u32 {
        let (least, most) = (self.min_active(IoClass::AsyncWrite), self.max_active_of(IoClass::AsyncWrite));
        let (from, to) = (self.number(RAMP_FROM), self.number(RAMP_TO));
        match self.dirty_percent.load(Ordering::Relaxed) {
            dirty if dirty >= to => most,
            dirty if dirty <= from => least,
            dirty => least + (most - least) * (dirty - from) / (to - from),
        }
    }

    /// `best_io_bytes`: raises the size limit, unless joining is disabled.
    pub(super) fn limits(&self, rotates: bool, best_io_bytes: u64) -> Limits {
        let whole = if rotates { JOINED_ROTATING } else { JOINED };
        let [whole, read_gap, write_gap] = [whole, READ_GAP, WRITE_GAP].map(|at| self.tunables.get(at));
        let whole = if whole == 0 { 0 } else { whole.max(best_io_bytes) };
        Limits { whole, read_gap, write_gap }
    }

    fn number(&self, at: usize) -> u32 {
        self.tunables.get(at) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn async_writes_grow_with_what_has_changed() {
        let settings = QueueSettings::default();
        let most = |percent| {
            settings.set_dirty_percent(percent);
            settings.async_writes_max()
        };
        assert_eq!([0, 30, 45, 60, 100].map(most), [2, 2, 6, 10, 10]);
    }

    #[test]
    fn near_reads_cost_less_than_far_ones() {
        let settings = QueueSettings::default();
        let costs = |rotates| [0, 4096, 2 << 20].map(|distance| settings.seek_cost(rotates, distance));
        assert_eq!((costs(true), costs(false)), ([0, 2, 5], [0, 1, 1]));
        settings.set("zfs_vdev_mirror_rotating_inc", 10).unwrap();
        settings.set("zfs_vdev_mirror_rotating_seek_offset", 4 << 20).unwrap();
        settings.set("zfs_vdev_mirror_non_rotating_seek_inc", 3).unwrap();
        assert_eq!((costs(true), costs(false)), ([10, 12, 12], [0, 3, 3]));
        assert_eq!((settings.special_reserve_percent(), settings.trim_bytes_max()), (25, 128 << 20));
        settings.set("zfs_initialize_chunk_size", 100_000).unwrap();
        assert_eq!(settings.initialize_chunk_bytes(), 64 << 10, "in whole sectors");
    }

    #[test]
    fn the_table_is_in_the_order_of_classes() {
        for class in IoClass::ALL {
            let name = TABLE[2 * class as usize].0;
            assert_eq!(name, format!("zfs_vdev_{}_min_active", class.name()));
        }
    }

    #[test]
    fn all_tunables_can_be_set_by_name_within_bounds() {
        let settings = QueueSettings::default();
        for (name, _, least, _) in TABLE {
            settings.set(name, least.max(7)).unwrap_or_else(|error| panic!("{error}"));
            assert!(matches!(settings.set(name, 1 << 40), Err(BadSetting::OutOfRange { .. })));
        }
        assert!(
            settings.all().iter().zip(TABLE).all(|((_, value), (_, _, least, _))| *value == least.max(7))
        );
        assert!(matches!(settings.set("zfs_vdev_magic", 7), Err(BadSetting::Unknown { .. })));
    }
}
