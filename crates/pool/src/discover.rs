//! Discovery: which pools lie on these folders, files and devices, and in what state.
//!
//! Idea: every device tells what it believes of its pool: the pool's name and guid, the top-level vdev it
//! belongs to with all siblings, its own guid. Nothing else is needed, so disks may have moved, changed
//! names or come from another machine. Beliefs may disagree, since a device that was away kept its old
//! labels; the highest txg is right, pool-wide for what concerns the pool, and among a top-level vdev's
//! devices for what concerns that vdev.
//!
//! ```text
//!   paths -> candidates -> labels       per device (scan; inside partitions, too)
//!         -> devices by pool guid       (group)
//!         -> newest config, top-level vdevs by id, holes
//!         -> every uberblock, newest first; devices by leaf guid
//! ```
//!
//! Left out with a note: a second device with the same guid, devices that the newest configuration no
//! longer names (replaced, detached, removed). Spares and cache devices say only their guid; which pool
//! they serve, the MOS knows.
//!
//! Source: OpenZFS `zutil_import.c`, `vdev_label.c`.

mod group;
mod partition;
mod scan;
#[cfg(test)]
mod tests;
mod window;
mod writing;

pub use scan::machine_devices;

use crate::config::{PoolConfig, PoolState};
use crate::health::PoolHealth;
use cenote_device::Device;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use writing::Base;

/// What a search found.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Pools, by name and guid.
    pub pools: Vec<FoundPool>,
    /// What could not be read, or is not what it seems. Things in a folder that are plainly no vdev are not listed.
    pub problems: Vec<Problem>,
}

/// Something the search stumbled over.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The device, open for reading; after [`FoundPool::open_for_writing`] for writing, too.
    pub device: Arc<dyn Device>,
    /// The newest group that its labels name.
    pub label_txg: Txg,
    /// Labels of four whose configuration is whole.
    pub good_labels: u32,
    /// Its labels are older than its siblings': it was away while they were written.
    pub stale: bool,
    base: Base,
}

impl FoundDevice {
    /// A device that no search found: one that joins a pool.
    pub fn new(device: Arc<dyn Device>) -> FoundDevice {
        FoundDevice {
            path: device.describe().to_owned(),
            label_txg: Txg(0),
            good_labels: 0,
            stale: false,
            base: Base::Given(device.clone()),
            device,
        }
    }
}

impl std::fmt::Debug for FoundDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FoundDevice({}, txg {}, {}/4 labels)", self.path, self.label_txg, self.good_labels)
    }
}

/// A pool as its labels show it.
#[derive(Debug, Clone)]
pub struct FoundPool {
    /// The best configuration: pool fields of the newest label, and each top-level vdev as its newest label has it.
    pub config: PoolConfig,
    /// Every valid uberblock of every label, newest first, each once.
    pub uberblocks: Vec<Uberblock>,
    /// The devices, by the guid of their leaf vdev.
    pub devices: BTreeMap<Guid, FoundDevice>,
    /// All spares and cache devices that the search found, by guid; the MOS says which are this pool's.
    pub auxiliary: BTreeMap<Guid, FoundDevice>,
    /// Devices left out, labels that disagree or are damaged.
    pub notes: Vec<Problem>,
}

impl FoundPool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Its name for life.
    pub fn guid(&self) -> Guid {
        self.config.guid
    }

    /// The device of a leaf vdev, spare or cache device.
    pub fn device(&self, leaf: Guid) -> Option<&FoundDevice> {
        self.devices.get(&leaf).or_else(|| self.auxiliary.get(&leaf))
    }

    /// What its last writer left it as.
    pub fn state(&self) -> PoolState {
        self.config.state
    }

    /// Its devices take writes: none was opened only to read.
    pub fn is_writable(&self) -> bool {
        !self.devices.is_empty() && self.devices.values().all(|found| !found.device.info().read_only)
    }

    /// State of the pool and every vdev, with the reason and what to do.
    pub fn status(&self) -> PoolHealth {
        crate::status::of_found(self)
    }
}

/// Looks for pools in folders (their files, not those below), files and block devices.
///
/// Never fails as a whole: what can't be read is among the problems. [`machine_devices`] lists this machine's disks.
pub async fn discover(rt: &Runtime, paths: &[PathBuf]) -> Discovery {
    let (scanned, problems) = scan::scan(rt, paths).await;
    group::group(scanned, problems)
}

/// As [`discover`], among devices that are open already: a simulator's, or ones with layers on them.
pub async fn discover_devices(devices: Vec<Arc<dyn Device>>) -> Discovery {
    let (scanned, problems) = scan::scan_devices(devices).await;
    group::group(scanned, problems)
}
