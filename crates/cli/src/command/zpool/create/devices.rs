//! The devices of a new pool: opened under locks, and looked at for what they hold.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::{FileDevice, OpenOptions};
use cenote_pool::create::{NewDevice, NewVdev};
use cenote_pool::{FoundPool, PoolState, discover};
use cenote_runtime::Runtime;

use super::layout::Group;
use crate::outcome::CliError;

/// Opens the devices of all vdevs, so that nobody else can.
pub fn open(rt: &Runtime, groups: &[Group<'_>]) -> Result<Vec<NewVdev>, CliError> {
    let vdev = |group: &Group<'_>| {
        let devices: Result<Vec<NewDevice>, CliError> =
            group.devices.iter().map(|typed| open_one(rt, typed)).collect();
        let (kind, parity, draid, class) = (group.kind.clone(), group.parity, group.draid, group.class);
        Ok(NewVdev { kind, parity, draid, class, devices: devices? })
    };
    groups.iter().map(vdev).collect()
}

/// Opens devices that are no vdevs' likewise.
pub fn open_all(rt: &Runtime, typed: &[&str]) -> Result<Vec<NewDevice>, CliError> {
    typed.iter().map(|typed| open_one(rt, typed)).collect()
}

/// `sda` means `/dev/sda`, unless there is such a file here.
fn open_one(rt: &Runtime, typed: &str) -> Result<NewDevice, CliError> {
    let in_dev = Path::new("/dev").join(typed);
    let path = if !Path::new(typed).exists() && !typed.contains('/') && in_dev.exists() {
        in_dev
    } else {
        typed.into()
    };
    let path = std::path::absolute(&path).map_err(CliError::io(typed))?;
    let device = FileDevice::open(&path, OpenOptions::EXCLUSIVE, rt).map_err(cenote_pool::PoolError::from)?;
    let is_file = path.metadata().map_err(CliError::io(typed))?.is_file();
    Ok(NewDevice { path: path.to_string_lossy().into_owned(), device: Arc::new(device), is_file })
}

/// Sizes, and whether each is a file.
pub fn sizes(vdevs: &[NewVdev]) -> Vec<Vec<(u64, bool)>> {
    let of = |new: &NewDevice| (new.device.size_bytes(), new.is_file);
    vdevs.iter().map(|vdev| vdev.devices.iter().map(of).collect()).collect()
}

/// What is in the way of taking these devices for a pool called `name`: pools that they belong to, and files of a pool of that name beside
/// them, which nobody could tell from the new one.
pub async fn in_the_way(rt: &Runtime, name: &str, devices: &[&NewDevice]) -> Vec<String> {
    let mut problems = parts_of_pools(rt, devices).await;
    let mut folders: Vec<PathBuf> = (devices.iter().filter(|new| new.is_file))
        .filter_map(|new| Path::new(&new.path).parent().map(Path::to_path_buf))
        .collect();
    folders.sort();
    folders.dedup();
    for pool in discover(rt, &folders).await.pools {
        let is_replaced =
            pool.devices.values().all(|device| devices.iter().any(|new| new.path == device.path));
        if pool.name() == name && pool.state() != PoolState::Destroyed && !is_replaced {
            problems.push(format!("there is {} pool '{name}' beside these files", state(&pool)));
        }
    }
    problems
}

/// Pools that devices belong to. One that was destroyed has none.
pub async fn parts_of_pools(rt: &Runtime, devices: &[&NewDevice]) -> Vec<String> {
    let paths: Vec<PathBuf> = devices.iter().map(|new| PathBuf::from(&new.path)).collect();
    let mut problems = Vec::new();
    let pools = discover(rt, &paths).await.pools;
    for pool in pools.into_iter().filter(|pool| pool.state() != PoolState::Destroyed) {
        let paths = pool.devices.values().map(|device| &device.path);
        problems
            .extend(paths.map(|path| format!("{path} is part of {} pool '{}'", state(&pool), pool.name())));
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
