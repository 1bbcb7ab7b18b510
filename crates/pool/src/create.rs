//! Plans a new pool: from devices to a configuration. Writes nothing.
//!
//! ```text
//!   NewVdev (kind, devices) --plan--> PoolConfig of the MOS   guids, sizes, sector and metaslab sizes
//!                                     FoundPool               input of `Pool::assemble`
//! ```
//!
//! Source: OpenZFS `vdev.c` (`vdev_open`, `vdev_metaslab_set_size`), `vdev_raidz.c`, `vdev_draid.c`
//! (`vdev_draid_open`).

use crate::config::{PoolConfig as Config, VdevClass, VdevConfig, VdevKind};
use crate::discover::{FoundDevice, FoundPool};
use crate::error::{PoolError, Result};
use crate::label::SPA_MINDEVSIZE;
use cenote_device::{Device, Place};
use cenote_format::draid::{VDEV_DRAID_REFLOW_RESERVE, VDEV_DRAID_ROWHEIGHT};
use cenote_format::features::SPA_VERSION_FEATURES;
pub use cenote_format::label::DraidConfig;
use cenote_format::label::{PoolConfig, PoolState, VDEV_LABELS_BYTES};
use cenote_format::nvlist::Nvlist;
use cenote_format::units::{Guid, Txg};
use cenote_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `ASHIFT_MIN`, `ASHIFT_MAX`.
pub const ASHIFTS: std::ops::RangeInclusive<u32> = 9..=16;
/// Largest ashift chosen automatically (`zfs_vdev_max_auto_ashift`).
const MAX_AUTO_ASHIFT: u32 = 14;
/// Sizes are rounded down to whole labels.
const LABEL_BYTES: u64 = 256 << 10;
/// `zfs_vdev_default_ms_shift`, `zfs_vdev_max_ms_shift` and the counts that choose between them.
const DEFAULT_METASLAB_SHIFT: u32 = 29;
const MAX_METASLAB_SHIFT: u32 = 34;
const MIN_METASLABS: u64 = 16;
const DEFAULT_METASLABS: u64 = 200;
const MAX_METASLABS: u64 = 1 << 17;
/// `SPA_MAXBLOCKSHIFT`: a metaslab holds at least the largest block.
const MIN_METASLAB_SHIFT: u32 = 24;

/// A device for a new vdev.
#[derive(Clone)]
pub struct NewDevice {
    /// Path in the configuration.
    pub path: String,
    /// Open for writing.
    pub device: Arc<dyn Device>,
    /// A file rather than a disk.
    pub is_file: bool,
}

impl NewDevice {
    /// Where it is.
    pub fn place(&self) -> Place {
        self.device.info().place()
    }
}

/// A top-level vdev to be created.
#[derive(Clone)]
pub struct NewVdev {
    /// [`VdevKind::Mirror`], [`VdevKind::Raidz`], [`VdevKind::Draid`], or [`VdevKind::Disk`] for one disk or
    /// file.
    pub kind: VdevKind,
    /// Parity columns of RAID-Z and dRAID.
    pub parity: usize,
    /// Shape of a dRAID.
    pub draid: Option<DraidConfig>,
    /// Allocation class.
    pub class: VdevClass,
    /// Its devices.
    pub devices: Vec<NewDevice>,
}

/// A new pool, not yet written.
pub struct Plan {
    /// Configuration for the MOS.
    pub config: PoolConfig,
    /// The pool as discovery would return it.
    pub found: FoundPool,
}

/// Lays out a pool. `ashift` overrides the automatic choice; `host` is this machine's id and name.
///
/// # Errors
/// A device is too small, a vdev has too few devices, or the ashift is invalid.
pub fn plan(
    rt: &Runtime,
    name: &str,
    vdevs: &[NewVdev],
    ashift: Option<u32>,
    host: (u64, &str),
    txg: Txg,
) -> Result<Plan> {
    let mut root = VdevConfig::new(VdevKind::Root, 0, new_guid(rt));
    root.create_txg = txg;
    let NewTops { configs, devices } = plan_vdevs(rt, name, vdevs, ashift, (0, txg))?;
    root.children = configs;
    let config = PoolConfig {
        version: SPA_VERSION_FEATURES,
        name: name.into(),
        state: PoolState::Active,
        txg,
        pool_guid: root.guid,
        errata: Some(0),
        hostid: (host.0 != 0).then_some(host.0),
        hostname: Some(host.1.into()),
        comment: None,
        compatibility: None,
        top_guid: None,
        guid: None,
        is_spare: false,
        is_log: false,
        create_txg: None,
        vdev_children: Some(vdevs.len() as u64),
        hole_array: Vec::new(),
        vdev_tree: root,
        features_for_read: Vec::new(),
        has_per_vdev_zaps: true,
        split_guid: None,
        split: None,
        other: Nvlist::new(),
    };
    let assembled = Config::from_mos(&config.encode())
        .map_err(|source| PoolError::Format { what: format!("pool '{name}'").into(), source })?;
    let found = FoundPool {
        config: assembled,
        uberblocks: Vec::new(),
        devices,
        auxiliary: BTreeMap::new(),
        notes: Vec::new(),
        lost: None,
        duplicates: Vec::new(),
        taps: None,
        fence: None,
    };
    Ok(Plan { config, found })
}

/// New top-level vdevs, not yet written.
pub struct NewTops {
    /// Configurations for the MOS.
    pub configs: Vec<VdevConfig>,
    /// Devices by guid.
    pub devices: BTreeMap<Guid, FoundDevice>,
}

/// Lays out vdevs of a pool, numbered from `first_id` on and created in txg `txg`.
///
/// # Errors
/// As [`plan`].
pub fn plan_vdevs(
    rt: &Runtime,
    pool: &str,
    vdevs: &[NewVdev],
    ashift: Option<u32>,
    (first_id, txg): (u64, Txg),
) -> Result<NewTops> {
    let mut tops = NewTops { configs: Vec::new(), devices: BTreeMap::new() };
    for (id, vdev) in (first_id..).zip(vdevs) {
        tops.configs.push(top(rt, pool, id, vdev, ashift, txg, &mut tops.devices)?);
    }
    Ok(tops)
}

fn top(
    rt: &Runtime,
    pool: &str,
    id: u64,
    vdev: &NewVdev,
    ashift: Option<u32>,
    txg: Txg,
    devices: &mut BTreeMap<Guid, FoundDevice>,
) -> Result<VdevConfig> {
    let refused = |why: String| PoolError::Config { pool: pool.into(), why: why.into() };
    if vdev.devices.len() <= vdev.parity {
        return Err(refused(format!("raidz{} needs at least {} devices", vdev.parity, vdev.parity + 2)));
    }
    let (mut smallest, mut sector) = (u64::MAX, 0);
    let mut children = Vec::new();
    for (index, new) in (0..).zip(&vdev.devices) {
        let info = new.device.info();
        if info.size_bytes < SPA_MINDEVSIZE {
            return Err(refused(format!("{}: a device must have at least 64 MiB", new.path)));
        }
        smallest = smallest.min(info.size_bytes / LABEL_BYTES * LABEL_BYTES - VDEV_LABELS_BYTES);
        sector = sector.max(info.sector_bytes.checked_ilog2().unwrap_or(0));
        let kind = if new.is_file { VdevKind::File } else { VdevKind::Disk };
        let mut leaf = VdevConfig::new(kind, index, new_guid(rt));
        (leaf.path, leaf.create_txg) = (Some(new.path.clone()), txg);
        devices.insert(leaf.guid, FoundDevice::new(new.device.clone()));
        children.push(leaf);
    }
    let ashift = ashift.unwrap_or_else(|| sector.clamp(*ASHIFTS.start(), MAX_AUTO_ASHIFT));
    if !ASHIFTS.contains(&ashift) || ashift < sector {
        return Err(refused(format!(
            "ashift {ashift} does not fit devices with sectors of {} bytes",
            1u64 << sector
        )));
    }
    let mut top = match vdev.kind {
        VdevKind::Disk | VdevKind::File => children.remove(0),
        _ => VdevConfig::new(vdev.kind.clone(), 0, new_guid(rt)),
    };
    top.id = id;
    top.create_txg = txg;
    top.class = vdev.class;
    top.parity = vdev.parity;
    top.draid = vdev.draid;
    top.children = children;
    if let Some(shape) = vdev.draid
        && shape.spares.saturating_add(shape.data + vdev.parity as u64) > vdev.devices.len() as u64
    {
        return Err(refused("the dRAID has too few devices for a group and its spares".into()));
    }
    top.asize_bytes = asize_of(&top, smallest);
    top.ashift = ashift;
    top.metaslab_shift = metaslab_shift(top.asize_bytes);
    Ok(top)
}

/// Capacity of a top-level vdev whose smallest device has `child_bytes` between its labels.
pub fn asize_of(top: &VdevConfig, child_bytes: u64) -> u64 {
    let count = top.children.len() as u64;
    match (&top.kind, top.draid) {
        (VdevKind::Raidz, _) => child_bytes.saturating_mul(count),
        (VdevKind::Draid, Some(shape)) => {
            let width = shape.data.saturating_add(top.parity as u64);
            draid_asize(child_bytes, count.saturating_sub(shape.spares), width)
        }
        _ => child_bytes,
    }
}

/// Whole rows less a reserve for expansion, in whole redundancy groups (`vdev_draid_open`).
fn draid_asize(child_bytes: u64, disks: u64, group_width: u64) -> u64 {
    let rows = child_bytes.saturating_sub(VDEV_DRAID_REFLOW_RESERVE) / VDEV_DRAID_ROWHEIGHT;
    let group_bytes = group_width.max(1).saturating_mul(VDEV_DRAID_ROWHEIGHT);
    (rows * VDEV_DRAID_ROWHEIGHT).saturating_mul(disks) / group_bytes * group_bytes
}

/// log2, for about 200 metaslabs (`vdev_metaslab_set_size`).
fn metaslab_shift(asize_bytes: u64) -> u32 {
    // `highbit64`: the position of the highest bit, counted from 1.
    let highbit = |value: u64| value.checked_ilog2().map_or(0, |log| log + 1);
    let shift = match asize_bytes >> DEFAULT_METASLAB_SHIFT {
        count if count < MIN_METASLABS => highbit(asize_bytes / MIN_METASLABS),
        count if count > DEFAULT_METASLABS => highbit(asize_bytes / DEFAULT_METASLABS),
        _ => DEFAULT_METASLAB_SHIFT,
    };
    let shift = shift.clamp(MIN_METASLAB_SHIFT, MAX_METASLAB_SHIFT);
    if asize_bytes >> shift > MAX_METASLABS { highbit(asize_bytes / MAX_METASLABS) } else { shift }
}

/// Never 0.
fn new_guid(rt: &Runtime) -> Guid {
    Guid(rt.random_u64().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metaslabs_are_as_large_as_openzfs_makes_them() {
        // vdev size and shift, following the comment on vdev_metaslab_set_size.
        for (asize, shift) in [(59 << 20, 24), (4 << 30, 29), (16 << 30, 29), (1 << 40, 33), (1 << 52, 36)] {
            assert_eq!(metaslab_shift(asize), shift, "{asize}");
        }
    }
}
