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
        /// Where it was last; `None` if it goes by that name.
        was: Option<String>,
    },
    /// Too few children.
    InsufficientReplicas,
    /// Set by the administrator or the fault manager.
    External,
    /// It left an operation unanswered.
    Hung,
    /// Smaller than the configuration says.
    TooSmall,
    /// Its labels are older than the pool: it was away while others wrote.
    Stale,
    /// A newer kind of vdev.
    UnsupportedKind(String),
    /// A top-level vdev that no label describes: all its devices are missing.
    MissingDevice,
    /// Of a hot spare: it stands in for a device.
    InUse,
    /// Every child was taken offline.
    ChildrenOffline,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::CannotOpen { was: Some(path) } => write!(f, "was {path}"),
            Trouble::CannotOpen { was: None } => f.write_str("cannot open"),
            Trouble::InsufficientReplicas => f.write_str("insufficient replicas"),
            Trouble::External => f.write_str("external device fault"),
            Trouble::Hung => f.write_str("does not answer"),
            Trouble::TooSmall => f.write_str("smaller than when it was added"),
            Trouble::Stale => f.write_str("out of date"),
            Trouble::UnsupportedKind(kind) => write!(f, "vdev type '{kind}' is not known to this version"),
            Trouble::MissingDevice => f.write_str("missing device"),
            Trouble::InUse => f.write_str("currently in use"),
            Trouble::ChildrenOffline => f.write_str("all children offline"),
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
    /// `raidz2-0`, `mirror-1`, or the path's last part; the whole path where that would name two devices.
    pub name: String,
    /// What it is.
    pub kind: VdevKind,
    /// Index among its parent's children.
    pub id: u64,
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
    /// Being removed: its blocks are copied to other vdevs.
    pub removing: bool,
    /// Nothing new is written to it, or to the top-level vdev that it is part of.
    pub non_allocating: bool,
    /// Bytes of the device, in whole labels; of a leaf that is there.
    pub size_bytes: Option<u64>,
    /// Bytes that a top-level vdev could grow by, since its devices are larger than it uses.
    pub expandable_bytes: u64,
    /// Errors so far; zero before the pool is assembled.
    pub errors: ErrorCounts,
    /// The vdevs below.
    pub children: Vec<VdevStatus>,
}

impl VdevStatus {
    /// Calls `visit` on this vdev and all below, parents first.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a VdevStatus)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }
}

/// The state of the pool and of all its vdevs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolHealth {
    /// The pool itself with its top-level vdevs, logs and other classes included.
    pub root: VdevStatus,
    /// Hot spares.
    pub spares: Vec<VdevStatus>,
    /// Cache devices.
    pub l2cache: Vec<VdevStatus>,
}

impl PoolHealth {
    /// ONLINE, DEGRADED or UNAVAIL.
    pub fn state(&self) -> VdevState {
        self.root.state
    }

    /// Every block may be there: the pool can be opened.
    pub fn is_importable(&self) -> bool {
        self.state() >= VdevState::Degraded
    }
}
