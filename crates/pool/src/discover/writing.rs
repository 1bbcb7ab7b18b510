//! From a pool that was found to one that can be written to.
//!
//! Idea: discovery opens devices only to read, so it harms nobody. To write, each device is opened once more, under a
//! lock; and since others may have written until the lock was had, the labels are read again after that.

use super::{FoundPool, discover_devices};
use crate::error::{PoolError, Result};
use cenote_device::{Device, FileDevice, OpenOptions};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The device that a found one is, or is a partition of.
#[derive(Clone)]
pub(crate) enum Base {
    /// Opened by discovery, only to read.
    Path(PathBuf),
    /// Opened by the caller, as the caller wanted.
    Given(Arc<dyn Device>),
}

impl FoundPool {
    /// The same pool with its devices open to read and write, locked so that no other program writes to them. What it is
    /// is looked up again. Spares and cache devices stay as they are.
    ///
    /// # Errors
    /// [`PoolError::Device`]: a device is in use (and which), or may not be written; [`PoolError::Config`]: the pool was
    /// changed meanwhile.
    pub async fn open_for_writing(&self, rt: &Runtime) -> Result<FoundPool> {
        let mut opened: BTreeMap<PathBuf, Arc<dyn Device>> = BTreeMap::new();
        let mut devices = Vec::new();
        for found in self.devices.values() {
            match &found.base {
                Base::Given(device) if !devices.iter().any(|known| Arc::ptr_eq(known, device)) => {
                    devices.push(device.clone());
                }
                Base::Given(_) => {}
                Base::Path(path) if opened.contains_key(path) => {}
                Base::Path(path) => {
                    // Of a disk of partitions the other partitions may be in use.
                    let is_whole = found.path == path.to_string_lossy();
                    let options = if is_whole { OpenOptions::EXCLUSIVE } else { OpenOptions::READ_WRITE };
                    let device = FileDevice::open(path, options, rt)?;
                    if !is_whole {
                        device.lock()?;
                    }
                    opened.insert(path.clone(), Arc::new(device));
                }
            }
        }
        devices.extend(opened.into_values());
        let again = discover_devices(devices).await;
        let same = again.pools.into_iter().find(|pool| pool.guid() == self.guid());
        let same = same.filter(|pool| pool.devices.len() == self.devices.len() && pool.is_writable());
        let changed = || PoolError::Config {
            pool: self.name().into(),
            why: "its devices changed while it was being opened; try again".into(),
        };
        let auxiliary = self.auxiliary.clone();
        same.map(|pool| FoundPool { auxiliary, ..pool }).ok_or_else(changed)
    }
}
