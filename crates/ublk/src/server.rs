//! Block devices, from when they are made until they are gone.
//!
//! ```text
//!   serve   ADD_DEV, SET_PARAMS --> queues fetched from --> START_DEV: /dev/ublkbN
//!   remove  STOP_DEV: what is in the kernel's memory is written, queues end --> DEL_DEV
//! ```
//!
//! Everything here blocks.
//!
//! Locking: `ours` is held while a device is made, and while abandoned ones are looked for, so that a new one
//! is not taken for abandoned.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use cenote_disk::Limits;
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::Source;
use crate::abi::{Info, SECTOR_BYTES, Shape};
use crate::driver::{Driver, Missing, open_queues};
use crate::worker::{NewQueue, Served, Worker};

/// Threads that serve all devices, and so queues of each.
const THREADS_MAX: usize = 4;
/// Requests at a time of each queue.
const DEPTH: u16 = 128;

/// Serves block devices.
pub struct Server {
    driver: Driver,
    workers: Vec<Worker>,
    limits: Limits,
    ours: Mutex<BTreeSet<u32>>,
    /// A device could not be deleted yet.
    has_left: AtomicBool,
}

/// A block device that is served. It has to be [removed](Device::remove).
pub struct Device {
    server: Arc<Server>,
    number: u32,
    shape: Shape,
    /// Ends when all queues have.
    queues: Receiver<()>,
}

impl Server {
    /// Finds the driver, and deletes what dead processes of this kind have left.
    ///
    /// # Errors
    /// There is no driver, or this process may not use it.
    pub fn start(runtime: &Runtime, limits: Limits) -> Result<Server, Missing> {
        let driver = Driver::open()?;
        let threads = std::thread::available_parallelism().map_or(1, Into::into).min(THREADS_MAX);
        let worker = |_| Worker::start(runtime, &limits, driver.numbers());
        let workers = (0..threads).map(worker).collect::<io::Result<_>>().map_err(Missing::Ring)?;
        let (ours, has_left) = (Mutex::default(), AtomicBool::new(true));
        let server = Server { driver, workers, limits, ours, has_left };
        server.sweep();
        Ok(server)
    }

    /// Deletes devices that nobody serves any more and that could not be deleted yet, because somebody has
    /// them open.
    pub fn sweep(&self) {
        if self.has_left.swap(false, Ordering::Relaxed) {
            let ours = self.ours.lock();
            let all_gone = self.driver.sweep(|device| ours.contains(&device));
            self.has_left.fetch_or(!all_gone, Ordering::Relaxed);
        }
    }

    /// Serves a disk as a block device.
    ///
    /// # Errors
    /// The driver's, or the system's.
    pub fn serve(self: &Arc<Server>, shape: Shape, source: Arc<dyn Source>) -> io::Result<Device> {
        let info = {
            let mut ours = self.ours.lock();
            let info = self.driver.add(self.workers.len() as u16, DEPTH)?;
            ours.insert(info.device);
            info
        };
        let (gone, queues) = channel();
        let device = Device { server: self.clone(), number: info.device, shape, queues };
        let served = Served { source, share: self.limits.share(None), gone };
        match self.show(&info, &shape, served) {
            Ok(()) => Ok(device),
            Err(error) => {
                device.remove().ok();
                Err(error)
            }
        }
    }

    fn show(&self, info: &Info, shape: &Shape, served: Served) -> io::Result<()> {
        self.driver.set_params(info.device, shape)?;
        let device = open_queues(info.device)?;
        for (number, worker) in (0..info.queues).zip(&self.workers) {
            let (device, served) = (device.try_clone()?, served.clone());
            worker.attach(NewQueue { device, number, depth: info.depth, served })?;
        }
        // What the queues have keeps it open.
        drop((device, served));
        self.driver.start(info.device)
    }
}

impl Device {
    /// Its number: it is `/dev/ublkbN`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What it looks like.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Tells those who use it of its new size.
    ///
    /// # Errors
    /// The driver can't: Linux can since 6.16.
    pub fn resize(&mut self, size_bytes: u64) -> io::Result<()> {
        self.server.driver.resize(self.number, size_bytes / SECTOR_BYTES)?;
        self.shape.size_bytes = size_bytes;
        Ok(())
    }

    /// Takes it away, also from those who have it open. What the kernel has of it in memory is written
    /// before.
    ///
    /// # Errors
    /// The driver's. What is left is deleted by [`Server::sweep`].
    pub fn remove(self) -> io::Result<()> {
        let stopped = self.server.driver.stop(self.number);
        if stopped.is_ok() {
            // They say nothing: they end.
            self.queues.recv().ok();
        }
        let is_gone = stopped.and_then(|()| self.server.driver.delete(self.number));
        self.server.ours.lock().remove(&self.number);
        if !matches!(is_gone, Ok(true)) {
            self.server.has_left.store(true, Ordering::Relaxed);
        }
        is_gone.map(drop)
    }
}
