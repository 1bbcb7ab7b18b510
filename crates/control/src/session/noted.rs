//! Pools in the daemon's record: finding them, and showing those that wait to be opened.

use cenote_host::places::find;
use cenote_host::pools::Pools;
use cenote_host::record::NotedPool;
use cenote_host::waiting::Waiting;
use cenote_pool::FoundPool;

use super::Session;
use crate::error::ControlError;

impl Session {
    /// Finds a recorded pool: by guid, if recorded.
    pub async fn find_noted(&self, noted: &NotedPool) -> Result<FoundPool, ControlError> {
        let search = self.pools().map_or(self.disks(), |pools| &pools.search);
        let discovery = find(self.runtime(), noted, search).await;
        if noted.guid != 0 && !discovery.pools.iter().any(|found| noted.is(found.name(), found.guid())) {
            let places: Vec<String> = noted.places().iter().map(ToString::to_string).collect();
            let places = places.join(", ");
            return Err(ControlError::NotFound(format!(
                "none of its devices is at {places}, beside these, or where pools are looked for"
            )));
        }
        self.pick(&discovery, &noted.key())
    }

    /// Pools that the daemon can't open yet: all, or those with these names.
    pub fn waiting(&self, names: &[String]) -> Vec<Waiting> {
        let Some(pools) = self.pools() else { return Vec::new() };
        match names.is_empty() {
            true => pools.waiting.all(),
            false => super::each_once(names).flat_map(|name| pools.waiting.named(name)).collect(),
        }
    }

    /// Forgets a waiting pool, unless one of that name is open.
    pub fn forgets(&self, pools: &Pools, name: &str) -> bool {
        self.held_by_name(name).is_none() && pools.forget(name)
    }

    /// Updates the daemon's record of pools; reports a failure and its consequence, `follows`.
    pub async fn note_pools(&self, follows: impl FnOnce() -> String) {
        let Some(pools) = self.pools() else { return };
        if let Err(error) = pools.note(self.runtime()).await {
            let follows = follows();
            self.caller()
                .note(format!("the record of pools can't be written: {error}; until it can, {follows}"));
        }
    }
}
