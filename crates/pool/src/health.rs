//! States of vdevs and pools, as `zpool status` and `zpool import` name them.
//!
//! Source: OpenZFS `vdev_state_t`, `vdev_aux_t`, `zpool_status_t`; message ids as in `libzfs_status.c`.

use crate::config::{VdevClass, VdevKind};
use crate::suspend::state::Standstill;
use cenote_format::units::Guid;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of a vdev or of the whole pool, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VdevState {
    /// Unusable: missing, or not what the configuration says.
    Unavailable,
    /// Taken out of use because of errors.
    Faulted,
    /// Taken out of use by the administrator.
    Offline,
    /// Physically removed.
    Removed,
    /// In use with less redundancy than configured.
    Degraded,
    /// No trouble.
    Online,
}

impl VdevState {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            VdevState::Unavailable => "UNAVAIL",
            VdevState::Faulted => "FAULTED",
            VdevState::Offline => "OFFLINE",
            VdevState::Removed => "REMOVED",
            VdevState::Degraded => "DEGRADED",
            VdevState::Online => "ONLINE",
        }
    }
}

impl fmt::Display for VdevState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a vdev is not online.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// No device with this guid was found.
    CannotOpen {
        /// Its last path; `None` if its name is the path.
        was: Option<String>,
    },
    /// Too few children.
    InsufficientReplicas,
    /// Set by the administrator or the fault manager.
    External,
    /// It failed too often.
    TooManyErrors,
    /// It did not answer an operation.
    Hung,
    /// Smaller than the configuration says.
    TooSmall,
    /// Its labels are older than the pool: it was away while others wrote.
    Stale,
    /// A newer kind of vdev.
    UnsupportedKind(String),
    /// A top-level vdev that no label describes, because all its devices are missing.
    MissingDevice,
    /// For a hot spare: it stands in for a device.
    InUse,
    /// Every child was taken offline.
    ChildrenOffline,
    /// None of its labels is intact.
    InvalidLabel,
    /// Its labels are another vdev's. For the pool: its metadata cannot be read, though devices are present.
    CorruptedData,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::CannotOpen { was: Some(path) } => write!(f, "was {path}"),
            Trouble::CannotOpen { was: None } => f.write_str("cannot open"),
            Trouble::InsufficientReplicas => f.write_str("insufficient replicas"),
            Trouble::External => f.write_str("external device fault"),
            Trouble::TooManyErrors => f.write_str("too many errors"),
            Trouble::Hung => f.write_str("does not answer"),
            Trouble::TooSmall => f.write_str("smaller than when it was added"),
            Trouble::Stale => f.write_str("out of date"),
            Trouble::UnsupportedKind(kind) => write!(f, "vdev type '{kind}' is not known to this version"),
            Trouble::MissingDevice => f.write_str("missing device"),
            Trouble::InUse => f.write_str("currently in use"),
            Trouble::ChildrenOffline => f.write_str("all children offline"),
            Trouble::InvalidLabel => f.write_str("invalid label"),
            Trouble::CorruptedData => f.write_str("corrupted data"),
        }
    }
}

/// Errors of a vdev since it was opened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub read: u64,
    /// Writes that failed.
    pub write: u64,
    /// Reads that returned other bytes than were written.
    pub checksum: u64,
}

/// A vdev, as status commands show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevStatus {
    /// `raidz2-0`, `mirror-1`, or the last part of the path; the whole path if that would name two devices.
    pub name: String,
    /// What it is.
    pub kind: VdevKind,
    /// Index among its parent's children.
    pub id: u64,
    /// Its guid, which never changes.
    pub guid: Guid,
    /// Its allocation class; children have their parent's.
    pub class: VdevClass,
    /// The path where it was found, or its last path.
    pub path: Option<String>,
    /// Its state.
    pub state: VdevState,
    /// Why it is not online.
    pub trouble: Option<Trouble>,
    /// Being filled: not everything on it is current.
    pub resilvering: bool,
    /// It waits for the next resilver.
    pub awaits_resilver: bool,
    /// Being removed: its blocks are being copied to other vdevs.
    pub removing: bool,
    /// Nothing new is allocated on it, or on its top-level vdev.
    pub non_allocating: bool,
    /// Bytes of the device, in whole labels, for a leaf that is present.
    pub size_bytes: Option<u64>,
    /// Bytes that a top-level vdev could grow by, because its devices are larger than it uses.
    pub expandable_bytes: u64,
    /// Errors so far; zero before the pool is assembled.
    pub errors: ErrorCounts,
    /// The vdevs below.
    pub children: Vec<VdevStatus>,
}

impl VdevStatus {
    /// Calls `visit` for this vdev and all below, parents first.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a VdevStatus)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }
}

/// The state of the pool and of all its vdevs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolHealth {
    /// The pool itself with its top-level vdevs, including logs and other classes.
    pub root: VdevStatus,
    /// Hot spares.
    pub spares: Vec<VdevStatus>,
    /// Cache devices.
    pub l2cache: Vec<VdevStatus>,
    /// Why an open pool takes no changes.
    pub standstill: Option<Standstill>,
}

impl PoolHealth {
    /// The health of a pool whose metadata can't be read. If devices that it needs are missing, that is
    /// reported as the cause.
    pub fn with_corrupted_metadata(mut self) -> PoolHealth {
        if self.is_importable() {
            (self.root.state, self.root.trouble) = (VdevState::Faulted, Some(Trouble::CorruptedData));
        }
        self
    }

    /// ONLINE, DEGRADED or UNAVAIL: what the devices make of it.
    pub fn state(&self) -> VdevState {
        self.root.state
    }

    /// The pool's state as it is shown: SUSPENDED if it takes no changes, whatever its devices' states.
    pub fn shown_state(&self) -> &'static str {
        if self.standstill.is_some() { "SUSPENDED" } else { self.state().name() }
    }

    /// Whether every block may be available, so that the pool can be opened.
    pub fn is_importable(&self) -> bool {
        self.state() >= VdevState::Degraded
    }
}
