//! Devices of an open pool: those that misbehave become events, those that are back are found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cenote_boxed::boxed;
use cenote_engine::Engine;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::Guid;
use cenote_pool::{FoundDevice, FoundPool, PoolError, Probe, VdevConfig, discover};
use cenote_tasks::{Surroundings, Symptom};
use futures::future::BoxFuture;

use crate::events::Events;

/// A txg went on without something that could not be read: an object stays as it was, or space allocated.
const SET_ASIDE: &str = "ereport.org.cenote.set_aside";

/// Devices of leaves that the pool does without, if they are there now: opened for writing. They are looked
/// for at `places` and where the pool has them.
///
/// # Errors
/// One is there and can't be opened.
#[boxed]
pub async fn returning(
    engine: &Engine,
    places: &[PathBuf],
    leaves: &[Guid],
) -> Result<BTreeMap<Guid, FoundDevice>, PoolError> {
    let pool = engine.pool();
    let config = pool.config();
    let all = config.vdevs.iter().flat_map(VdevConfig::leaves);
    let mut gone: Vec<&VdevConfig> = Vec::new();
    for leaf in all.filter(|leaf| leaves.contains(&leaf.guid)) {
        // While the pool waits for it, it is in use, though it is not there.
        let is_missed = pool.suspended().is_some() && pool.probe(leaf.guid).await == Some(Probe::Gone);
        if pool.device(leaf.guid).is_none() || is_missed {
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

/// Looks for an open pool's devices again: at `places`, and where it has these.
#[boxed]
pub async fn look_again(engine: &Engine, places: &[PathBuf], vdevs: &[&VdevConfig]) -> Option<FoundPool> {
    let paths = vdevs.iter().filter_map(|vdev| vdev.path.as_ref().map(PathBuf::from));
    let places: BTreeSet<PathBuf> = places.iter().cloned().chain(paths).collect();
    // A file system may hang where one of them is.
    let are_there = move || places.into_iter().filter(|place| place.exists()).collect::<Vec<PathBuf>>();
    let places = engine.runtime().blocking(are_there).await;
    let discovery = discover(engine.runtime(), &places).await;
    discovery.pools.into_iter().find(|found| found.guid() == engine.pool().guid())
}

/// What the watch over a pool's devices has to do with.
pub(crate) struct Watched {
    pub(crate) pool: String,
    pub(crate) places: Vec<PathBuf>,
    pub(crate) events: Events,
}

impl Surroundings for Watched {
    fn returning(&self, engine: Engine, leaves: Vec<Guid>) -> BoxFuture<'_, BTreeMap<Guid, FoundDevice>> {
        // One that is there and can't be opened yet is looked for again.
        Box::pin(async move { returning(&engine, &self.places, &leaves).await.unwrap_or_default() })
    }

    fn spare(&self, engine: Engine, spare: VdevConfig) -> BoxFuture<'_, Option<FoundDevice>> {
        Box::pin(async move {
            let known = engine.pool().found().device(spare.guid).cloned();
            let found = match known {
                Some(found) => found,
                None => look_again(&engine, &self.places, &[&spare]).await?.auxiliary.remove(&spare.guid)?,
            };
            found.open_for_writing(engine.runtime()).await.ok().map(FoundDevice::new)
        })
    }

    fn noticed(&self, engine: &Engine, leaf: Guid, symptom: Symptom) {
        let (class, count) = match symptom {
            Symptom::ProbeFailed => ("ereport.fs.zfs.probe_failure", None),
            Symptom::Io(count) => ("ereport.fs.zfs.io", Some(count)),
            Symptom::Checksum(count) => ("ereport.fs.zfs.checksum", Some(count)),
        };
        self.events.report(class, engine, &self.pool, leaf, count);
    }

    fn set_aside(&self, engine: &Engine, what: String) {
        let mut members = Nvlist::new();
        members.insert("description", NvValue::String(what.into_bytes()));
        self.events.post(SET_ASIDE, &self.pool, engine.pool().guid(), members);
    }
}
