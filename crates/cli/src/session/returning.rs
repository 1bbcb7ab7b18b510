//! Devices that come back to a pool of the daemon: looked for where they were.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_pool::{FoundDevice, VdevConfig, discover};

use super::Session;
use crate::outcome::CliError;

impl Session {
    /// Devices of leaves that the open pool does without, `only` one or all, if they are there now: opened
    /// for writing. Without a daemon there are none, since a command opens what is there when it begins.
    pub async fn returning(
        &self,
        engine: &Engine,
        only: Option<Guid>,
    ) -> Result<BTreeMap<Guid, FoundDevice>, CliError> {
        self.use_cache_devices(engine, &BTreeMap::new()).await?;
        let pool = engine.pool();
        let open = self.pools().and_then(|pools| pools.by_guid(pool.guid()));
        let config = pool.config();
        let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves);
        let is_gone = |leaf: &&VdevConfig| {
            only.is_none_or(|only| only == leaf.guid) && pool.device(leaf.guid).is_none()
        };
        let gone: BTreeMap<Guid, Option<PathBuf>> =
            leaves.filter(is_gone).map(|leaf| (leaf.guid, leaf.path.as_ref().map(PathBuf::from))).collect();
        let Some(open) = open.filter(|_| !gone.is_empty()) else { return Ok(BTreeMap::new()) };
        let mut places = open.devices.clone();
        places.extend(gone.values().flatten().filter(|path| !open.devices.contains(path)).cloned());
        let discovery = discover(self.runtime(), &places).await;
        let found = discovery.pools.into_iter().find(|found| found.guid() == pool.guid());
        let Some(mut found) = found else { return Ok(BTreeMap::new()) };
        found.devices.retain(|leaf, _| gone.contains_key(leaf));
        if found.devices.is_empty() {
            return Ok(BTreeMap::new());
        }
        Ok(found.open_for_writing(self.runtime()).await?.devices)
    }
}
