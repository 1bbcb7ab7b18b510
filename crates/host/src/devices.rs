//! Devices of an open pool: reports misbehaving ones as events, and finds returning ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use cenote_boxed::boxed;
use cenote_device::Place;
use cenote_engine::Engine;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::Guid;
use cenote_pool::{FoundDevice, FoundPool, PoolError, Probe, VdevConfig, discover_places};
use cenote_tasks::{Surroundings, Symptom};
use futures::future::BoxFuture;

use crate::events::Events;
use crate::places::{Reach, places_of, within};

/// A txg went on without unreadable metadata: an object stays unchanged, or space allocated.
const SET_ASIDE: &str = "ereport.org.cenote.set_aside";

/// Finds devices of missing leaves at `places` and at their known paths, and opens them for writing.
///
/// # Errors
/// A device was found but can't be opened.
#[boxed]
pub async fn returning(
    engine: &Engine,
    places: &[Place],
    leaves: &[Guid],
) -> Result<BTreeMap<Guid, FoundDevice>, PoolError> {
    let pool = engine.pool();
    let config = pool.tree().config();
    let all = config.vdevs.iter().flat_map(VdevConfig::leaves);
    let mut gone: Vec<&VdevConfig> = Vec::new();
    for leaf in all.filter(|leaf| leaves.contains(&leaf.guid)) {
        // A suspended pool still has devices in use that are gone.
        let is_missed = pool.suspension().suspended().is_some()
            && pool.devices().probe(leaf.guid).await == Some(Probe::Gone);
        if pool.tree().device(leaf.guid).is_none() || is_missed {
            gone.push(leaf);
        }
    }
    if gone.is_empty() {
        return Ok(BTreeMap::new());
    }
    let Some(mut found) = look_again(engine, places, &gone).await else { return Ok(BTreeMap::new()) };
    found.devices.retain(|leaf, _| gone.iter().any(|gone| gone.guid == *leaf));
    if found.devices.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(found.open_for_writing(engine.runtime()).await?.devices)
}

/// Searches for an open pool's devices at `places` and at the paths of `vdevs`.
#[boxed]
pub async fn look_again(engine: &Engine, places: &[Place], vdevs: &[&VdevConfig]) -> Option<FoundPool> {
    let paths = vdevs.iter().filter_map(|vdev| vdev.path.as_ref().map(|path| Place::from(Path::new(path))));
    let places = places.iter().cloned().chain(paths).collect();
    let places = within(engine.runtime(), places, &[], Reach::Places).await;
    let discovery = discover_places(engine.runtime(), &places).await;
    discovery.pools.into_iter().find(|found| found.guid() == engine.pool().tree().guid())
}

pub(crate) struct Watched {
    pool: String,
    first: Vec<Place>,
    /// Default search places.
    search: Vec<Place>,
    events: Events,
    looks: AtomicU32,
}

/// One in this many searches looks everywhere: folders may be large.
const LOOKS_EVERYWHERE: u32 = 12;

impl Watched {
    pub(crate) fn new(pool: &str, first: Vec<Place>, search: Vec<Place>, events: Events) -> Watched {
        Watched { pool: pool.into(), first, search, events, looks: AtomicU32::new(0) }
    }

    async fn places(&self, engine: &Engine, reach: Reach) -> Vec<Place> {
        let places = places_of(engine, &self.first);
        within(engine.runtime(), places, &self.search, reach).await
    }
}

impl Surroundings for Watched {
    fn returning(&self, engine: Engine, leaves: Vec<Guid>) -> BoxFuture<'_, BTreeMap<Guid, FoundDevice>> {
        Box::pin(async move {
            let look = self.looks.fetch_add(1, Ordering::Relaxed);
            let is_far = look.is_multiple_of(LOOKS_EVERYWHERE);
            let reach = if is_far { Reach::Everywhere } else { Reach::Places };
            let places = self.places(&engine, reach).await;
            // A device that can't be opened yet is retried.
            returning(&engine, &places, &leaves).await.unwrap_or_default()
        })
    }

    fn spare(&self, engine: Engine, spare: VdevConfig) -> BoxFuture<'_, Option<FoundDevice>> {
        Box::pin(async move {
            let known = engine.pool().tree().found().device(spare.guid).cloned();
            let found = match known {
                Some(found) => found,
                None => {
                    let places = self.places(&engine, Reach::Places).await;
                    look_again(&engine, &places, &[&spare]).await?.auxiliary.remove(&spare.guid)?
                }
            };
            found.open_for_writing(engine.runtime()).await.ok().map(FoundDevice::new)
        })
    }

    fn noticed(&self, engine: &Engine, leaf: Guid, symptom: Symptom) {
        let (class, count) = match symptom {
            Symptom::ProbeFailed => ("ereport.fs.zfs.probe_failure", None),
            Symptom::Io(count) => ("ereport.fs.zfs.io", Some(count)),
            Symptom::Delays(count) => ("ereport.fs.zfs.delay", Some(count)),
            Symptom::Slow => ("ereport.fs.zfs.sitout", None),
            Symptom::Checksum(count) => ("ereport.fs.zfs.checksum", Some(count)),
        };
        self.events.report(class, engine, &self.pool, leaf, count);
    }

    fn set_aside(&self, engine: &Engine, what: String) {
        let mut members = Nvlist::new();
        members.insert("description", NvValue::String(what.into_bytes()));
        self.events.post(SET_ASIDE, &self.pool, engine.pool().tree().guid(), members);
    }
}
