//! Life cycle of block devices.
//!
//! ```text
//!   serve   ADD_DEV, SET_PARAMS --> queues fetching --> START_DEV: /dev/ublkbN
//!   remove  STOP_DEV: the kernel writes dirty pages, queues end --> DEL_DEV
//! ```
//!
//! All of it blocks.
//!
//! Locking: `ours` is held while a device is added and during sweeps, lest a new device be taken for
//! abandoned.

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

/// Threads, and so queues per device.
const THREADS_MAX: usize = 4;
/// Requests per queue.
const DEPTH: u16 = 128;

/// Serves block devices.
pub struct Server {
    driver: Driver,
    workers: Vec<Worker>,
    limits: Limits,
    ours: Mutex<BTreeSet<u32>>,
    /// A deletion is pending.
    has_left: AtomicBool,
}

/// A served device. Must be [removed](Device::remove).
pub struct Device {
    server: Arc<Server>,
    number: u32,
    shape: Shape,
    /// Disconnected when all queues have ended.
    queues: Receiver<()>,
}

impl Server {
    /// Opens the driver and deletes abandoned devices.
    ///
    /// # Errors
    /// The driver is missing, or access is denied.
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

    /// Retries pending deletions.
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
        // Queues have duplicates.
        drop((device, served));
        self.driver.start(info.device)
    }
}

impl Device {
    /// N in `/dev/ublkbN`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Current shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Changes the size.
    ///
    /// # Errors
    /// Unsupported before Linux 6.16.
    pub fn resize(&mut self, size_bytes: u64) -> io::Result<()> {
        self.server.driver.resize(self.number, size_bytes / SECTOR_BYTES)?;
        self.shape.size_bytes = size_bytes;
        Ok(())
    }

    /// Removes the device, even while open, after the kernel has written its dirty pages.
    ///
    /// # Errors
    /// The driver's. [`Server::sweep`] retries.
    pub fn remove(self) -> io::Result<()> {
        let stopped = self.server.driver.stop(self.number);
        if stopped.is_ok() {
            // Waits for the disconnect.
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
