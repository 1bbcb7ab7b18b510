//! States of vdevs and pools, as `zpool status` and `zpool import` name them.
//!
//! Source: OpenZFS `vdev_state_t`, `vdev_aux_t`, `zpool_status_t`; message ids as in `libzfs_status.c`.

use crate::config::{VdevClass, VdevKind};
use cenote_format::units::Guid;
use std::fmt;

/// The state of a vdev or of the whole pool, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VdevState {
    /// Can't be used: missing, or not what the configuration says.
    Unavailable,
    /// Taken out of use because of errors.
    Faulted,
    /// Taken out of use by the administrator.
    Offline,
    /// Physically removed.
    Removed,
    /// In use with less redundancy than configured.
    Degraded,
    /// All is well.
    Online,
}

impl fmt::Display for VdevState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            VdevState::Unavailable => "UNAVAIL",
            VdevState::Faulted => "FAULTED",
            VdevState::Offline => "OFFLINE",
            VdevState::Removed => "REMOVED",
            VdevState::Degraded => "DEGRADED",
            VdevState::Online => "ONLINE",
        })
    }
}

/// Why a vdev is not online.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// No device with this guid was found.
    CannotOpen {
        /// Where it was last.
        was: Option<String>,
    },
    /// A device is there, and its labels don't say what they must.
    CorruptedData,
    /// All labels are damaged or missing.
    BadLabel,
    /// Too few children.
    InsufficientReplicas,
    /// Set by the administrator or the fault manager.
    External,
    /// Smaller than the configuration says.
    TooSmall,
    /// Its labels are older than the pool: it was away while others wrote.
    Stale,
    /// A newer kind of vdev.
    UnsupportedKind(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::CannotOpen { was: Some(path) } => write!(f, "was {path}"),
            Trouble::CannotOpen { was: None } => f.write_str("cannot open"),
            Trouble::CorruptedData => f.write_str("corrupted data"),
            Trouble::BadLabel => f.write_str("all labels are damaged"),
            Trouble::InsufficientReplicas => f.write_str("insufficient replicas"),
            Trouble::External => f.write_str("external device fault"),
            Trouble::TooSmall => f.write_str("smaller than when it was added"),
            Trouble::Stale => f.write_str("out of date"),
            Trouble::UnsupportedKind(kind) => write!(f, "vdev type '{kind}' is not known to this version"),
        }
    }
}

/// Errors that a vdev has given since it was opened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub read: u64,
    /// Writes that failed.
    pub write: u64,
    /// Bytes that were not what was written.
    pub checksum: u64,
}

/// A vdev as status commands show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevStatus {
    /// `raidz2-0`, `mirror-1`, or the path's last part.
    pub name: String,
    /// What it is.
    pub kind: VdevKind,
    /// Its name for life.
    pub guid: Guid,
    /// The allocation class it serves; children have their parent's.
    pub class: VdevClass,
    /// Where it was found, or else was last.
    pub path: Option<String>,
    /// Its state.
    pub state: VdevState,
    /// Why it is not online.
    pub trouble: Option<Trouble>,
    /// Being filled: not all it holds is current.
    pub resilvering: bool,
    /// Errors so far; zero before the pool is assembled.
    pub errors: ErrorCounts,
    /// The vdevs below.
    pub children: Vec<VdevStatus>,
}

/// The pool's state and what to do about it, in the terms of `zpool import`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolHealth {
    /// ONLINE, DEGRADED, FAULTED or UNAVAIL.
    pub state: VdevState,
    /// OpenZFS's message id for the worst finding, `ZFS-8000-2Q`; `None` if all is well.
    pub message_id: Option<&'static str>,
    /// What is wrong, a sentence.
    pub status: Option<String>,
    /// What to do, a sentence.
    pub action: String,
    /// Whether every block may be there: the pool can be opened.
    pub importable: bool,
    /// The pool itself with its top-level vdevs (logs and other classes included).
    pub root: VdevStatus,
    /// Hot spares.
    pub spares: Vec<VdevStatus>,
    /// Cache devices.
    pub l2cache: Vec<VdevStatus>,
}
