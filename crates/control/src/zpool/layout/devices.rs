//! New devices for a pool: opened with locks, and checked for their contents.
//!
//! OpenZFS looks into block devices only; a file that contains a file system is as easily mistaken, so files
//! are checked, too.
//!
//! Source: OpenZFS `zpool_vdev_os.c` (`check_slice`), including the wording.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cenote_device::{OpenOptions, Place};
use cenote_pool::create::{NewDevice, NewVdev};
use cenote_pool::discover::{Foreign, foreign};
use cenote_pool::{FoundPool, PoolState, VdevClass, VdevKind, discover, discover_devices, discover_places};
use cenote_runtime::Runtime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Group, Layout};
use crate::error::ControlError;
use crate::session::Session;

/// The devices of a layout, opened with locks.
pub struct Opened {
    /// Vdevs, in order.
    pub vdevs: Vec<NewVdev>,
    /// Hot spares.
    pub spares: Vec<NewDevice>,
    /// Cache devices.
    pub cache: Vec<NewDevice>,
}

/// Vdevs that a pool gets, or would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Laid {
    /// In order.
    pub vdevs: Vec<LaidVdev>,
    /// Hot spares.
    pub spares: Vec<LaidDevice>,
    /// Cache devices.
    pub cache: Vec<LaidDevice>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaidVdev {
    /// The requested name, with complete dRAID geometry: `draid2:4d:11c:1s`.
    pub name: String,
    /// Kind.
    pub kind: VdevKind,
    /// Parity columns.
    pub parity: usize,
    /// Allocation class.
    pub class: VdevClass,
    /// Devices.
    pub devices: Vec<LaidDevice>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaidDevice {
    /// Path, or address.
    pub path: String,
    /// Size.
    pub size_bytes: u64,
}

impl Opened {
    /// Opens the devices of a layout exclusively.
    ///
    /// # Errors
    /// One can't be opened, or is in use.
    pub async fn of(session: &Session, layout: &Layout) -> Result<Opened, ControlError> {
        let mut vdevs = Vec::with_capacity(layout.groups.len());
        for group in &layout.groups {
            let devices = open_all(session, &group.devices).await?;
            let Group { kind, parity, class, .. } = group.clone();
            let draid = group.shape().map_err(ControlError::Usage)?;
            vdevs.push(NewVdev { kind, parity, draid, class, devices });
        }
        let spares = open_all(session, &layout.spares).await?;
        Ok(Opened { vdevs, spares, cache: open_all(session, &layout.cache).await? })
    }

    /// All of them.
    pub fn all(&self) -> Vec<&NewDevice> {
        let in_vdevs = self.vdevs.iter().flat_map(|vdev| &vdev.devices);
        in_vdevs.chain(&self.spares).chain(&self.cache).collect()
    }

    /// The answer that describes them.
    pub fn laid(&self, layout: &Layout) -> Laid {
        let device = |new: &NewDevice| LaidDevice {
            path: new.device.describe().to_owned(),
            size_bytes: new.device.size_bytes(),
        };
        let devices = |all: &[NewDevice]| all.iter().map(device).collect();
        let vdev = |(group, new): (&Group, &NewVdev)| LaidVdev {
            name: group.name(),
            kind: new.kind.clone(),
            parity: new.parity,
            class: new.class,
            devices: devices(&new.devices),
        };
        Laid {
            vdevs: layout.groups.iter().zip(&self.vdevs).map(vdev).collect(),
            spares: devices(&self.spares),
            cache: devices(&self.cache),
        }
    }
}

async fn open_all(session: &Session, typed: &[String]) -> Result<Vec<NewDevice>, ControlError> {
    let mut devices = Vec::with_capacity(typed.len());
    for typed in typed {
        devices.push(open_one(session, typed).await?);
    }
    Ok(devices)
}

/// Opens one device. `sda` means `/dev/sda`, unless the caller's directory has a file of that name.
///
/// # Errors
/// It can't be opened, or is in use; a malformed address.
pub async fn open_one(session: &Session, typed: &str) -> Result<NewDevice, ControlError> {
    let rt = session.runtime();
    let place = session.caller().place(Path::new(typed))?;
    if place.is_remote() {
        let device = session.open_device(&place, OpenOptions::EXCLUSIVE).await?;
        let path = place.in_labels().to_string_lossy().into_owned();
        return Ok(NewDevice { path, device, is_file: false });
    }
    let (in_dev, here) = (Path::new("/dev").join(typed), session.caller().local(Path::new(typed)));
    let is_name = !typed.contains('/');
    // A file system or a disk may hang.
    let find = move || if is_name && !here.exists() && in_dev.exists() { in_dev } else { here };
    let path = rt.blocking(find).await;
    let path = std::path::absolute(&path).map_err(ControlError::io(typed))?;
    let opened = cenote_device::open(&path, OpenOptions::EXCLUSIVE, rt).await;
    let device = opened.map_err(cenote_pool::PoolError::from)?;
    let of_path = path.clone();
    let metadata = rt.blocking(move || of_path.metadata()).await.map_err(ControlError::io(typed))?;
    let path = path.to_string_lossy().into_owned();
    Ok(NewDevice { path, device, is_file: metadata.is_file() })
}

/// Each device's size, and whether it is a file.
pub fn sizes(vdevs: &[NewVdev]) -> Vec<Vec<(u64, bool)>> {
    let of = |new: &NewDevice| (new.device.size_bytes(), new.is_file);
    vdevs.iter().map(|vdev| vdev.devices.iter().map(of).collect()).collect()
}

/// Reasons against making these devices a pool called `name`: their contents, and sibling files of a pool
/// with that name, which would be ambiguous.
pub async fn in_the_way(rt: &Runtime, name: &str, devices: &[&NewDevice]) -> Vec<String> {
    let mut problems = contents(rt, devices).await;
    let mut folders: Vec<PathBuf> = (devices.iter().filter(|new| new.is_file))
        .filter_map(|new| Path::new(&new.path).parent().map(Path::to_path_buf))
        .collect();
    folders.sort();
    folders.dedup();
    for pool in discover(rt, &folders).await.pools {
        let is_replaced = pool
            .devices
            .values()
            .all(|device| devices.iter().any(|new| new.device.describe() == device.path));
        if pool.name() == name && pool.state() != PoolState::Destroyed && !is_replaced {
            problems.push(format!("there is {} pool '{name}' beside these files", state(&pool)));
        }
    }
    problems
}

/// Contents that would be lost: active pool members and other known data. Destroyed pools do not count.
pub async fn contents(rt: &Runtime, devices: &[&NewDevice]) -> Vec<String> {
    let (remote, local): (Vec<&NewDevice>, Vec<&NewDevice>) =
        devices.iter().partition(|new| new.place().is_remote());
    let places: Vec<Place> = local.iter().map(|new| new.place()).collect();
    let mut problems = Vec::new();
    let mut pools = discover_places(rt, &places).await.pools;
    // A server may accept a single client.
    pools.extend(discover_devices(remote.iter().map(|new| new.device.clone()).collect()).await.pools);
    let mut members = BTreeSet::new();
    for pool in &pools {
        members.extend(pool.devices.values().map(|device| device.path.clone()));
        if pool.state() != PoolState::Destroyed {
            let part = |path| format!("{path} is part of {} pool '{}'", state(pool), pool.name());
            problems.extend(pool.devices.values().map(|device| part(&device.path)));
        }
    }
    for new in devices.iter().filter(|new| !members.contains(new.device.describe())) {
        if let Some(Foreign { kind, path }) = foreign(&new.device).await {
            problems.push(format!("{path} contains a filesystem of type '{kind}'"));
        }
    }
    problems
}

fn state(pool: &FoundPool) -> &'static str {
    match pool.state() {
        PoolState::Active => "potentially active",
        PoolState::Exported => "exported",
        _ => "unknown",
    }
}
