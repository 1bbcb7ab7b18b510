//! Cache devices (L2ARC) of an open pool: checked before pool reads, fed in the background.

use std::future::Future;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_device::Device;
use cenote_format::blkptr::Blkptr;
use cenote_format::units::Guid;
use cenote_l2arc::{CacheDevices, Use};

use crate::engine::Engine;

/// A pool's cache devices.
#[derive(Clone, Copy)]
pub struct L2arc<'a>(&'a Engine);

impl Engine {
    /// Cache devices.
    pub fn l2arc(&self) -> L2arc<'_> {
        L2arc(self)
    }
}

impl<'a> L2arc<'a> {
    /// The pool's cache devices in use.
    pub fn devices(&self) -> &'a CacheDevices {
        &self.0.0.cache_devices
    }

    /// Starts using a cache device open for writing; `false`: it is unusable.
    #[boxed]
    pub async fn add(&self, vdev: Guid, ashift: u32, device: Arc<dyn Device>) -> bool {
        let devices = self.devices();
        let is_used = devices.add(vdev, ashift, device).await;
        if is_used {
            self.0.pool().devices().set_second_level(Arc::new(devices.clone()));
        }
        is_used
    }

    /// Feeds the cache devices until dropped. Does not keep the engine alive.
    pub fn feed(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (devices, cache, warm) =
            (self.0.0.cache_devices.clone(), self.0.0.cache.clone(), self.0.0.cache.clone());
        let used = move |bp: &Blkptr| match cache.resident(bp) {
            None => Use::Gone,
            Some(resident) if resident.is_read_ahead => Use::Ahead,
            Some(resident) if resident.uses == 0 => Use::Once,
            Some(_) => Use::Often,
        };
        devices.keep_feeding(used, move || warm.is_warm())
    }
}
