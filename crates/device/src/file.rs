//! Regular files and block devices of the host.
//!
//! A read takes the first path that works:
//!
//! ```text
//!   1. inline      preadv2(RWF_NOWAIT): copies what is in the page cache right away, without a thread,
//!                  allocating only the buffer. Millions of metadata reads from a warm cache end here.
//!   2. io_uring    the rest of the range is submitted to the ring: deep queues, no thread per request.
//!   3. threads     where the kernel refuses io_uring, and in the simulator (there inline, so that a seed is
//!                  a history).
//! ```
//!
//! Direct I/O (`O_DIRECT`, for block devices) skips path 1: ranges are widened to the alignment that the
//! kernel requires and trimmed afterwards.
//!
//! Writes that bypass the page cache go to io_uring; those into it go to a thread, as they would inside the
//! kernel ([`queue`]).
//!
//! Locking: none of its own; all methods may be called concurrently. `try_cached` and `written_bytes` are
//! relaxed atomics: a stale value costs one attempt or one hint. The lock that keeps other programs out
//! belongs to the open file and ends with it.

mod buffer;
mod interrupted;
mod open;
mod pieces;
mod queue;
mod uring;

pub use open::{Access, Direct, IoPath, OpenOptions};

use crate::error::{DeviceError, Op, Result};
use crate::io::Io;
use crate::{Device, DeviceInfo};
use buffer::Buffer;
use bytes::Bytes;
use cenote_runtime::Runtime;
use queue::WriteQueue;
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use std::fs::File;
use std::io::{Error, ErrorKind, Result as IoResult};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uring::{Ring, Transfer};

/// After this many bytes written to a file, the kernel is asked to start writing them to the disk.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// An open regular file or block device.
pub struct FileDevice {
    info: DeviceInfo,
    file: Arc<File>,
    runtime: Runtime,
    ring: Option<Arc<Ring>>,
    writes: WritePath,
    /// `Some` with `O_DIRECT`: offsets, lengths and memory are multiples of this many bytes.
    direct_align: Option<usize>,
    /// Reads try the page cache first. Cleared once the file system turns out not to support that.
    try_cached: AtomicBool,
    /// Bytes written into the page cache.
    written_bytes: AtomicU64,
}

/// The path of writes and flushes.
#[derive(Clone)]
enum WritePath {
    Ring(Arc<Ring>),
    Queue(Arc<WriteQueue>),
}

/// A read as the kernel sees it: the requested range, widened to the alignment.
struct Range {
    /// Where the transfer begins.
    start: u64,
    /// Bytes before the first requested one.
    skip: usize,
    /// Bytes requested.
    len: usize,
}

impl FileDevice {
    /// Opens a file or block device.
    pub fn open(
        path: impl AsRef<std::path::Path>,
        options: OpenOptions,
        runtime: &Runtime,
    ) -> Result<FileDevice> {
        let opened = open::open(path.as_ref(), options)?;
        let may_use_ring = options.io_path != IoPath::Threads && !runtime.is_simulated();
        let ring = if may_use_ring { Ring::of(runtime) } else { None };
        let past_cache = opened.direct_align.is_some() || options.io_path == IoPath::Uring;
        let file = Arc::new(opened.file);
        Ok(FileDevice {
            info: opened.info,
            writes: match &ring {
                Some(ring) if past_cache => WritePath::Ring(ring.clone()),
                _ => WritePath::Queue(WriteQueue::new(file.clone())),
            },
            file,
            runtime: runtime.clone(),
            ring,
            try_cached: AtomicBool::new(options.io_path == IoPath::Auto && opened.direct_align.is_none()),
            direct_align: opened.direct_align,
            written_bytes: AtomicU64::new(0),
        })
    }

    /// Takes the lock that keeps other programs from writing until the device is closed.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] if another opener holds it, in this process or another.
    pub fn lock(&self) -> Result<()> {
        open::lock(&self.file, &self.info.path)
    }

    /// The descriptor, to ask the kernel about it.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn may_be_cached(&self) -> bool {
        self.try_cached.load(Ordering::Relaxed)
    }

    /// Fills the buffer from the page cache as far as possible. Returns whether the buffer is full or the
    /// file has ended.
    fn read_cached(&self, buffer: &mut Buffer, start: u64) -> bool {
        while !buffer.is_complete() {
            match buffer.read_cached(&self.file, start) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    // EOPNOTSUPP and the like will not change; the slow path reports any error that
                    // matters.
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

    /// Trims what was read to the requested range.
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

    fn write(&self, offset: u64, data: Bytes, through: bool) -> Io<'_, ()> {
        let len = data.len() as u64;
        let checked = self.info.check_writable(Op::Write, offset, len);
        match checked.and_then(|()| self.check_aligned(Op::Write, offset, len)) {
            Ok(()) => Io::pending(self.write_waiting(offset, data, through)),
            Err(error) => Io::done(Err(error)),
        }
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

    /// Now and then asks the kernel to start writing back the page cache; otherwise a flush at the end
    /// would find all of it still there.
    fn written(&self, len: u64) {
        let Some(ring) = self.ring.as_ref().filter(|_| self.direct_align.is_none()) else { return };
        let before = self.written_bytes.fetch_add(len, Ordering::Relaxed);
        if before / WRITEBACK_BYTES != (before + len) / WRITEBACK_BYTES {
            // Nobody waits for it, and it is only a hint: the write has succeeded either way.
            drop(ring.start_transfer(self.file.clone(), 0, Transfer::StartWriteback));
        }
    }

    /// The same data at an address that direct I/O accepts; copied only if necessary.
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
        outcome.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => {
                DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }
            }
            _ => self.info.io_error(Op::Discard, offset, len, error),
        })
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

/// Reads until the buffer is full or the file ends.
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
        &self.info
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<'_, Bytes> {
        if let Err(error) = self.info.check_range(Op::Read, offset, len as u64) {
            return Io::done(Err(error));
        }
        let align = self.direct_align.unwrap_or(1);
        let range = Range::new(offset, len, align);
        let mut buffer = range.buffer(align);
        if self.may_be_cached() && self.read_cached(&mut buffer, offset) {
            return Io::done(self.finish_read(buffer, range));
        }
        Io::pending(self.read_waiting(buffer, range))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<'_, ()> {
        self.write(offset, data, false)
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<'_, ()> {
        self.write(offset, data, true)
    }

    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<'_, Vec<Bytes>> {
        self.read_pieces_at(offset, lens)
    }

    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<'_, ()> {
        self.write_pieces_at(offset, pieces)
    }

    fn flush(&self) -> Io<'_, ()> {
        Io::pending(self.flush_waiting())
    }

    fn discard(&self, offset: u64, len: u64) -> Io<'_, ()> {
        match self.info.check_writable(Op::Discard, offset, len) {
            Ok(()) if len == 0 => Io::done(Ok(())),
            Ok(()) => Io::pending(self.discard_waiting(offset, len)),
            Err(error) => Io::done(Err(error)),
        }
    }

    fn advise(&self, offset: u64, len: u64) {
        if self.direct_align.is_none() {
            // A hint: if the kernel refuses it, the read itself does all the work.
            let _ = rustix::fs::fadvise(&*self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
        }
    }

    fn has_hole(&self, offset: u64, len: u64) -> bool {
        // Nobody uses the descriptor's position. Block devices return their end.
        rustix::fs::seek(&*self.file, SeekFrom::Hole(offset)).is_ok_and(|hole| hole < offset + len)
    }

    fn is_there(&self) -> bool {
        std::fs::exists(&*self.info.path).unwrap_or(true)
    }

    fn grown(&self) -> Option<Arc<dyn Device>> {
        let size_bytes = rustix::fs::seek(&*self.file, SeekFrom::End(0)).ok()?;
        if size_bytes <= self.info.size_bytes {
            return None;
        }
        Some(Arc::new(FileDevice {
            info: DeviceInfo { size_bytes, ..self.info.clone() },
            file: self.file.clone(),
            runtime: self.runtime.clone(),
            ring: self.ring.clone(),
            writes: self.writes.clone(),
            direct_align: self.direct_align,
            try_cached: AtomicBool::new(self.may_be_cached()),
            written_bytes: AtomicU64::new(0),
        }))
    }
}
