//! Regular files and block devices of the host.
//!
//! A read takes the first path that works:
//!
//! ```text
//!   1. inline      preadv2(RWF_NOWAIT): copies from the page cache right away, without a thread,
//!                  allocating only the buffer. Millions of metadata reads from a warm cache end here.
//!   2. io_uring    the rest of the range is submitted to the ring: deep queues, no thread per request.
//!   3. threads     where the kernel refuses io_uring, and in the simulator (there inline, so that a seed is
//!                  a history).
//! ```
//!
//! Direct I/O (`O_DIRECT`, for block devices) skips path 1: ranges are widened to the required alignment and
//! trimmed afterwards. Direct writes go to io_uring; writes to the page cache go to a thread, as they would
//! inside the kernel ([`queue`]).
//!
//! A durable write to a file in memory (tmpfs) waits for nothing: it is made within the call.
//!
//! Every call that may sleep, including open and the size query, goes to the threads for blocking calls: a
//! hung disk must not take a worker thread, which serves all pools.
//!
//! Locking: operations share the open file and take their turn among overlapping changes ([`Order`]).
//! `try_cached` and `written_bytes` are relaxed atomics: a stale value costs one attempt or one hint. A mutex
//! guards `solid`, never across a call. The lock against other programs, under all names of the device
//! ([`claim`]), ends with the open file, after the last operation.

mod block_devices;
mod buffer;
mod claim;
mod interrupted;
mod open;
mod pieces;
mod queue;
mod uring;

pub use block_devices::{BlockDevice, block_devices};
pub use open::{Access, Direct, IoPath, OpenOptions};

use crate::error::{DeviceError, Op, Result};
use crate::io::Io;
use crate::order::{Order, Position};
use crate::{Device, DeviceInfo};
use buffer::Buffer;
use bytes::Bytes;
use cenote_runtime::Runtime;
use open::{OpenFile, Waits};
use parking_lot::Mutex;
use queue::WriteQueue;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::fs::File;
use std::io::{Error, ErrorKind, Result as IoResult};
use std::ops::Range as Span;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uring::{Ring, Transfer};

/// Bytes written after which the kernel is asked to start writeback.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// An open regular file or block device.
pub struct FileDevice(Arc<Shared>);

struct Shared {
    info: DeviceInfo,
    file: Arc<OpenFile>,
    runtime: Runtime,
    ring: Option<Arc<Ring>>,
    writes: WritePath,
    /// `Some` with `O_DIRECT`: the alignment of offsets, lengths and memory.
    direct_align: Option<usize>,
    /// Cleared if the file system does not support cached reads.
    try_cached: AtomicBool,
    written_bytes: AtomicU64,
    order: Order,
    /// A range without holes; the whole of a block device.
    solid: Mutex<Span<u64>>,
}

#[derive(Clone)]
enum WritePath {
    Ring(Arc<Ring>),
    Queue(Arc<WriteQueue>),
}

/// A requested range, widened to the alignment.
struct Range {
    start: u64,
    /// Bytes before the first requested one.
    skip: usize,
    len: usize,
}

impl FileDevice {
    /// Opens a file or block device.
    ///
    /// # Errors
    /// It does not exist, is unsuitable, or is in use.
    pub async fn open(path: impl AsRef<Path>, options: OpenOptions, runtime: &Runtime) -> Result<FileDevice> {
        let path = path.as_ref().to_owned();
        let opened = open::unless_in_use(runtime, move || open::open(&path, options)).await?;
        let may_use_ring = options.io_path != IoPath::Threads && !runtime.is_simulated();
        let ring = if may_use_ring { Ring::of(runtime) } else { None };
        let may_try_cached = options.io_path == IoPath::Auto && opened.waits != Waits::Always;
        let past_cache = opened.direct_align.is_some() || options.io_path == IoPath::Uring;
        let file = OpenFile::new(opened.file, opened.claims, opened.waits, runtime);
        let all = if opened.is_block { 0..u64::MAX } else { 0..0 };
        Ok(FileDevice(Arc::new(Shared {
            info: opened.info,
            writes: match &ring {
                Some(ring) if past_cache => WritePath::Ring(ring.clone()),
                _ => WritePath::Queue(WriteQueue::new(file.clone())),
            },
            file,
            runtime: runtime.clone(),
            ring,
            try_cached: AtomicBool::new(may_try_cached && opened.direct_align.is_none()),
            direct_align: opened.direct_align,
            written_bytes: AtomicU64::new(0),
            order: Order::default(),
            solid: Mutex::new(all),
        })))
    }

    /// Keeps other programs from writing until the device is closed.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] if another opener has the lock, in this process or another.
    pub async fn lock(&self) -> Result<()> {
        let of = self.0.clone();
        open::unless_in_use(&self.0.runtime, move || of.file.lock(&of.info.path)).await
    }

    /// The open file, for queries to the kernel.
    pub fn file(&self) -> &File {
        &self.0.file
    }

    fn change<F: Future<Output = Result<()>> + Send>(
        &self,
        offset: u64,
        len: u64,
        steps: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
    ) -> Io<()> {
        let (of, place) = (self.0.clone(), self.0.order.enter(offset, len));
        Io::pending(&self.0.runtime, async move {
            let _turn = place.turn().await;
            steps(of).await
        })
    }

    fn write(&self, offset: u64, data: Bytes, through: bool) -> Io<()> {
        let len = data.len() as u64;
        let checked = self.0.info.check_writable(Op::Write, offset, len);
        match checked.and_then(|()| self.0.check_aligned(Op::Write, offset, len)) {
            Ok(()) if len == 0 => Io::done(Ok(())),
            Ok(()) if through && self.0.is_in_memory() => self.write_to_memory(offset, data),
            Ok(()) => self
                .change(offset, len, move |of| async move { of.write_waiting(offset, data, through).await }),
            Err(error) => Io::done(Err(error)),
        }
    }

    /// Writes within the call, unless an overlapping change is under way.
    fn write_to_memory(&self, offset: u64, data: Bytes) -> Io<()> {
        let (of, len) = (self.0.clone(), data.len() as u64);
        let write = move |of: &Shared| {
            let outcome = queue::write_durably(&of.file, offset, &data);
            outcome.map_err(|error| of.info.io_error(Op::Write, offset, len, error))
        };
        match of.order.enter(offset, len) {
            Position::First(_turn) => Io::done(write(&of)),
            place @ Position::Behind(_) => Io::pending(&self.0.runtime, async move {
                let _turn = place.turn().await;
                write(&of)
            }),
        }
    }
}

impl Shared {
    /// Calls return at once.
    fn is_in_memory(&self) -> bool {
        self.file.waits == Waits::Never && matches!(self.writes, WritePath::Queue(_))
    }

    fn may_be_cached(&self) -> bool {
        self.try_cached.load(Ordering::Relaxed)
    }

    /// Copies all cached bytes. Returns whether the buffer is full or the file has ended.
    fn read_cached(&self, buffer: &mut Buffer, start: u64) -> bool {
        while !buffer.is_complete() {
            match buffer.read_cached(&self.file, start) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    // EOPNOTSUPP and the like are permanent; the slow path reports real errors.
                    if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                        self.try_cached.store(false, Ordering::Relaxed);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Fills the rest of the buffer, waiting for the device.
    async fn read_waiting(&self, buffer: Buffer, range: Range) -> Result<Bytes> {
        let start = range.start;
        let mut buffer = Some(buffer);
        let outcome = interrupted::transfer(&self.runtime, || {
            // After an interruption the buffer is gone, with everything read so far.
            let buffer = buffer.take().unwrap_or_else(|| range.buffer(self.direct_align.unwrap_or(1)));
            self.fill(buffer, start)
        });
        let io_error =
            |error| self.info.io_error(Op::Read, start + range.skip as u64, range.len as u64, error);
        self.finish_read(outcome.await.map_err(io_error)?, range)
    }

    async fn fill(&self, mut buffer: Buffer, start: u64) -> IoResult<Buffer> {
        match &self.ring {
            Some(ring) => match ring.transfer(self.file.clone(), start, Transfer::Read(buffer)).await? {
                Transfer::Read(buffer) => Ok(buffer),
                _ => Err(Error::other("io_uring answered another request")),
            },
            None => {
                let file = self.file.clone();
                let fill = move || read_to_end(&file, &mut buffer, start).map(|()| buffer);
                self.runtime.blocking(fill).await
            }
        }
    }

    fn finish_read(&self, buffer: Buffer, range: Range) -> Result<Bytes> {
        let bytes = buffer.into_bytes(range.skip, range.len);
        if bytes.len() == range.len {
            return Ok(bytes);
        }
        let (offset, done) = (range.start + range.skip as u64, bytes.len() as u64);
        Err(DeviceError::Short {
            path: self.info.path.clone(),
            op: Op::Read,
            offset,
            len: range.len as u64,
            done,
        })
    }

    fn check_aligned(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        let align = self.direct_align.unwrap_or(1) as u64;
        if offset.is_multiple_of(align) && len.is_multiple_of(align) {
            return Ok(());
        }
        Err(DeviceError::Misaligned { path: self.info.path.clone(), op, offset, len, align })
    }

    async fn write_waiting(&self, offset: u64, data: Bytes, through: bool) -> Result<()> {
        let len = data.len() as u64;
        let data = self.aligned(data);
        let outcome = interrupted::transfer(&self.runtime, || self.put(offset, data.clone(), through)).await;
        outcome.map_err(|error| self.info.io_error(Op::Write, offset, len, error))?;
        self.written(len);
        Ok(())
    }

    async fn put(&self, offset: u64, data: Bytes, through: bool) -> IoResult<()> {
        match &self.writes {
            WritePath::Ring(ring) => ring.write(self.file.clone(), offset, data, through).await,
            WritePath::Queue(_) if through => {
                let file = self.file.clone();
                self.runtime.blocking(move || queue::write_durably(&file, offset, &data)).await
            }
            WritePath::Queue(queue) => queue.write(&self.runtime, offset, data).await,
        }
    }

    /// Starts writeback every [`WRITEBACK_BYTES`], so that the final flush has less to write.
    fn written(&self, len: u64) {
        let Some(ring) = self.ring.as_ref().filter(|_| self.direct_align.is_none()) else { return };
        let before = self.written_bytes.fetch_add(len, Ordering::Relaxed);
        if before / WRITEBACK_BYTES != (before + len) / WRITEBACK_BYTES {
            // Not awaited and only a hint: the write has succeeded either way.
            drop(ring.start_transfer(self.file.clone(), 0, Transfer::StartWriteback));
        }
    }

    /// The data at an aligned address; copied only if necessary.
    fn aligned(&self, data: Bytes) -> Bytes {
        let Some(align) = self.direct_align else { return data };
        if data.as_ptr().align_offset(align) == 0 {
            return data;
        }
        let mut copy = Vec::<u8>::with_capacity(data.len() + align - 1);
        let lead = copy.as_ptr().align_offset(align);
        copy.resize(lead, 0);
        copy.extend_from_slice(&data);
        Bytes::from(copy).slice(lead..)
    }

    async fn flush_waiting(&self) -> Result<()> {
        let flush = async || match &self.writes {
            WritePath::Ring(ring) => ring.transfer(self.file.clone(), 0, Transfer::Sync).await.map(drop),
            WritePath::Queue(_) => {
                let file = self.file.clone();
                let sync = move || interrupted::call(|| Ok(rustix::fs::fdatasync(&*file)?));
                self.runtime.blocking(sync).await
            }
        };
        let outcome = interrupted::transfer(&self.runtime, flush).await;
        outcome.map_err(|error| self.info.io_error(Op::Flush, 0, 0, error))
    }

    async fn discard_waiting(&self, offset: u64, len: u64) -> Result<()> {
        // Punching a hole discards a range of a file or a block device; both then read as zeros.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let discard = async || {
            let file = self.file.clone();
            let call = move || interrupted::call(|| Ok(rustix::fs::fallocate(&*file, punch, offset, len)?));
            self.runtime.blocking(call).await
        };
        let outcome = interrupted::transfer(&self.runtime, discard).await;
        let mut solid = self.solid.lock();
        let is_file = solid.end != u64::MAX;
        if is_file && offset < solid.end && solid.start < offset.saturating_add(len) {
            *solid = 0..0;
        }
        drop(solid);
        outcome.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => {
                DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }
            }
            _ => self.info.io_error(Op::Discard, offset, len, error),
        })
    }
}

impl Shared {
    /// The first hole from an offset on, or the end of the file.
    async fn next_hole(&self, offset: u64) -> Option<u64> {
        let file = self.file.clone();
        // The descriptor's position is not used elsewhere.
        let hole = move || rustix::fs::seek(&*file, SeekFrom::Hole(offset)).ok();
        let hole = self.runtime.blocking(hole).await?;
        *self.solid.lock() = offset..hole;
        Some(hole)
    }

    /// Current size, or the size at opening if unknown.
    async fn size_now(&self) -> u64 {
        let file = self.file.clone();
        let size = move || rustix::fs::seek(&*file, SeekFrom::End(0)).ok();
        self.runtime.blocking(size).await.unwrap_or(self.info.size_bytes)
    }

    async fn grown(&self) -> Option<Arc<dyn Device>> {
        let size_bytes = Some(self.size_now().await).filter(|size| *size > self.info.size_bytes)?;
        Some(Arc::new(FileDevice(Arc::new(Shared {
            info: DeviceInfo { size_bytes, ..self.info.clone() },
            file: self.file.clone(),
            runtime: self.runtime.clone(),
            ring: self.ring.clone(),
            writes: self.writes.clone(),
            direct_align: self.direct_align,
            try_cached: AtomicBool::new(self.may_be_cached()),
            written_bytes: AtomicU64::new(0),
            order: self.order.clone(),
            solid: Mutex::new(self.solid.lock().clone()),
        }))))
    }
}

impl Range {
    fn new(offset: u64, len: usize, align: usize) -> Range {
        let skip = (offset % align as u64) as usize;
        Range { start: offset - skip as u64, skip, len }
    }

    fn buffer(&self, align: usize) -> Buffer {
        Buffer::new(self.skip + self.len, align)
    }
}

fn read_to_end(file: &File, buffer: &mut Buffer, start: u64) -> std::io::Result<()> {
    while !buffer.is_complete() {
        if interrupted::call(|| buffer.read(file, start))? == 0 {
            break;
        }
    }
    Ok(())
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn align_bytes(&self) -> u32 {
        self.0.direct_align.unwrap_or(1) as u32
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        let of = &self.0;
        if let Err(error) = of.info.check_range(Op::Read, offset, len as u64) {
            return Io::done(Err(error));
        }
        let align = of.direct_align.unwrap_or(1);
        let range = Range::new(offset, len, align);
        let mut buffer = range.buffer(align);
        if of.may_be_cached() && of.read_cached(&mut buffer, offset) {
            return Io::done(of.finish_read(buffer, range));
        }
        let of = of.clone();
        Io::pending(&self.0.runtime, async move { of.read_waiting(buffer, range).await })
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write(offset, data, false)
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.write(offset, data, true)
    }

    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        self.read_pieces_at(offset, lens)
    }

    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        self.write_pieces_at(offset, pieces)
    }

    fn flush(&self) -> Io<()> {
        let of = self.0.clone();
        Io::pending(&self.0.runtime, async move { of.flush_waiting().await })
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        match self.0.info.check_writable(Op::Discard, offset, len) {
            Ok(()) if len == 0 => Io::done(Ok(())),
            Ok(()) => {
                self.change(offset, len, move |of| async move { of.discard_waiting(offset, len).await })
            }
            Err(error) => Io::done(Err(error)),
        }
    }

    fn has_hole(&self, offset: u64, len: u64) -> Io<bool> {
        let end = offset.saturating_add(len);
        let solid = self.0.solid.lock().clone();
        if solid.start <= offset && end <= solid.end {
            return Io::done(Ok(false));
        }
        let of = self.0.clone();
        Io::pending(&self.0.runtime, async move { Ok(of.next_hole(offset).await.is_some_and(|at| at < end)) })
    }

    fn is_there(&self) -> Io<bool> {
        let of = self.0.clone();
        Io::pending(&self.0.runtime, async move {
            let path = of.info.path.clone();
            Ok(of.runtime.blocking(move || std::fs::exists(&*path).unwrap_or(true)).await)
        })
    }

    fn size_now(&self) -> Io<u64> {
        let of = self.0.clone();
        Io::pending(&self.0.runtime, async move { Ok(of.size_now().await) })
    }

    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        let of = self.0.clone();
        Io::pending(&self.0.runtime, async move { Ok(of.grown().await) })
    }
}
