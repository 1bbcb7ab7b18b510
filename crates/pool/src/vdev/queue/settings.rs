//! Tunables of leaf queues, by OpenZFS's names. They may be changed at any time and hold for what starts
//! next.
//!
//! Source: OpenZFS `vdev_queue.c`, zfs(4).

use std::sync::atomic::{AtomicU32, Ordering};

use super::IoClass;

/// Least and most operations under way of each class, in the order of [`IoClass::ALL`].
const ACTIVE: [(u32, u32); IoClass::ALL.len()] =
    [(10, 10), (10, 10), (1, 3), (2, 10), (1, 3), (1, 2), (1, 1), (1, 2), (1, 3)];
/// All others, with their defaults.
const OTHERS: [(&str, u32); 5] = [
    ("zfs_vdev_max_active", 1000),
    ("zfs_vdev_async_write_active_min_dirty_percent", 30),
    ("zfs_vdev_async_write_active_max_dirty_percent", 60),
    ("zfs_vdev_nia_credit", 5),
    ("zfs_vdev_nia_delay", 5),
];
const MAX_ACTIVE: usize = 0;
const RAMP_FROM: usize = 1;
const RAMP_TO: usize = 2;
const NIA_CREDIT: usize = 3;
const NIA_DELAY: usize = 4;

/// What all queues of a pool go by.
#[derive(Debug)]
pub struct QueueSettings {
    min: [AtomicU32; IoClass::ALL.len()],
    max: [AtomicU32; IoClass::ALL.len()],
    others: [AtomicU32; OTHERS.len()],
    /// Changes in memory, in percent of the most there may be; 100 when somebody waits for the txg.
    dirty_percent: AtomicU32,
}

/// A tunable that can't be set so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSetting {
    /// There is none of this name.
    #[error("no tunable {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The value is out of range.
    #[error("{name}: {value} is not between {least} and {most}")]
    OutOfRange {
        /// The name.
        name: String,
        /// What was asked for.
        value: u64,
        /// The least that it can be.
        least: u64,
        /// The most.
        most: u64,
    },
}

impl Default for QueueSettings {
    fn default() -> QueueSettings {
        QueueSettings {
            min: ACTIVE.map(|(min, _)| min.into()),
            max: ACTIVE.map(|(_, max)| max.into()),
            others: OTHERS.map(|(_, value)| value.into()),
            dirty_percent: AtomicU32::new(100),
        }
    }
}

impl QueueSettings {
    /// All tunables with their values, by name.
    pub fn all(&self) -> Vec<(String, u32)> {
        let bounds = IoClass::ALL.into_iter().zip(self.min.iter().zip(&self.max));
        let of_classes = bounds.flat_map(|(class, (min, max))| {
            let name = |bound: &str| format!("zfs_vdev_{}_{bound}_active", class.name());
            [(name("max"), max.load(Ordering::Relaxed)), (name("min"), min.load(Ordering::Relaxed))]
        });
        let others = OTHERS.iter().zip(&self.others);
        let others = others.map(|((name, _), value)| ((*name).to_owned(), value.load(Ordering::Relaxed)));
        let mut all: Vec<(String, u32)> = of_classes.chain(others).collect();
        all.sort();
        all
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// There is none of that name, or the value is out of range.
    pub fn set(&self, name: &str, value: u64) -> Result<(), BadSetting> {
        let (cell, least, most) = self.find(name).ok_or_else(|| BadSetting::Unknown { name: name.into() })?;
        match u32::try_from(value) {
            Ok(fits) if (least..=most).contains(&fits) => {
                cell.store(fits, Ordering::Relaxed);
                Ok(())
            }
            _ => {
                let (least, most) = (least.into(), most.into());
                Err(BadSetting::OutOfRange { name: name.into(), value, least, most })
            }
        }
    }

    /// How much has changed in memory, in percent of the most; 100 when somebody waits for the txg.
    pub fn set_dirty_percent(&self, percent: u32) {
        self.dirty_percent.store(percent, Ordering::Relaxed);
    }

    /// The cell of a tunable, with its bounds.
    fn find(&self, name: &str) -> Option<(&AtomicU32, u32, u32)> {
        if let Some(at) = OTHERS.iter().position(|(other, _)| *other == name) {
            let most = if at == RAMP_FROM || at == RAMP_TO { 100 } else { 10_000 };
            return Some((&self.others[at], u32::from(at != RAMP_FROM), most));
        }
        let bound = name.strip_prefix("zfs_vdev_")?.strip_suffix("_active")?;
        IoClass::ALL.into_iter().find_map(|class| match bound.strip_prefix(class.name())? {
            "_min" => Some((&self.min[class as usize], 1, 1000)),
            "_max" => Some((&self.max[class as usize], 1, 1000)),
            _ => None,
        })
    }

    pub(super) fn min_active(&self, class: IoClass) -> u32 {
        self.min[class as usize].load(Ordering::Relaxed)
    }

    pub(super) fn max_active_of(&self, class: IoClass) -> u32 {
        self.max[class as usize].load(Ordering::Relaxed).max(self.min_active(class))
    }

    pub(super) fn max_active(&self) -> u32 {
        self.other(MAX_ACTIVE)
    }

    pub(super) fn background_credit(&self) -> u32 {
        self.other(NIA_CREDIT)
    }

    pub(super) fn background_delay(&self) -> u32 {
        self.other(NIA_DELAY)
    }

    /// Async writes under way at most: from the minimum to the maximum as memory fills with changes
    /// (`vdev_queue_max_async_writes`).
    pub(super) fn async_writes_max(&self) -> u32 {
        let (least, most) = (self.min_active(IoClass::AsyncWrite), self.max_active_of(IoClass::AsyncWrite));
        let (from, to) = (self.other(RAMP_FROM), self.other(RAMP_TO));
        match self.dirty_percent.load(Ordering::Relaxed) {
            dirty if dirty >= to => most,
            dirty if dirty <= from => least,
            dirty => least + (most - least) * (dirty - from) / (to - from),
        }
    }

    fn other(&self, at: usize) -> u32 {
        self.others[at].load(Ordering::Relaxed)
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
    fn all_tunables_can_be_set_by_name_within_bounds() {
        let settings = QueueSettings::default();
        for (name, _) in settings.all() {
            settings.set(&name, 7).unwrap_or_else(|error| panic!("{error}"));
            assert!(matches!(settings.set(&name, 1 << 40), Err(BadSetting::OutOfRange { .. })));
        }
        assert!(settings.all().iter().all(|(_, value)| *value == 7));
        assert!(matches!(settings.set("zfs_vdev_magic", 7), Err(BadSetting::Unknown { .. })));
    }
}
