//! What is known of a machine and its pools, as plain values; and what could not be had.
//!
//! Facts come from the outputs of `zpool` and `zfs`, the kernel's kstats and `/proc`: [`Facts::gather`] on a live system,
//! [`Facts::recorded`] from a folder that holds the same outputs as files (tests, a machine of somebody else's). Nothing here
//! judges: that is for the rules.
//!
//! Counters (arcstats, zil, a dataset's) count since the pool was imported or the module loaded. Where an earlier state of
//! them is known, [`Facts::since`] gives the facts of the time between.

mod dataset;
mod disk;
mod outputs;
mod pool;
mod read;
mod vdev;

use std::collections::BTreeMap;

pub use dataset::{Dataset, DatasetKind};
pub use disk::Disk;
pub use pool::{Pool, Scan};
pub use vdev::{Class, Latencies, Vdev, VdevKind};

use crate::samples::Missing;

/// Named counters, as a kstat gives them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters(pub BTreeMap<String, u64>);

/// What is known of a machine and its pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// When: seconds since 1970, UTC.
    pub unix_s: u64,
    /// For how long the counters have counted, in seconds: since the system started, or since earlier facts.
    pub counted_s: Option<f64>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// The pools, by name.
    pub pools: Vec<Pool>,
    /// The ARC's counters (`arcstats`).
    pub arc: Option<Counters>,
    /// Disks of the machine.
    pub disks: Vec<Disk>,
    /// What was measured with different numbers of workers, by target.
    pub workers: Vec<Workers>,
    /// What could not be had, and why.
    pub missing: Vec<Missing>,
}

/// Throughput and latency of one kind of work at several numbers of workers on one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// The target: a pool, a folder.
    pub target: String,
    /// The test.
    pub test: String,
    /// From few workers to many.
    pub points: Vec<WorkersPoint>,
}

/// One number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkersPoint {
    /// Operations in flight: workers times queue depth.
    pub in_flight: f64,
    /// Operations a second.
    pub iops: f64,
    /// Mean latency, in nanoseconds.
    pub mean_ns: f64,
}

impl Counters {
    /// One of them.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// One of them, 0 if there is none of that name.
    pub fn or_zero(&self, name: &str) -> u64 {
        self.get(name).unwrap_or(0)
    }

    /// `part` of `part + rest`, in percent; None if both are 0 or not known.
    pub fn percent(&self, part: &str, rest: &str) -> Option<f64> {
        let (part, rest) = (self.get(part)? as f64, self.get(rest)? as f64);
        (part + rest > 0.0).then(|| part / (part + rest) * 100.0)
    }
}

impl Facts {
    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }
}
