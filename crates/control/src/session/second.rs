//! Cache devices of the daemon's pools: found with the other devices, opened, and used.

use cenote_engine::Engine;
use cenote_host::devices::look_again;

use super::Session;
use crate::error::ControlError;

impl Session {
    /// Starts the unused cache devices of an open pool; searches for missing ones. Unusable devices are
    /// reported, and the pool does without them. Does nothing without a daemon.
    pub async fn use_cache_devices(&self, engine: &Engine) -> Result<(), ControlError> {
        let open = self.pools().and_then(|pools| pools.by_guid(engine.pool().tree().guid()));
        let Some(pool) = open else { return Ok(()) };
        let mut wanted = engine.mos().await?.cache_devices().await?;
        let used = engine.l2arc().devices().devices();
        wanted.retain(|vdev| !used.contains(&vdev.guid));
        if wanted.is_empty() {
            return Ok(());
        }
        // A newly added device is open already.
        let mut found = engine.pool().tree().found().auxiliary.clone();
        if wanted.iter().any(|vdev| !found.contains_key(&vdev.guid)) {
            let here = look_again(engine, &pool.places(), &wanted.iter().collect::<Vec<_>>()).await;
            found.extend(here.into_iter().flat_map(|here| here.auxiliary));
        }
        for vdev in wanted {
            let Some(device) = found.get(&vdev.guid) else { continue };
            let path = &device.path;
            let opened = match device.open_for_writing(self.runtime()).await {
                Ok(opened) => opened,
                Err(error) => {
                    self.caller()
                        .note(format!("pool '{}' does without its cache device {path}: {error}", pool.name));
                    continue;
                }
            };
            if !engine.l2arc().add(vdev.guid, vdev.ashift, opened).await {
                self.caller().note(format!(
                    "pool '{}' does without its cache device {path}: it can't be used",
                    pool.name
                ));
            }
        }
        Ok(())
    }
}
