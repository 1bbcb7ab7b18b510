//! Classes of operations, and their statistics.

use cenote_device::{SIZE_BUCKETS, TIME_BUCKETS};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The purpose of an operation (`zio_priority_t`), most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoClass {
    /// A read with a waiter.
    SyncRead,
    /// A write with a waiter: the intent log, labels.
    SyncWrite,
    /// Read-ahead.
    AsyncRead,
    /// Writes of a txg.
    AsyncWrite,
    /// Scrub and resilver.
    Scrub,
    /// Copying off a vdev being removed.
    Removal,
    /// Initializing free space.
    Initializing,
    /// Discarding free space.
    Trim,
    /// Sequential rebuild.
    Rebuild,
}

impl IoClass {
    /// All classes, most urgent first.
    pub const ALL: [IoClass; 9] = [
        IoClass::SyncRead,
        IoClass::SyncWrite,
        IoClass::AsyncRead,
        IoClass::AsyncWrite,
        IoClass::Scrub,
        IoClass::Removal,
        IoClass::Initializing,
        IoClass::Trim,
        IoClass::Rebuild,
    ];

    /// Its name in tunables: `zfs_vdev_NAME_max_active`.
    pub fn name(self) -> &'static str {
        match self {
            IoClass::SyncRead => "sync_read",
            IoClass::SyncWrite => "sync_write",
            IoClass::AsyncRead => "async_read",
            IoClass::AsyncWrite => "async_write",
            IoClass::Scrub => "scrub",
            IoClass::Removal => "removal",
            IoClass::Initializing => "initializing",
            IoClass::Trim => "trim",
            IoClass::Rebuild => "rebuild",
        }
    }

    /// `vdev_queue_class_fifo`.
    pub(super) fn is_fifo(self) -> bool {
        matches!(self, IoClass::SyncRead | IoClass::SyncWrite | IoClass::Trim)
    }

    /// Gives way to others (the opposite of `vdev_queue_is_interactive`).
    pub(super) fn is_background(self) -> bool {
        matches!(self, IoClass::Scrub | IoClass::Removal | IoClass::Initializing | IoClass::Rebuild)
    }
}

/// Operations and bytes sent in one direction.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Moved {
    /// Operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Moved {
    /// The difference since `before`.
    #[must_use]
    pub fn since(&self, before: &Moved) -> Moved {
        Moved {
            operations: self.operations.saturating_sub(before.operations),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Statistics of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassLoad {
    /// Waiting operations.
    pub waiting: u64,
    /// Operations under way.
    pub active: u64,
    /// Operations that began.
    pub begun: u64,
    /// Their total waiting time, ns.
    pub waited_ns: u64,
    /// Bucket `n`: at least 2^n ns.
    #[serde(with = "cenote_device::list")]
    #[schemars(with = "Vec<u64>")]
    pub(super) waits: [u64; TIME_BUCKETS],
    /// Single operations by size: bucket `n` at least 2^n bytes.
    pub alone: [u64; SIZE_BUCKETS],
    /// Joined operations by size.
    pub joined: [u64; SIZE_BUCKETS],
}

impl Default for ClassLoad {
    fn default() -> ClassLoad {
        let (waits, alone, joined) = ([0; TIME_BUCKETS], [0; SIZE_BUCKETS], [0; SIZE_BUCKETS]);
        ClassLoad { waiting: 0, active: 0, begun: 0, waited_ns: 0, waits, alone, joined }
    }
}

impl ClassLoad {
    /// Adds another queue's.
    pub fn add(&mut self, other: &ClassLoad) {
        self.waiting += other.waiting;
        self.active += other.active;
        self.begun += other.begun;
        self.waited_ns += other.waited_ns;
        self.waits.iter_mut().zip(other.waits).for_each(|(sum, count)| *sum += count);
        self.alone.iter_mut().zip(other.alone).for_each(|(sum, count)| *sum += count);
        self.joined.iter_mut().zip(other.joined).for_each(|(sum, count)| *sum += count);
    }

    /// The difference since `before`; waiting and active are current.
    pub fn since(&self, before: &ClassLoad) -> ClassLoad {
        ClassLoad {
            begun: self.begun.saturating_sub(before.begun),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            waits: std::array::from_fn(|time| self.waits[time].saturating_sub(before.waits[time])),
            alone: std::array::from_fn(|size| self.alone[size].saturating_sub(before.alone[size])),
            joined: std::array::from_fn(|size| self.joined[size].saturating_sub(before.joined[size])),
            ..*self
        }
    }

    /// Histogram of waits: bucket `n` at least 2^n ns; immediate starts are in the first.
    pub fn wait_times(&self) -> [u64; TIME_BUCKETS] {
        let mut times = self.waits;
        times[0] += self.begun.saturating_sub(times.iter().sum());
        times
    }

    pub(super) fn has_waited(&mut self, ns: u64) {
        self.waited_ns += ns;
        self.waits[(ns.max(1).ilog2() as usize).min(TIME_BUCKETS - 1)] += 1;
    }

    /// Average wait.
    pub fn average_wait_ns(&self) -> Option<u64> {
        self.waited_ns.checked_div(self.begun)
    }
}
