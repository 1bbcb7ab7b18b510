//! Opening devices by place, and those that return to a daemon's pool: searched for at their old places, and
//! where pools are searched.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_device::{Device, OpenOptions, Place};
use cenote_engine::Engine;
use cenote_format::units::Guid;
use cenote_host::devices::returning;
use cenote_pool::{FoundDevice, PoolError, VdevConfig};

use super::Session;
use crate::error::ControlError;

impl Session {
    /// Opens a device by its place.
    ///
    /// # Errors
    /// It can't be opened, or is in use.
    pub async fn open_device(
        &self,
        place: &Place,
        options: OpenOptions,
    ) -> Result<Arc<dyn Device>, ControlError> {
        let opened = cenote_remote::open(place, options, self.runtime()).await;
        Ok(opened.map_err(PoolError::from)?)
    }

    /// Opens missing leaves of an open pool that are present now, `only` one or all, for writing. Empty
    /// without a daemon, since a command opens all present devices at its start.
    pub async fn returning(
        &self,
        engine: &Engine,
        only: Option<Guid>,
    ) -> Result<BTreeMap<Guid, FoundDevice>, ControlError> {
        self.use_cache_devices(engine).await?;
        let pool = engine.pool();
        let open = self.pools().and_then(|pools| pools.by_guid(pool.tree().guid()));
        let Some(open) = open else { return Ok(BTreeMap::new()) };
        let config = pool.tree().config();
        let leaves = config.vdevs.iter().flat_map(VdevConfig::leaves).map(|leaf| leaf.guid);
        let leaves: Vec<Guid> = leaves.filter(|leaf| only.is_none_or(|only| only == *leaf)).collect();
        let places = self.places_to_look(&open).await;
        Ok(returning(engine, &places, &leaves).await?)
    }
}
