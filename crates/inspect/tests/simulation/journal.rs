//! Disks that keep a journal: each write and each flush of a run, when it was asked for and when it was done.
//!
//! ```text
//!   disk 0   w-----w   w--w        f~~~~~f          w: a write, from asked to done
//!   disk 1     w---w        f~~~f      w----w       f: a flush: durable is what was done before it was asked for
//!   moments  0 1 2 3 ...                            one for each of these ends
//! ```
//!
//! From one journal, disks as any power cut would have left them can be made: see [`crate::power_cut`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceError, DeviceInfo, Io, Op};
use cenote_runtime::Runtime;
use parking_lot::Mutex;

use crate::image::Image;

/// What an operation takes, at least and in addition at most.
const LATENCY: Duration = Duration::from_micros(50);
const JITTER_NS: u64 = 200_000;

/// A count of ends of operations.
pub type Moment = usize;

/// A write of a run.
#[derive(Clone)]
pub struct Write {
    pub disk: usize,
    pub offset: u64,
    pub data: Bytes,
    pub asked: Moment,
    pub done: Option<Moment>,
}

/// A flush of a run that was done.
#[derive(Clone, Copy)]
pub struct Flush {
    pub disk: usize,
    pub asked: Moment,
    pub done: Moment,
}

/// All that was written in a run.
#[derive(Default)]
pub struct Journal {
    /// In the order in which they were asked for.
    pub writes: Vec<Write>,
    /// In the order in which they were done.
    pub flushes: Vec<Flush>,
    /// The next moment.
    pub now: Moment,
}

impl Journal {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now - 1
    }
}

/// The journal of all disks of a pool.
pub type SharedJournal = Arc<Mutex<Journal>>;

/// A disk whose writes and flushes are noted in a journal.
pub struct JournaledDisk {
    info: DeviceInfo,
    index: usize,
    runtime: Runtime,
    image: Mutex<Image>,
    journal: SharedJournal,
}

impl JournaledDisk {
    /// Disk number `index`, which holds `image` when the journal begins.
    pub fn new(
        runtime: &Runtime,
        index: usize,
        image: Image,
        shape: DiskShape,
        journal: &SharedJournal,
    ) -> Self {
        let info = DeviceInfo {
            path: format!("/disks/disk{index}").into(),
            size_bytes: shape.size_bytes,
            sector_bytes: shape.sector_bytes,
            rotational: Some(false),
            read_only: false,
        };
        let (runtime, journal) = (runtime.clone(), journal.clone());
        JournaledDisk { info, index, runtime, image: image.into(), journal }
    }

    /// What it holds now.
    pub fn image(&self) -> Image {
        self.image.lock().clone()
    }

    async fn take_time(&self) {
        let jitter_ns = self.runtime.random_u64() % JITTER_NS;
        self.runtime.sleep(LATENCY + Duration::from_nanos(jitter_ns)).await;
    }
}

/// What disks of a pool are like.
#[derive(Debug, Clone, Copy)]
pub struct DiskShape {
    pub size_bytes: u64,
    /// The unit that a power cut leaves whole.
    pub sector_bytes: u32,
}

impl Device for JournaledDisk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<'_, Bytes> {
        let checked = self.info.check_range(Op::Read, offset, len as u64);
        Io::done(checked.map(|()| self.image.lock().read(offset, len)))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<'_, ()> {
        if let Err(error) = self.info.check_writable(Op::Write, offset, data.len() as u64) {
            return Io::done(Err(error));
        }
        self.image.lock().write(offset, &data);
        let write = {
            let mut journal = self.journal.lock();
            let asked = journal.tick();
            journal.writes.push(Write { disk: self.index, offset, data, asked, done: None });
            journal.writes.len() - 1
        };
        Io::pending(async move {
            self.take_time().await;
            let mut journal = self.journal.lock();
            let done = journal.tick();
            journal.writes[write].done = Some(done);
            Ok(())
        })
    }

    fn flush(&self) -> Io<'_, ()> {
        let asked = self.journal.lock().tick();
        Io::pending(async move {
            self.take_time().await;
            let mut journal = self.journal.lock();
            let done = journal.tick();
            journal.flushes.push(Flush { disk: self.index, asked, done });
            Ok(())
        })
    }

    fn discard(&self, _: u64, _: u64) -> Io<'_, ()> {
        Io::done(Err(DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }))
    }
}
