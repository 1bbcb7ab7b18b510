//! Discovery: which pools lie on these folders, files and devices, and in what state.
//!
//! Idea: every device states what it knows about its pool: the pool's name and guid, the top-level vdev
//! that the device belongs to, with all siblings, and its own guid. Nothing else is needed, so disks may
//! have moved, changed names or come from another machine. Statements may disagree, because a device that
//! was away kept its old labels. The highest txg is right: among all devices for what concerns the pool,
//! and among a top-level vdev's devices for what concerns that vdev.
//!
//! ```text
//!   paths -> candidates -> labels       per device (scan; inside partitions, too)
//!         -> devices by pool guid       (group)
//!         -> newest config, top-level vdevs by id, holes
//!         -> every uberblock, newest first; devices by leaf guid
//! ```
//!
//! Left out with a note: older copies of a device (copies), and devices that the newest configuration no
//! longer names (replaced, detached, removed). Spares and cache devices state only their guid; the MOS
//! knows which pool they serve.
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
mod window;
mod writing;

pub use copies::{Duplicate, Preference};
pub use foreign::{Foreign, foreign};
pub use scan::machine_devices;

use crate::config::{PoolConfig, PoolState};
use crate::taps::Taps;
use cenote_boxed::boxed;
use cenote_device::Device;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use writing::Base;

pub use history::History;
pub use lost::LostStates;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Pools, by name and guid.
    pub pools: Vec<FoundPool>,
    /// Devices that could not be read, or are not what they seem. Files in a folder that are plainly not
    /// vdevs are not listed.
    pub problems: Vec<Problem>,
}

/// A problem met during the search.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// The file, device or folder.
    pub path: String,
    /// A sentence: what is wrong and what to do.
    pub why: String,
}

fn problem(path: impl std::fmt::Display, why: impl Into<String>) -> Problem {
    Problem { path: path.to_string(), why: why.into() }
}

/// A device that carries labels of a pool.
#[derive(Clone)]
pub struct FoundDevice {
    /// Where it was found.
    pub path: String,
    /// The device, open for reading; after [`FoundPool::open_for_writing`], also for writing.
    pub device: Arc<dyn Device>,
    /// The newest txg in its labels.
    pub label_txg: Txg,
    /// The newest txg of its uberblocks.
    pub uberblock_txg: Txg,
    /// Number of labels, of four, whose configuration is intact.
    pub good_labels: u32,
    /// Its labels are older than its siblings': it was away when those were written.
    pub stale: bool,
    /// Whether it was away only, or used elsewhere, too.
    pub history: History,
    base: Base,
}

impl FoundDevice {
    /// A device that was not found by a search but joins a pool.
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

    /// Where a search finds it: the path of the disk, if it is a partition that only the disk shows.
    pub fn place(&self) -> &Path {
        match &self.base {
            Base::Path(path) => path,
            Base::Given(device) => Path::new(device.describe()),
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
    /// The best configuration: pool-wide fields from the newest label, each top-level vdev from its own
    /// newest label.
    pub config: PoolConfig,
    /// Every valid uberblock of every label, newest first, each once.
    pub uberblocks: Vec<Uberblock>,
    /// The devices, by the guid of their leaf vdev.
    pub devices: BTreeMap<Guid, FoundDevice>,
    /// All spares and cache devices found, by guid; the MOS says which belong to this pool.
    pub auxiliary: BTreeMap<Guid, FoundDevice>,
    /// Devices left out; labels that disagree or are damaged.
    pub notes: Vec<Problem>,
    /// States that were newer than its newest uberblock. Commands that use the pool report that.
    pub lost: Option<LostStates>,
    /// Copies of its devices that are left out. Commands that use the pool report them.
    pub duplicates: Vec<Duplicate>,
    /// What stands between the pool and its devices, once it is opened for good.
    pub taps: Option<Arc<Taps>>,
}

impl FoundPool {
    /// Where its devices are.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.devices.values().map(|device| PathBuf::from(&device.path)).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Its guid, which never changes.
    pub fn guid(&self) -> Guid {
        self.config.guid
    }

    /// The device of a leaf vdev, spare or cache device.
    pub fn device(&self, leaf: Guid) -> Option<&FoundDevice> {
        self.devices.get(&leaf).or_else(|| self.auxiliary.get(&leaf))
    }

    /// The state in which its last writer left it.
    pub fn state(&self) -> PoolState {
        self.config.state
    }

    /// Whether users other than root and this program's own could write one of its devices when it was
    /// opened. Then they may have put anything into the pool.
    pub fn others_may_write(&self) -> bool {
        let all = self.devices.values().chain(self.auxiliary.values());
        all.into_iter().any(|found| found.device.info().others_may_write)
    }

    /// Whether its devices accept writes: none was opened read-only.
    pub fn is_writable(&self) -> bool {
        !self.devices.is_empty() && self.devices.values().all(|found| !found.device.info().read_only)
    }
}

/// Looks for pools in folders (in their files, without subfolders), files and block devices.
///
/// Never fails as a whole: whatever can't be read is listed among the problems. [`machine_devices`] lists
/// this machine's disks.
#[boxed]
pub async fn discover(rt: &Runtime, paths: &[PathBuf]) -> Discovery {
    let (scanned, problems) = scan::scan(rt, paths).await;
    group::group(scanned, problems)
}

/// As [`discover`], among devices that are already open: a simulator's, or devices with layers on top.
#[boxed]
pub async fn discover_devices(devices: Vec<Arc<dyn Device>>) -> Discovery {
    let (scanned, problems) = scan::scan_devices(devices).await;
    group::group(scanned, problems)
}
