//! Where to search for a pool's devices.
//!
//! ```text
//!   known places --> their folders --> the search folders, or all block devices
//! ```
//!
//! Idea: labels identify devices by guid; a place is only a hint. Each step adds places, until all the pool's
//! devices are found.

use std::collections::BTreeSet;
use std::path::Path;

use cenote_boxed::boxed;
use cenote_device::Place;
use cenote_engine::Engine;
use cenote_pool::discover::machine_devices;
use cenote_pool::{Discovery, FoundDevice, FoundPool, VdevConfig, VdevKind, discover_places};
use cenote_runtime::Runtime;

use crate::record::NotedPool;

/// How far to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Known places.
    Places,
    /// Also the folders of these.
    Folders,
    /// Also the default search places.
    Everywhere,
}

impl Reach {
    const ALL: [Reach; 3] = [Reach::Places, Reach::Folders, Reach::Everywhere];
}

/// Places within reach, if they are remote or exist. `search` are folders, files and devices; if empty, all
/// block devices of this machine.
#[boxed]
pub async fn within(runtime: &Runtime, places: Vec<Place>, search: &[Place], reach: Reach) -> Vec<Place> {
    let search = search.to_vec();
    // The file system of a place may hang.
    let look = move || {
        let mut all: BTreeSet<Place> = places.into_iter().collect();
        if reach >= Reach::Folders {
            let folders = all.iter().filter_map(|place| place.path()?.parent().map(Place::from));
            let folders: Vec<Place> = folders.collect();
            all.extend(folders);
        }
        if reach >= Reach::Everywhere {
            let machine = || machine_devices().into_iter().map(Place::Path).collect();
            all.extend(if search.is_empty() { machine() } else { search });
        }
        all.into_iter().filter(|place| place.path().is_none_or(Path::exists)).collect()
    };
    runtime.blocking(look).await
}

/// Current or last places of an open pool's devices, including those at opening (`first`).
pub(crate) fn places_of(engine: &Engine, first: &[Place]) -> Vec<Place> {
    let pool = engine.pool();
    let (config, found) = (pool.tree().config(), pool.tree().found());
    let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
    let known = leaves.filter_map(|leaf| leaf.path.as_ref().map(|path| Place::from(Path::new(path))));
    let here = found.devices.values().map(FoundDevice::place);
    let all: BTreeSet<Place> = first.iter().cloned().chain(known).chain(here).collect();
    all.into_iter().collect()
}

/// Searches for a recorded pool: returns the first result with all devices, or the widest.
#[boxed]
pub async fn find(runtime: &Runtime, noted: &NotedPool, search: &[Place]) -> Discovery {
    let mut found = Discovery::default();
    for reach in Reach::ALL {
        let places = within(runtime, noted.places(), search, reach).await;
        found = discover_places(runtime, &places).await;
        if found.pools.iter().any(|pool| noted.is(pool.name(), pool.guid()) && is_whole(pool, noted)) {
            break;
        }
    }
    found
}

/// Whether all devices in the labels and the record are present.
fn is_whole(found: &FoundPool, noted: &NotedPool) -> bool {
    let is_there = |leaf: &VdevConfig| {
        let has_device = matches!(leaf.kind, VdevKind::Disk | VdevKind::File);
        !has_device || leaf.is_taken_out() || found.device(leaf.guid).is_some()
    };
    let tops = &found.config.vdevs;
    tops.iter().all(|top| top.kind != VdevKind::Missing && top.leaves().all(is_there))
        && noted.devices.iter().filter(|device| device.guid != 0).all(|device| {
            let is_known = |leaf: &VdevConfig| leaf.guid.0 == device.guid;
            let in_tree = tops.iter().flat_map(VdevConfig::leaves).find(|leaf| is_known(leaf));
            in_tree.is_some_and(is_there) || found.auxiliary.keys().any(|guid| guid.0 == device.guid)
        })
}
