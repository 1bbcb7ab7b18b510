//! Discovery: finds pools on folders, files and devices, and determines their state.
//!
//! Idea: every device states its own guid, the pool's name and guid, and its top-level vdev with all
//! siblings. So disks may have moved, changed names or come from another machine. A device that was away
//! keeps its old labels, so the highest txg wins, for the pool and for each top-level vdev.
//!
//! ```text
//!   paths -> candidates -> labels       per device (scan; inside partitions, too)
//!         -> devices by pool guid       (group)
//!         -> newest config, top-level vdevs by id, holes
//!         -> every uberblock, newest first; devices by leaf guid
//! ```
//!
//! Older copies of a device (copies), and devices that the newest configuration no longer names, are left out
//! with a note. Spares and cache devices state only their guid; the MOS knows their pool.
//!
//! Source: OpenZFS `zutil_import.c`, `vdev_label.c`.

mod copies;
mod foreign;
mod group;
mod history;
mod lost;
mod partition;
mod scan;
mod seat;
#[cfg(test)]
mod tests;
mod trusted;
mod window;
mod writing;

pub use copies::{Duplicate, Preference};
pub use foreign::{Foreign, foreign};
pub use scan::machine_devices;

use crate::config::{PoolConfig, PoolState};
use crate::leaf_io::LeafIoTable;
use cenote_boxed::boxed;
use cenote_device::{Device, Fence, Place};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use writing::Base;

pub use history::History;
pub use lost::LostStates;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Pools, by name and guid.
    pub pools: Vec<FoundPool>,
    /// Unreadable or suspicious devices, without a folder's unrelated files.
    pub problems: Vec<Problem>,
}

/// A problem met during the search.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Problem {
    /// The file, device or folder.
    pub path: String,
    /// The problem and its remedy, in a sentence.
    pub why: String,
}

fn problem(path: impl std::fmt::Display, why: impl Into<String>) -> Problem {
    Problem { path: path.to_string(), why: why.into() }
}

/// A device that carries labels of a pool.
#[derive(Clone)]
pub struct FoundDevice {
    /// Its path.
    pub path: String,
    /// Read-only until [`FoundPool::open_for_writing`].
    pub device: Arc<dyn Device>,
    /// Newest txg in its labels.
    pub label_txg: Txg,
    /// Newest txg of its uberblocks.
    pub uberblock_txg: Txg,
    /// Number of labels, of four, with an intact configuration.
    pub good_labels: u32,
    /// It was away: its labels and uberblocks are older than its siblings'.
    pub stale: bool,
    /// Whether it may also have been used elsewhere.
    pub history: History,
    base: Base,
}

impl FoundDevice {
    /// A device that joins a pool without a search.
    pub fn new(device: Arc<dyn Device>) -> FoundDevice {
        FoundDevice {
            path: device.describe().to_owned(),
            label_txg: Txg(0),
            uberblock_txg: Txg(0),
            good_labels: 0,
            stale: false,
            history: History::Shared,
            base: Base::Given(device.clone()),
            device,
        }
    }

    /// The place for a search: that of the disk image around a partition.
    pub fn place(&self) -> Place {
        match &self.base {
            Base::Place(place) => place.clone(),
            Base::Given(device) => device.info().place(),
        }
    }
}

impl std::fmt::Debug for FoundDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FoundDevice({}, txg {}, {}/4 labels)", self.path, self.label_txg, self.good_labels)
    }
}

/// A pool as its labels describe it.
#[derive(Debug, Clone)]
pub struct FoundPool {
    /// Pool-wide fields and each top-level vdev from their newest labels.
    pub config: PoolConfig,
    /// Distinct valid uberblocks, newest first.
    pub uberblocks: Vec<Uberblock>,
    /// Devices by leaf guid.
    pub devices: BTreeMap<Guid, FoundDevice>,
    /// All spares and cache devices found, of any pool, by guid.
    pub auxiliary: BTreeMap<Guid, FoundDevice>,
    /// Devices left out; labels that disagree or are damaged.
    pub notes: Vec<Problem>,
    /// Signs of states newer than the newest uberblock.
    pub lost: Option<LostStates>,
    /// Copies of devices left out.
    pub duplicates: Vec<Duplicate>,
    /// Counters and fault switches, once opened for good.
    pub taps: Option<Arc<LeafIoTable>>,
    /// Stops its writes when another machine may have taken it.
    pub fence: Option<Fence>,
}

impl FoundPool {
    /// Places of its devices.
    pub fn places(&self) -> Vec<Place> {
        self.devices.values().map(FoundDevice::place).collect()
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The pool's guid.
    pub fn guid(&self) -> Guid {
        self.config.guid
    }

    /// The device of a leaf vdev, spare or cache device.
    pub fn device(&self, leaf: Guid) -> Option<&FoundDevice> {
        self.devices.get(&leaf).or_else(|| self.auxiliary.get(&leaf))
    }

    /// State left by the last writer.
    pub fn state(&self) -> PoolState {
        self.config.state
    }

    /// Whether users other than root and this program's own could write to a device. Then the pool is
    /// untrusted.
    pub fn others_may_write(&self) -> bool {
        let all = self.devices.values().chain(self.auxiliary.values());
        all.into_iter().any(|found| found.device.info().others_may_write)
    }

    /// Whether no device was opened read-only.
    pub fn is_writable(&self) -> bool {
        !self.devices.is_empty() && self.devices.values().all(|found| !found.device.info().read_only)
    }
}

/// Searches places: folders (without subfolders), files, block devices and remote disks. Unreadable ones
/// become problems, not errors. [`machine_devices`] lists this machine's disks.
#[boxed]
pub async fn discover_places(rt: &Runtime, places: &[Place]) -> Discovery {
    let (scanned, problems) = scan::scan(rt, places).await;
    group::group(scanned, problems)
}

/// As [`discover_places`], for paths.
#[boxed]
pub async fn discover(rt: &Runtime, paths: &[PathBuf]) -> Discovery {
    let places: Vec<Place> = paths.iter().map(Place::from).collect();
    discover_places(rt, &places).await
}

/// As [`discover`], among open devices: simulated, or with layers.
#[boxed]
pub async fn discover_devices(devices: Vec<Arc<dyn Device>>) -> Discovery {
    let (scanned, problems) = scan::scan_devices(devices).await;
    group::group(scanned, problems)
}
