//! Cache devices (L2ARC) of an open pool: checked before pool reads, fed in the background.

use std::future::Future;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_device::Device;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::Guid;
use cenote_l2arc::{CacheDevices, Use};

use crate::engine::Engine;

impl Engine {
    /// The pool's cache devices in use.
    pub fn cache_devices(&self) -> &CacheDevices {
        &self.0.cache_devices
    }

    /// Starts using a cache device that is open for writing; `false`: it is unusable.
    #[boxed]
    pub async fn use_cache_device(&self, vdev: Guid, ashift: u32, device: Arc<dyn Device>) -> bool {
        let devices = self.cache_devices();
        let is_used = devices.add(vdev, ashift, device).await;
        if is_used {
            self.pool().devices().set_second_level(Arc::new(devices.clone()));
        }
        is_used
    }

    /// Feeds the cache devices until dropped. Does not keep the engine alive.
    pub fn feed_cache_devices(&self) -> impl Future<Output = ()> + Send + 'static {
        let (devices, cache, warm) =
            (self.0.cache_devices.clone(), self.0.cache.clone(), self.0.cache.clone());
        let used = move |bp: &Blkptr| match cache.resident(bp) {
            None => Use::Gone,
            Some(resident) if resident.is_read_ahead => Use::Ahead,
            Some(resident) if resident.uses == 0 => Use::Once,
            Some(_) => Use::Often,
        };
        devices.keep_feeding(used, move || warm.is_warm())
    }
}
