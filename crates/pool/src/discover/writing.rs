//! Opens a discovered pool for writing.
//!
//! Idea: discovery opens devices read-only. For writing, each is opened again under a lock. Another program
//! may have written before, so the labels are read again.

use super::{FoundDevice, FoundPool, discover_devices};
use crate::config::{VdevConfig, VdevKind};
use crate::error::{PoolError, Result};
use crate::leaf_io::LeafIoTable;
use cenote_boxed::boxed;
use cenote_device::{Device, Fence, FileDevice, Gate, OpenOptions, Place, StorageLock};
use cenote_format::units::Guid;
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Times that the labels are read: a failing device may return no intact one once, and its pool must open
/// nevertheless.
const TRIES: usize = 4;

/// The device itself, or the one with the partition.
#[derive(Clone)]
pub(crate) enum Base {
    /// Opened by discovery, read-only.
    Place(Place),
    /// Opened by the caller.
    Given(Arc<dyn Device>),
}

impl FoundDevice {
    /// Opens the device for reading and writing, locked against other programs.
    ///
    /// # Errors
    /// It is in use (and by which program), or may not be written.
    pub async fn open_for_writing(&self, rt: &Runtime) -> Result<Arc<dyn Device>> {
        let Base::Place(place) = &self.base else { return Ok(self.device.clone()) };
        if !self.is_whole(place) {
            return Err(PoolError::Config {
                pool: self.path.as_str().into(),
                why: "a partition that the kernel does not know can't be opened for writing by itself".into(),
            });
        }
        self.reopen(place, OpenOptions::EXCLUSIVE, rt).await
    }

    fn is_whole(&self, place: &Place) -> bool {
        self.path == place.to_string()
    }

    /// A server may accept a single client, so the connection of discovery is kept.
    async fn reopen(&self, place: &Place, options: OpenOptions, rt: &Runtime) -> Result<Arc<dyn Device>> {
        match self.device.for_writing() {
            Some(device) => Ok(device),
            None => Ok(cenote_remote::open(place, options, rt).await?),
        }
    }
}

impl FoundPool {
    /// Opens all devices for reading and writing, locked against other programs, and reads the labels again.
    /// Spares and cache devices stay as they are.
    ///
    /// # Errors
    /// [`PoolError::Device`]: a device is in use, or may not be written; [`PoolError::Config`]: a device has
    /// two copies and neither is newer, or the pool was changed meanwhile.
    #[boxed]
    pub async fn open_for_writing(&self, rt: &Runtime) -> Result<FoundPool> {
        self.open_all(rt, false).await
    }

    /// The same, but breaks locks in the storage that other machines have, and fences these.
    ///
    /// # Errors
    /// As [`FoundPool::open_for_writing`].
    #[boxed]
    pub async fn take_over(&self, rt: &Runtime) -> Result<FoundPool> {
        self.open_all(rt, true).await
    }

    /// Whether every leaf that the pool uses is here with a lock in the storage, at least in this state. If
    /// all are ours, no other machine can change the pool.
    pub fn has_storage_locks(&self, at_least: StorageLock) -> bool {
        let has_leaves = |top: &&VdevConfig| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect);
        let leaves = self.config.vdevs.iter().filter(has_leaves);
        let mut leaves = leaves.flat_map(VdevConfig::leaves);
        leaves.all(|leaf| {
            let is_used = leaf.kind != VdevKind::DistributedSpare && !leaf.is_taken_out();
            let lock = self.device(leaf.guid).map(|found| found.device.info().nature.storage_lock);
            !is_used || lock.is_some_and(|lock| lock >= at_least)
        })
    }

    async fn open_all(&self, rt: &Runtime, takes_over: bool) -> Result<FoundPool> {
        let exclusive = OpenOptions::EXCLUSIVE.taking_over(takes_over);
        if let Some(copy) = self.duplicates.iter().find(|copy| copy.is_undecided()) {
            let why = format!(
                "{copy}, but which to change can't be told: take one of them away, or name the disks to use"
            );
            return Err(PoolError::Config { pool: self.name().into(), why: why.into() });
        }
        let mut opened: BTreeMap<&Place, Arc<dyn Device>> = BTreeMap::new();
        let mut devices = Vec::new();
        for found in self.devices.values() {
            match &found.base {
                Base::Given(device) if !devices.iter().any(|known| Arc::ptr_eq(known, device)) => {
                    devices.push(device.clone());
                }
                Base::Given(_) => {}
                Base::Place(place) if opened.contains_key(place) => {}
                Base::Place(place) => {
                    // Other partitions of the same disk may be in use.
                    let device = match (found.is_whole(place), place.path()) {
                        (true, _) => found.reopen(place, exclusive, rt).await?,
                        (false, Some(path)) => {
                            let device = FileDevice::open(path, OpenOptions::READ_WRITE, rt).await?;
                            device.lock().await?;
                            Arc::new(device)
                        }
                        (false, None) => cenote_remote::open(place, exclusive, rt).await?,
                    };
                    opened.insert(place, device);
                }
            }
        }
        devices.extend(opened.into_values());
        for _ in 0..TRIES {
            let again = discover_devices(devices.clone()).await;
            let same = again.pools.into_iter().find(|pool| pool.guid() == self.guid());
            let same = same.filter(|pool| pool.devices.len() == self.devices.len() && pool.is_writable());
            if let Some(pool) = same {
                return Ok(FoundPool { auxiliary: self.auxiliary.clone(), ..pool });
            }
        }
        let why = "its devices changed while it was being opened; try again";
        Err(PoolError::Config { pool: self.name().into(), why: why.into() })
    }

    /// Adds taps to the devices, and to those that join later.
    pub fn tapped(mut self, taps: Arc<LeafIoTable>) -> FoundPool {
        for (leaf, found) in &mut self.devices {
            found.device = taps.over(*leaf, found.device.clone());
        }
        self.taps = Some(taps);
        self
    }

    /// Puts the devices, and those that join later, behind a fence.
    pub fn fenced(mut self, fence: &Fence) -> FoundPool {
        for found in self.devices.values_mut() {
            found.device = fence.over(found.device.clone());
        }
        self.fence = Some(fence.clone());
        self
    }

    pub(crate) fn join(&mut self, mut joining: BTreeMap<Guid, FoundDevice>) {
        if let Some(fence) = &self.fence {
            for found in joining.values_mut() {
                found.device = fence.over(found.device.clone());
            }
        }
        if let Some(taps) = &self.taps {
            for (leaf, found) in &mut joining {
                found.device = taps.over(*leaf, found.device.clone());
            }
        }
        self.devices.extend(joining);
    }

    /// Holds back all writes to the devices until `gate` opens.
    pub fn behind(mut self, gate: &Gate) -> FoundPool {
        for found in self.devices.values_mut() {
            found.device = gate.hold(found.device.clone());
        }
        self
    }
}
