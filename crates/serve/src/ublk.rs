//! Serves volumes as block devices of this machine: `/dev/ublkbN` each, with links `DIR/POOL/VOLUME`; visible
//! snapshots have links `DIR/POOL/VOLUME@SNAPSHOT`.
//!
//! ```text
//!   volumes, listed periodically --> one task each: device, link; checks for users
//!                                            requests --> ServedDisk, open while in use
//! ```
//!
//! Idea: a device exists while its volume is served. The volume is open only while the device is in use, so
//! an idle one can be destroyed, rolled back or exported. The first request opens it; a check every [`LOOK`]
//! closes it if no process has the device open (`cenote_ublk::users`). A user missed by the check loses
//! nothing: the next request opens the volume again.
//!
//! An export checks carefully, and stops unused devices. With `-f`, and when the daemon ends, it stops all:
//! pending writes are completed, then users get errors.
//!
//! A device stays with a renamed volume. If it must become read-only, or has another size that the kernel
//! can't announce, it is recreated when idle.

mod links;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cenote_disk::{Disk, Errno, Failure};
use cenote_format::units::Guid;
use cenote_runtime::{Instant, Runtime};
use cenote_ublk::users::{is_claimed, path_of, user_of};
use cenote_ublk::{Device, Server, Shape, Source};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::disk::{ServedDisk, refused};
use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::volumes::{LOOK, Noted, Presence, VolumeInfo, Watch};

use links::{Link, remove_dead};

/// How long a volume has no device after a forced stop: the volume is wanted for something else.
const REST: Duration = Duration::from_secs(5);
/// Concurrent driver calls. Each occupies one of the runtime's threads, and lasts until requests are answered
/// that need other threads.
const CALLS: usize = 64;
/// No device.
const NONE: u32 = u32::MAX;

/// Serves volumes as block devices.
pub struct UblkServer {
    pools: Arc<Pools>,
    /// The folder of links.
    dir: PathBuf,
    server: Arc<Server>,
    /// Reports problems to the administrator.
    tell: Box<dyn Fn(String) + Send + Sync>,
    /// Permits for driver calls.
    turns: Semaphore,
}

impl UblkServer {
    /// Serves the volumes of these pools, with links in a folder.
    pub fn new(
        pools: &Arc<Pools>,
        dir: PathBuf,
        server: Arc<Server>,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> UblkServer {
        let (pools, tell, turns) = (pools.clone(), Box::new(tell), Semaphore::new(CALLS));
        UblkServer { pools, dir, server, tell, turns }
    }

    /// Runs a long driver call.
    async fn call<T: Send + 'static>(
        &self,
        runtime: &Runtime,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let _turn = self.turns.acquire().await;
        runtime.blocking(work).await
    }

    /// Keeps a device for each volume until dropped. Remaining devices then end with their pools.
    pub async fn keep(self: Arc<UblkServer>, runtime: Runtime) {
        remove_dead(&self.dir);
        let mut places: BTreeMap<(Guid, Guid), Arc<Place>> = BTreeMap::new();
        let mut watch = Watch::new(&self.pools);
        loop {
            let is_missing = places.values().any(|place| place.is_missing());
            if let Some(all) = watch.look(is_missing).await {
                let all: BTreeMap<_, _> = all.into_iter().map(|volume| (volume.guids, volume)).collect();
                places.retain(|volume, place| all.contains_key(volume) || !place.end());
                for (volume, info) in all {
                    if !places.get(&volume).is_some_and(|place| place.suits(&info, runtime.now())) {
                        let place = Place::new(self.clone(), info);
                        runtime.spawn(place.clone().run(runtime.clone())).detach();
                        places.insert(volume, place);
                    }
                }
            }
            let server = self.server.clone();
            runtime.blocking(move || server.sweep()).await;
            runtime.sleep(LOOK).await;
        }
    }
}

struct Place {
    server: Arc<UblkServer>,
    /// The volume's current state.
    info: Mutex<VolumeInfo>,
    /// The device's number, or [`NONE`].
    number: AtomicU32,
    /// Requests the device's end.
    cancel: Cancel,
    ended: Mutex<Option<Ended>>,
    /// Registers it with its pool, until it has ended.
    noted: Mutex<Option<Arc<Noted>>>,
    /// The volume, while in use.
    open: Mutex<Option<Arc<ServedDisk>>>,
    /// Held while opening the volume.
    opening: tokio::sync::Mutex<()>,
    /// The user at the last check.
    user: Mutex<Option<String>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// Stopped on request, at this time.
    Sent(Instant),
    /// Creation failed, for this volume.
    Failed(VolumeInfo),
    /// It must be recreated.
    Changed,
}

impl Place {
    fn new(server: Arc<UblkServer>, info: VolumeInfo) -> Arc<Place> {
        let (cancel, ended, noted, open, opening, user) = Default::default();
        let number = NONE.into();
        Arc::new(Place { server, info: info.into(), number, cancel, ended, noted, open, opening, user })
    }

    /// Requests the end. Returns whether it has ended.
    fn end(&self) -> bool {
        self.cancel.cancel();
        self.ended.lock().is_some()
    }

    /// Whether it has ended and must be recreated.
    fn is_missing(&self) -> bool {
        matches!(*self.ended.lock(), Some(Ended::Sent(_) | Ended::Changed))
    }

    /// Records the volume's current state. Returns whether the device can continue with it.
    fn suits(&self, info: &VolumeInfo, now: Instant) -> bool {
        match &*self.ended.lock() {
            None => {
                info.clone_into(&mut self.info.lock());
                true
            }
            Some(Ended::Sent(at)) => now.since(*at) < REST,
            Some(Ended::Failed(of)) => of == info,
            Some(Ended::Changed) => false,
        }
    }

    async fn run(self: Arc<Place>, runtime: Runtime) {
        let ended = self.clone().serve(&runtime).await;
        self.number.store(NONE, Ordering::Relaxed);
        let (open, noted) = (self.open.lock().take(), self.noted.lock().take());
        drop((open, noted));
        *self.ended.lock() = Some(ended);
    }

    async fn serve(self: Arc<Place>, runtime: &Runtime) -> Ended {
        let mut info = self.info.lock().clone();
        let Some(pool) = self.server.pools.by_guid(info.guids.0) else { return Ended::Changed };
        let noted = Arc::new(Noted::new(pool, &info.name, self.clone(), &self.cancel));
        *self.noted.lock() = Some(noted.clone());
        let (server, shape, source) = (self.server.server.clone(), shape_of(&info), self.clone());
        let made = self.server.call(runtime, move || server.serve(shape, source)).await;
        let mut device = match made {
            Ok(device) => device,
            Err(error) => {
                (self.server.tell)(format!("no block device for {}: {error}", info.name));
                return Ended::Failed(info);
            }
        };
        self.number.store(device.number(), Ordering::Relaxed);
        let mut link = self.link(&info.name, &device);
        let ended = loop {
            if runtime.timeout(LOOK, self.cancel.cancelled()).await.is_ok() {
                break Ended::Sent(runtime.now());
            }
            let now = self.info.lock().clone();
            if now.name != info.name {
                noted.rename(&now.name);
                drop(link.take());
                link = self.link(&now.name, &device);
            }
            info = now;
            let is_used = self.look(runtime).await;
            let shape = shape_of(&info);
            if shape.size_bytes != device.shape().size_bytes {
                // If the kernel can't announce the size, the device is recreated.
                device.resize(shape.size_bytes).ok();
            }
            if shape != *device.shape() && !is_used {
                let place = self.clone();
                if runtime.blocking(move || place.who_now()).await.is_none() {
                    break Ended::Changed;
                }
            }
        };
        drop(link);
        if let Err(error) = self.server.call(runtime, move || device.remove()).await {
            (self.server.tell)(format!("the block device of {} stays: {error}", info.name));
        }
        ended
    }

    fn link(&self, name: &str, device: &Device) -> Option<Link> {
        let made = Link::make(&self.server.dir, name, device.number());
        made.map_err(|why| (self.server.tell)(format!("no link to {name}: {why}"))).ok()
    }

    /// Checks for users; closes the volume if there are none. Returns whether the device is in use.
    async fn look(&self, runtime: &Runtime) -> bool {
        if self.open.lock().is_none() {
            return false;
        }
        let number = self.number.load(Ordering::Relaxed);
        let user = runtime.blocking(move || user_of(number)).await;
        let is_used = user.is_some();
        *self.user.lock() = user;
        // Each request holds it until answered.
        let closed = self.open.lock().take_if(|volume| !is_used && Arc::strong_count(volume) == 1);
        is_used || closed.is_none()
    }

    async fn volume(&self) -> Result<Arc<ServedDisk>, Failure> {
        let open = || self.open.lock().clone();
        if let Some(volume) = open() {
            return Ok(volume);
        }
        let _turn = self.opening.lock().await;
        if let Some(volume) = open() {
            return Ok(volume);
        }
        let gone = || Failure::new(Errno::Shutdown, "the device is gone");
        let (noted, name) = (self.noted.lock().clone().ok_or_else(gone)?, self.info.lock().name.clone());
        let volume = ServedDisk::open_noted(noted, &name).await.map_err(|error| refused(&error))?;
        *self.open.lock() = Some(volume.clone());
        Ok(volume)
    }

    fn told(&self, user: Option<String>) -> String {
        let path = path_of(self.number.load(Ordering::Relaxed));
        let user = user.map(|user| format!(" ({user})")).unwrap_or_default();
        format!("ublk {}{user}", path.display())
    }
}

impl Source for Place {
    fn disk(&self) -> BoxFuture<'_, Result<Arc<dyn Disk>, Failure>> {
        self.volume().map(|volume| volume.map(|volume| volume as Arc<dyn Disk>)).boxed()
    }
}

impl Presence for Place {
    fn who(&self) -> Option<String> {
        self.open.lock().is_some().then(|| self.told(self.user.lock().clone()))
    }

    fn who_now(&self) -> Option<String> {
        let number = self.number.load(Ordering::Relaxed);
        let user = user_of(number).or_else(|| is_claimed(number).then(|| "mounted elsewhere".into()));
        user.map(|user| self.told(Some(user)))
    }
}

fn shape_of(info: &VolumeInfo) -> Shape {
    let block_bytes = info.block_bytes.try_into().unwrap_or(u32::MAX);
    Shape { size_bytes: info.size_bytes, block_bytes, is_read_only: info.is_read_only }
}
