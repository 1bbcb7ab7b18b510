//! Describes the machine and the targets, so that a reader can trust a result and compare it.
//!
//! ```text
//! target ──> mount (mountinfo) ──┬─> device ──> a partition's disk, slaves of dm and md, a loop file
//!                                └─> dataset of a pool (zpool, zfs) ──> vdevs ──> their devices
//! ```
//!
//! The facts come from `/proc`, `/sys` and the programs `zpool` and `zfs`. All are optional:
//! [`Machine::missing`] lists those that could not be determined. [`Root`] gives the location of `/proc` and
//! `/sys`, so that recordings can be described, too.

mod block;
pub(crate) mod caches;
mod cpu;
pub(crate) mod date;
mod disk;
mod mount;
mod network;
mod root;
pub mod zpool;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use cpu::Cpu;
pub use disk::{Disk, Transport};
pub use mount::Mount;
pub use network::Interface;
pub use root::Root;

use crate::Result;
use crate::load::samples::Missing;
use crate::load::target::{Target, TargetKind};
use zpool::{Pool, Zpool};

/// A machine, as far as it matters for storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// `Debian GNU/Linux 12 (bookworm)`.
    pub os: String,
    /// `Linux 6.1.0-56-amd64`.
    pub kernel: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Its host, unless it is a physical machine: `KVM (Standard PC)`, `virtual machine`, `container`.
    pub virtualisation: Option<String>,
    /// Processors.
    pub cpu: Cpu,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Swap in bytes.
    pub swap_bytes: u64,
    /// OpenZFS, if present.
    pub zfs: Option<Zfs>,
    /// Disks under the targets; all disks without targets.
    pub disks: Vec<Disk>,
    /// Network interfaces that are up.
    pub interfaces: Vec<Interface>,
    /// Locations of the targets.
    pub places: Vec<TargetPlace>,
    /// Pools that hold targets; all imported ones without targets.
    pub pools: Vec<Pool>,
    /// Facts that could not be determined.
    pub missing: Vec<Missing>,
}

/// OpenZFS on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zfs {
    /// Version of the programs.
    pub userland: String,
    /// Version of the module.
    pub kernel: String,
    /// Module parameters that matter for speed ([`PARAMETERS`]).
    pub parameters: BTreeMap<String, String>,
}

/// Location of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetPlace {
    /// Name of the target.
    pub target: String,
    /// Path of the target.
    pub path: PathBuf,
    /// Folder, file or device.
    pub kind: TargetKind,
    /// File system; None for a device.
    pub mount: Option<Mount>,
    /// Dataset of the target, or the volume it is.
    pub dataset: Option<String>,
    /// Devices under it, top to bottom: `md0`, `sda`, `sdb`.
    pub devices: Vec<String>,
}

/// Recorded module parameters.
pub const PARAMETERS: [&str; 18] = [
    "l2arc_headroom",
    "l2arc_noprefetch",
    "l2arc_write_boost",
    "l2arc_write_max",
    "zfs_arc_max",
    "zfs_arc_min",
    "zfs_compressed_arc_enabled",
    "zfs_dirty_data_max",
    "zfs_immediate_write_sz",
    "zfs_prefetch_disable",
    "zfs_sync_taskq_batch_pct",
    "zfs_txg_timeout",
    "zfs_vdev_async_read_max_active",
    "zfs_vdev_async_write_max_active",
    "zfs_vdev_max_active",
    "zfs_vdev_sync_read_max_active",
    "zfs_vdev_sync_write_max_active",
    "zfetch_max_distance",
];

impl Machine {
    /// Describes this machine as seen from these targets.
    pub fn describe(targets: &[Target]) -> Machine {
        Machine::describe_at(&Root::default(), Zpool::find(), targets)
    }

    /// Describes a machine with `/proc` and `/sys` under `root` and its pools in `zpool`.
    pub fn describe_at(root: &Root, zpool: Result<Zpool>, targets: &[Target]) -> Machine {
        let mut missing = Vec::new();
        let mut miss = |source: &str, why: String| missing.push(Missing { source: source.to_owned(), why });
        let zpool = zpool.map_err(|error| miss("zpool", error.to_string())).ok();
        let mounts = mount::all(root).map_err(|error| miss("mounts", error.to_string())).unwrap_or_default();
        let mut places: Vec<TargetPlace> =
            targets.iter().map(|target| TargetPlace::of(target, root, &mounts)).collect();

        let pool_of = |place: &TargetPlace| {
            place.dataset.as_deref().and_then(|d| d.split('/').next()).map(str::to_owned)
        };
        let mut names: Vec<String> = match (&zpool, targets.is_empty()) {
            (Some(zpool), true) => {
                zpool.names().map_err(|error| miss("zpool", error.to_string())).unwrap_or_default()
            }
            _ => places.iter().filter_map(pool_of).collect(),
        };
        names.sort();
        names.dedup();
        let mut pools = Vec::new();
        for (zpool, name) in names.iter().filter_map(|name| Some((zpool.as_ref()?, name))) {
            match zpool.pool(name) {
                Ok(pool) => pools.push(pool),
                Err(error) => miss("zpool", error.to_string()),
            }
        }
        for place in &mut places {
            if let Some(pool) = pools.iter().find(|pool| Some(&pool.name) == pool_of(place).as_ref()) {
                place.devices.extend(pool_devices(pool, root, &mounts));
            }
        }
        let mut devices: Vec<String> = places.iter().flat_map(|place| place.devices.clone()).collect();
        if targets.is_empty() {
            devices = block::all(root);
        }
        devices.sort();
        devices.dedup();

        let kernel = root.word("proc/sys/kernel/osrelease").map(|release| format!("Linux {release}"));
        Machine {
            host: root.word("proc/sys/kernel/hostname").unwrap_or_default(),
            os: cpu::os(root).unwrap_or_default(),
            kernel: kernel.unwrap_or_default(),
            architecture: std::env::consts::ARCH.to_owned(),
            virtualisation: cpu::virtualisation(root),
            cpu: Cpu::read(root),
            memory_bytes: cpu::memory(root, "MemTotal").unwrap_or(0),
            swap_bytes: cpu::memory(root, "SwapTotal").unwrap_or(0),
            zfs: zpool.map(|zpool| Zfs::of(&zpool, root)),
            disks: devices.iter().map(|device| Disk::read(root, device)).collect(),
            interfaces: network::up(root),
            places,
            pools,
            missing,
        }
    }
}

impl Zfs {
    fn of(zpool: &Zpool, root: &Root) -> Zfs {
        let value =
            |name: &&str| Some(((*name).to_owned(), root.word(format!("sys/module/zfs/parameters/{name}"))?));
        Zfs {
            userland: zpool.userland().to_owned(),
            kernel: zpool.kernel().to_owned(),
            parameters: PARAMETERS.iter().filter_map(value).collect(),
        }
    }
}

impl TargetPlace {
    fn of(target: &Target, root: &Root, mounts: &[Mount]) -> TargetPlace {
        let mut place = TargetPlace {
            target: target.name.clone(),
            path: target.path.clone(),
            kind: target.kind,
            mount: None,
            dataset: None,
            devices: Vec::new(),
        };
        if target.kind == TargetKind::Device {
            place.devices = block::under(root, mounts, &target.path);
            place.dataset = block::volume(root, &target.path);
        } else if let Some(mount) = mount::of(mounts, &target.path) {
            place.devices = block::under_mount(root, mounts, mount);
            place.dataset = (mount.kind == "zfs").then(|| mount.source.clone());
            place.mount = Some(mount.clone());
        }
        place
    }
}

/// Devices under a device node or file, top to bottom: `md0`, `sda`, `sdb`; the disk is last.
pub fn disks_under(root: &Root, path: &Path) -> Vec<String> {
    block::under(root, &mount::all(root).unwrap_or_default(), path)
}

fn pool_devices(pool: &Pool, root: &Root, mounts: &[Mount]) -> Vec<String> {
    let paths = pool.vdevs.iter().flat_map(|vdev| vdev.leaves()).filter_map(|leaf| leaf.path.clone());
    let mut devices: Vec<String> = Vec::new();
    for device in paths.flat_map(|path| block::under(root, mounts, path.as_ref())) {
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

#[cfg(test)]
mod tests;
