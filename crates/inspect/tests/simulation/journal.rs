//! Disks with a journal: it records when each write and flush of a run was requested and completed.
//!
//! ```text
//!   disk 0   w-----w   w--w        f~~~~~f          w: a write, from request to completion
//!   disk 1     w---w        f~~~f      w----w       f: a flush of writes done before its request
//!   moments  0 1 2 3 ...                            one for each of these ends
//! ```
//!
//! From one journal, the disks that any power cut would have left can be made: see [`crate::power_cut`].
//!
//! Locking: all disks of a pool share the journal's mutex; each has another for its image. They are never
//! held together, nor across an await.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::{Device, DeviceInfo, Io, Nature, Op};
use cenote_runtime::Runtime;
use cenote_testkit::image::Image;
use parking_lot::Mutex;

/// Minimum duration of an operation, and the maximum added to it.
const LATENCY: Duration = Duration::from_micros(50);
const JITTER_NS: u64 = 200_000;

/// A count of starts and ends of operations.
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

/// A completed or failed flush of a run.
#[derive(Clone, Copy)]
pub struct Flush {
    pub disk: usize,
    pub asked: Moment,
    pub done: Moment,
    /// It failed: writes not durable by then are clean, and on the disk or not.
    pub has_failed: bool,
}

/// All writes of a run.
#[derive(Default)]
pub struct Journal {
    /// In the order of their requests.
    pub writes: Vec<Write>,
    /// In the order of their completion.
    pub flushes: Vec<Flush>,
    /// Discarded bytes: their zeros are among the writes.
    pub discarded_bytes: u64,
    /// The next moment.
    pub now: Moment,
    /// Number of earlier journals of these disks.
    number: u64,
}

impl Journal {
    /// Takes the journal, and begins another one.
    pub fn take(&mut self) -> Journal {
        let next = Journal { number: self.number + 1, ..Journal::default() };
        std::mem::replace(self, next)
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now - 1
    }
}

/// The journal of all disks of a pool.
pub type SharedJournal = Arc<Mutex<Journal>>;

/// A disk that records its writes and flushes in a journal. Clones share the disk.
#[derive(Clone)]
pub struct JournaledDisk {
    info: DeviceInfo,
    index: usize,
    runtime: Runtime,
    image: Arc<Mutex<Image>>,
    journal: SharedJournal,
}

impl JournaledDisk {
    /// Disk number `index`, which holds `image` when the journal starts.
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
            others_may_write: false,
            nature: Nature::LOCAL,
        };
        let (runtime, journal) = (runtime.clone(), journal.clone());
        JournaledDisk { info, index, runtime, image: Arc::new(image.into()), journal }
    }

    /// Its current content.
    pub fn image(&self) -> Image {
        self.image.lock().clone()
    }

    fn take_time(&self) -> impl Future<Output = ()> + Send + use<> {
        let (runtime, jitter_ns) = (self.runtime.clone(), self.runtime.random_u64() % JITTER_NS);
        async move { runtime.sleep(LATENCY + Duration::from_nanos(jitter_ns)).await }
    }
}

/// The geometry of a pool's disks.
#[derive(Debug, Clone, Copy)]
pub struct DiskShape {
    pub size_bytes: u64,
    /// The unit that a power cut never tears.
    pub sector_bytes: u32,
}

impl Device for JournaledDisk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let checked = self.info.check_range(Op::Read, offset, len as u64);
        Io::done(checked.map(|()| self.image.lock().read(offset, len)))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        if let Err(error) = self.info.check_writable(Op::Write, offset, data.len() as u64) {
            return Io::done(Err(error));
        }
        self.image.lock().write(offset, &data);
        let (write, number) = {
            let mut journal = self.journal.lock();
            let asked = journal.tick();
            journal.writes.push(Write { disk: self.index, offset, data, asked, done: None });
            (journal.writes.len() - 1, journal.number)
        };
        let (time, journal) = (self.take_time(), self.journal.clone());
        Io::pending(&self.runtime, async move {
            time.await;
            let mut journal = journal.lock();
            if journal.number == number {
                let done = journal.tick();
                journal.writes[write].done = Some(done);
            }
            Ok(())
        })
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let of = self.clone();
        self.write_at(offset, data).then(move |()| of.flush())
    }

    fn flush(&self) -> Io<()> {
        let of = self.clone();
        let (asked, number) = {
            let mut journal = self.journal.lock();
            (journal.tick(), journal.number)
        };
        Io::pending(&self.runtime, async move {
            of.take_time().await;
            let mut journal = of.journal.lock();
            if journal.number == number {
                let done = journal.tick();
                journal.flushes.push(Flush { disk: of.index, asked, done, has_failed: false });
            }
            Ok(())
        })
    }

    fn lose_unflushed(&self) {
        let mut journal = self.journal.lock();
        let at = journal.tick();
        journal.flushes.push(Flush { disk: self.index, asked: at, done: at, has_failed: true });
    }

    /// Zeros are written, which a power cut may leave in any part.
    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        if let Err(error) = self.info.check_writable(Op::Discard, offset, len) {
            return Io::done(Err(error));
        }
        self.journal.lock().discarded_bytes += len;
        self.write_at(offset, Bytes::from(vec![0; len as usize]))
    }
}
