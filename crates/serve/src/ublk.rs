//! Volumes served as block devices of this machine: `/dev/ublkbN` each, and `DIR/POOL/VOLUME` leads there;
//! snapshots that are visible are at `DIR/POOL/VOLUME@SNAPSHOT`.
//!
//! ```text
//!   volumes listed, from time to time --> a task each: device, link; looks who uses it
//!                                            requests --> ServedDisk, open while somebody does
//! ```
//!
//! Idea: a device is there as long as its volume is served. The volume is open only while somebody uses the
//! device, so that it can be destroyed, rolled back or exported when nobody does. The first request opens it;
//! a look every [`LOOK`] closes it, if nobody is found who has the device open (`cenote_ublk::users`). One
//! who was not found loses nothing: the next request opens it again.
//!
//! An export looks closely, and stops devices that nobody has. With `-f`, and when the daemon ends, it stops
//! all: what their users wrote is written, and then they get errors.
//!
//! A device stays with its volume when that is renamed. If it is to be read-only, or has another size and the
//! kernel can't say so, it is made anew when nobody uses it.

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

/// How long a volume has no device after that was sent away: whoever did so wants to have it.
const REST: Duration = Duration::from_secs(5);
/// Calls of the driver at a time. Each has one of the runtime's threads, and lasts until requests are
/// answered that need others of them.
const CALLS: usize = 64;
/// No device.
const NONE: u32 = u32::MAX;

/// How volumes are served as block devices.
pub struct UblkServer {
    pools: Arc<Pools>,
    /// The folder of links.
    dir: PathBuf,
    /// Who serves block devices.
    server: Arc<Server>,
    /// Tells the administrator of what does not work.
    tell: Box<dyn Fn(String) + Send + Sync>,
    /// Turns at the driver.
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

    /// Has the driver do something that lasts.
    async fn call<T: Send + 'static>(
        &self,
        runtime: &Runtime,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let _turn = self.turns.acquire().await;
        runtime.blocking(work).await
    }

    /// Keeps a device for each volume until it is dropped. Devices that are there then end with their pools.
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

/// A volume, and its device.
struct Place {
    server: Arc<UblkServer>,
    /// The volume as it is now.
    info: Mutex<VolumeInfo>,
    /// The device's number, or [`NONE`].
    number: AtomicU32,
    /// Asks for its end.
    cancel: Cancel,
    ended: Mutex<Option<Ended>>,
    /// It is written down with its pool, until it has ended.
    noted: Mutex<Option<Arc<Noted>>>,
    /// The volume, while somebody uses it.
    open: Mutex<Option<Arc<ServedDisk>>>,
    /// Held while it is opened.
    opening: tokio::sync::Mutex<()>,
    /// Who used it at the last look.
    user: Mutex<Option<String>>,
}

/// Why a device is not there any more.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// It was asked to go, at this time.
    Sent(Instant),
    /// It could not be made, of this volume.
    Failed(VolumeInfo),
    /// It is to be made anew.
    Changed,
}

impl Place {
    fn new(server: Arc<UblkServer>, info: VolumeInfo) -> Arc<Place> {
        let (cancel, ended, noted, open, opening, user) = Default::default();
        let number = NONE.into();
        Arc::new(Place { server, info: info.into(), number, cancel, ended, noted, open, opening, user })
    }

    /// Asks for its end. Answers whether it has ended.
    fn end(&self) -> bool {
        self.cancel.cancel();
        self.ended.lock().is_some()
    }

    /// Whether it has ended, and is to be made anew.
    fn is_missing(&self) -> bool {
        matches!(*self.ended.lock(), Some(Ended::Sent(_) | Ended::Changed))
    }

    /// Takes note of what the volume is like now. Answers whether it goes on so.
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

    /// Keeps the device until it is to go.
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
                // What can't be said is made anew.
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

    /// Looks who uses the device; closes the volume if nobody does. Answers whether somebody does.
    async fn look(&self, runtime: &Runtime) -> bool {
        if self.open.lock().is_none() {
            return false;
        }
        let number = self.number.load(Ordering::Relaxed);
        let user = runtime.blocking(move || user_of(number)).await;
        let is_used = user.is_some();
        *self.user.lock() = user;
        // Each request holds it until it is answered.
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

    /// How a user is shown.
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

/// What a volume's device looks like.
fn shape_of(info: &VolumeInfo) -> Shape {
    let block_bytes = info.block_bytes.try_into().unwrap_or(u32::MAX);
    Shape { size_bytes: info.size_bytes, block_bytes, is_read_only: info.is_read_only }
}
