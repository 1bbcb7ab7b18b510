//! Bounds dirty data in memory by delaying writers before it reaches the limit.
//!
//! ```text
//!   delay of a change                        .   (max - dirty) -> 0: as long as it takes
//!      ^                                    .
//!      |                                 ..
//!      |____________________________.....     delay = scale * (dirty - min) / (max - dirty), at most 100 ms
//!      0        20 %            60 %         max
//!               the txg is written, or sooner: once 64 MiB of it are blocks written from start to end
//! ```
//!
//! Idea: all writers should run evenly at disk speed, rather than stop when memory is full. Delays are served
//! in turn, so the number of writers does not matter.
//!
//! Source: OpenZFS `dmu_tx.c` (`dmu_tx_delay`), `dsl_pool.c` (`dsl_pool_need_dirty_sync`), `txg.c`
//! (`txg_sync_thread`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cenote_object::live::DirtyTotal;
use cenote_runtime::{AbortOnDrop, Instant, Runtime};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// `zfs_dirty_data_max_percent`: default limit...
const DIRTY_MAX_PERCENT: u64 = 10;
/// `zfs_dirty_data_max_max`: ...but at most this.
const DIRTY_BYTES_MAX_MAX: u64 = 4 << 30;
/// A txg is written at `zfs_dirty_data_sync_percent`, or at this size of blocks written from start to end, as
/// in a copied file: disks then work while more comes. OpenZFS waits.
pub(crate) const SYNC_FINISHED_BYTES: u64 = 64 << 20;
/// `zfs_delay_max_ns`.
const DELAY_MAX: Duration = Duration::from_millis(100);

/// Default limit of dirty data on this machine.
pub fn default_dirty_bytes_max(runtime: &Runtime) -> u64 {
    (runtime.memory_bytes() / 100 * DIRTY_MAX_PERCENT).min(DIRTY_BYTES_MAX_MAX)
}

pub(crate) struct Throttle {
    pub(crate) max_bytes: AtomicU64,
    pub(crate) dirty: DirtyTotal,
    /// End of the last delay.
    pub(crate) last_delay: Mutex<Instant>,
    /// Wakes the writer of txgs.
    pub(crate) due: Arc<Notify>,
    /// Writes txgs while any user keeps it.
    pub(crate) background: Mutex<Weak<AbortOnDrop<()>>>,
}

impl Throttle {
    pub(crate) fn new(runtime: &Runtime) -> Throttle {
        let (dirty, last_delay, due, background) = Default::default();
        let max_bytes = default_dirty_bytes_max(runtime);
        Throttle { max_bytes: max_bytes.into(), dirty, last_delay, due, background }
    }

    /// Dirty data in percent of the limit; 100 after long runs of new blocks, as from a copy at full speed.
    pub(crate) fn percent(&self) -> u32 {
        let max = self.max_bytes.load(Ordering::Relaxed).max(1);
        match self.dirty.finished_bytes() > SYNC_FINISHED_BYTES {
            true => 100,
            false => u32::try_from(self.dirty.bytes().saturating_mul(100) / max).unwrap_or(100).min(100),
        }
    }

    pub(crate) fn dirty(&self) -> &DirtyTotal {
        &self.dirty
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Delays {
    /// `zfs_delay_min_dirty_percent`.
    pub(crate) min_percent: u64,
    /// `zfs_delay_scale`.
    pub(crate) scale_ns: u64,
}

impl Delays {
    /// Delay of a change at this fill.
    pub(crate) fn at(self, dirty: u64, max: u64) -> Option<Duration> {
        let min = max / 100 * self.min_percent;
        let over = dirty.checked_sub(min).filter(|&over| over > 0)?;
        let left = max.saturating_sub(dirty).max(1);
        let ns = u128::from(self.scale_ns) * u128::from(over) / u128::from(left);
        Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(DELAY_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(dirty: u64, max: u64) -> Option<Duration> {
        Delays { min_percent: 60, scale_ns: 500_000 }.at(dirty, max)
    }

    #[test]
    fn delays_begin_at_sixty_percent_and_grow_without_bound_but_one() {
        assert_eq!(delay(60, 100), None);
        assert_eq!(delay(80, 100), Some(Duration::from_micros(500)));
        assert_eq!(delay(96, 100), Some(Duration::from_micros(4500)));
        assert_eq!(delay(99_999_999, 100_000_000), Some(DELAY_MAX));
        let curve: Vec<_> = (61..100).map(|dirty| delay(dirty, 100)).collect();
        assert!(curve.is_sorted());
    }
}
