//! Multihost protection (MMP): keeps two machines from importing one pool.
//!
//! Idea: the last slot of every uberblock ring is reserved. A machine with the pool keeps rewriting it on one
//! leaf after the other, with the newest uberblock, the time and a sequence number: a *heartbeat*. A machine
//! that wants the pool watches the rings for a while, and takes the pool only if nothing changes. It then
//! writes a random sequence number to all leaves, several times, and reads it back: the *claim*. Of two
//! machines that watched at the same time, at most one finds its own number each time.
//!
//! ```text
//!   importer   | watch: no change for 2 x fail intervals, + 0..25 % | claim: 10 intervals | its own
//!   owner      | beat . beat . (stalled)        | suspended: no write leaves any more
//!              |<-------- fail intervals ------>|
//! ```
//!
//! So an owner whose heartbeats do not land stops before an importer may begin. The uberblock itself tells
//! the importer the owner's interval and fail intervals.
//!
//! | module | does |
//! |---|---|
//! | `legs` | reads and writes the rings of all leaves, without the pool's queues |
//! | `check` | whether to watch, how long, and the watch |
//! | `claim` | the claim of an importer, and the stake before the first change |
//! | `label/beat` | heartbeats of an open pool |
//!
//! Beyond OpenZFS: writes of a machine stopped and woken up too late are refused by a
//! [`cenote_device::Fence`], not only by the task that notices. A pool taken without a watch (this machine
//! exported it) is checked, and staked out with a heartbeat on all labels, at its first change.
//!
//! Source: OpenZFS `mmp.c` (theory comment), `spa.c` (`spa_activity_check_*`), `mmp.h`.

mod check;
mod claim;
mod legs;

use crate::tunables::{BadSetting, Tunable, Tunables};
use cenote_format::uberblock::MmpConfig;
use std::time::Duration;

pub use check::{Watched, must_watch, watch_time};
pub use claim::{Stake, begin_stake};
pub use legs::Legs;

const TABLE: [Tunable; 3] = [
    ("zfs_multihost_interval", 1000, MIN_INTERVAL_MS, MmpConfig::MAX_INTERVAL_MS as u64),
    ("zfs_multihost_fail_intervals", 10, 0, u16::MAX as u64),
    ("zfs_multihost_import_intervals", 20, 0, u32::MAX as u64),
];
/// `MMP_MIN_INTERVAL`.
const MIN_INTERVAL_MS: u64 = 100;
/// `MMP_MIN_FAIL_INTERVALS`, unless 0.
const MIN_FAIL_INTERVALS: u64 = 2;

/// Tunables, which may change at any time.
#[derive(Debug)]
pub struct MultihostSettings(Tunables<{ TABLE.len() }>);

impl Default for MultihostSettings {
    fn default() -> MultihostSettings {
        MultihostSettings(Tunables::new(&TABLE))
    }
}

impl MultihostSettings {
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

    /// Time between heartbeats of a leaf.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.0.get(0))
    }

    /// Intervals without a heartbeat after which the pool is suspended; 0: never.
    pub fn fail_intervals(&self) -> u32 {
        match self.0.get(1) {
            0 => 0,
            some => some.max(MIN_FAIL_INTERVALS) as u32,
        }
    }

    /// Least intervals that an importer watches.
    fn import_intervals(&self) -> u32 {
        u32::try_from(self.0.get(2).max(1)).unwrap_or(u32::MAX)
    }

    /// The settings as an uberblock records them.
    pub fn recorded(&self, seq: u16) -> MmpConfig {
        let interval_ms = u32::try_from(self.interval().as_millis()).unwrap_or(MmpConfig::MAX_INTERVAL_MS);
        MmpConfig { interval_ms, seq, fail_intervals: self.fail_intervals() as u16 }
    }
}

/// Why multihost protection keeps a pool from being taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MultihostError {
    /// The rings change.
    #[error(
        "is imported on host '{host}' (hostid={hostid:x}): its heartbeats were seen; export the pool \
         on the other system, then import it here"
    )]
    Active {
        /// The machine in the newest label.
        host: String,
        /// Its hostid.
        hostid: u64,
    },
    /// This machine has no hostid.
    #[error(
        "has the multihost property on, and the system's hostid is not set; set a unique one with \
         `zgenhostid`"
    )]
    NoHostid,
    /// Legs that should be there took no claim.
    #[error(
        "can't be claimed: the multihost claim can't be written to {legs}, which the configuration \
         expects: another machine may see only those; attach them, or, if they are lost for good and no \
         other machine has the pool, take them out with OpenZFS's `zhack mmp reclaim`"
    )]
    LegsMissing {
        /// Their paths or guids.
        legs: String,
    },
    /// Legs failed to take the claim.
    #[error(
        "can't be claimed: the multihost claim could not be written to {legs}: {why}; mend the devices and \
         import again"
    )]
    LegsFailed {
        /// Their paths.
        legs: String,
        /// An error.
        why: String,
    },
}

/// Progress of the check before an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The phase.
    pub phase: Phase,
    /// Time since its beginning.
    pub done: Duration,
    /// Its length.
    pub total: Duration,
}

/// A phase of the check before an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Watching for heartbeats.
    Watch,
    /// Claiming.
    Claim,
}
