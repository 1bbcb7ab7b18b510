//! States of vdevs and pools, as `zpool status` and `zpool import` name them.
//!
//! Source: OpenZFS `vdev_state_t`, `vdev_aux_t`, `zpool_status_t`; message ids as in `libzfs_status.c`.

use crate::config::{VdevClass, VdevKind};
use crate::suspend::state::Standstill;
use cenote_format::units::Guid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of a vdev or pool, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VdevState {
    /// Missing, or in conflict with the configuration.
    Unavailable,
    /// Taken out of use after errors.
    Faulted,
    /// Taken out of use by the administrator.
    Offline,
    /// Physically removed.
    Removed,
    /// In use with less redundancy than configured.
    Degraded,
    /// Healthy.
    Online,
}

impl VdevState {
    /// The displayed name.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Too many I/O errors.
    TooManyErrors,
    /// An operation was not answered.
    Hung,
    /// Smaller than the configuration requires.
    TooSmall,
    /// It missed writes: its labels are old.
    Stale,
    /// An unknown, newer kind of vdev.
    UnsupportedKind(String),
    /// No label describes this top-level vdev.
    MissingDevice,
    /// A hot spare that stands in for a device.
    InUse,
    /// Every child was taken offline.
    ChildrenOffline,
    /// None of its labels is intact.
    InvalidLabel,
    /// Labels of another vdev. For the pool: its metadata is unreadable.
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
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCounts {
    /// Failed reads.
    pub read: u64,
    /// Failed writes.
    pub write: u64,
    /// Reads with a checksum mismatch.
    pub checksum: u64,
}

/// A vdev, as status commands show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VdevStatus {
    /// `raidz2-0`, `mirror-1`, or the path; without its folders if unambiguous.
    pub name: String,
    /// Kind.
    pub kind: VdevKind,
    /// Index among its parent's children.
    pub id: u64,
    /// Guid.
    pub guid: Guid,
    /// Allocation class, the parent's for children.
    pub class: VdevClass,
    /// Current or last path.
    pub path: Option<String>,
    /// State.
    pub state: VdevState,
    /// Why it is not online.
    pub trouble: Option<Trouble>,
    /// Being resilvered.
    pub resilvering: bool,
    /// Waiting for the next resilver.
    pub awaits_resilver: bool,
    /// Its blocks are copied to other vdevs.
    pub removing: bool,
    /// It or its top-level vdev accepts no allocations.
    pub non_allocating: bool,
    /// Device size of a present leaf, in whole labels.
    pub size_bytes: Option<u64>,
    /// Unused growth of a top-level vdev.
    pub expandable_bytes: u64,
    /// Errors so far.
    pub errors: ErrorCounts,
    /// Slow operations so far of a leaf with a device in an open pool.
    #[serde(default)]
    pub slow_ios: Option<u64>,
    /// Child vdevs.
    pub children: Vec<VdevStatus>,
}

impl VdevStatus {
    /// The state column of `zpool status`. Spares are available or in use.
    pub fn shown_state(&self, is_spare: bool) -> &'static str {
        match (&self.trouble, self.state) {
            (Some(Trouble::InUse), _) if is_spare => "INUSE",
            (_, VdevState::Online) if is_spare => "AVAIL",
            (_, state) => state.name(),
        }
    }

    /// Visits all vdevs, parents first.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a VdevStatus)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }
}

/// The state of a pool and all its vdevs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolHealth {
    /// The pool with its top-level vdevs of all classes.
    pub root: VdevStatus,
    /// Hot spares.
    pub spares: Vec<VdevStatus>,
    /// Cache devices.
    pub l2cache: Vec<VdevStatus>,
    /// Why an open pool accepts no changes.
    pub standstill: Option<Standstill>,
}

impl PoolHealth {
    /// Health of a pool with unreadable metadata, unless missing devices are the cause.
    pub fn with_corrupted_metadata(mut self) -> PoolHealth {
        if self.is_importable() {
            (self.root.state, self.root.trouble) = (VdevState::Faulted, Some(Trouble::CorruptedData));
        }
        self
    }

    /// ONLINE, DEGRADED or UNAVAIL, derived from the devices.
    pub fn state(&self) -> VdevState {
        self.root.state
    }

    /// As displayed: SUSPENDED if the pool accepts no changes.
    pub fn shown_state(&self) -> &'static str {
        if self.standstill.is_some() { "SUSPENDED" } else { self.state().name() }
    }

    /// Visits the devices of the pool, its spares and cache devices included.
    pub fn each_leaf<'a>(&'a self, visit: &mut impl FnMut(&'a VdevStatus)) {
        for vdev in [&self.root].into_iter().chain(&self.spares).chain(&self.l2cache) {
            vdev.walk(&mut |vdev| {
                let is_none = matches!(vdev.kind, VdevKind::Root | VdevKind::Hole | VdevKind::Indirect);
                if vdev.children.is_empty() && !is_none {
                    visit(vdev);
                }
            });
        }
    }

    /// Whether the pool can be opened.
    pub fn is_importable(&self) -> bool {
        self.state() >= VdevState::Degraded
    }
}
