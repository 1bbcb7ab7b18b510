//! Regular files and block devices of the host.
//!
//! A read takes the first way that works:
//!
//! ```text
//!   1. inline      preadv2(RWF_NOWAIT): what is in the page cache is copied on the spot, no thread, no allocation
//!                  but the buffer. Millions of metadata reads from a warm cache end here.
//!   2. io_uring    the rest of the range goes to the reactor thread: deep queues without a thread a request.
//!   3. threads     where the kernel refuses io_uring, and in the simulator (inline there, for one history a seed).
//! ```
//!
//! Direct I/O (`O_DIRECT`, for block devices) skips 1: ranges are widened to the alignment the kernel wants and cut again
//! after.
//!
//! Writes past the page cache go to io_uring; those into it to a thread, as the kernel would do with them ([`queue`]).

mod buffer;
mod open;
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
use std::io::{Error, ErrorKind};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uring::{Ring, Transfer};

/// So much written to a file makes the kernel begin to write it to the disk.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// A regular file or a block device, opened.
pub struct FileDevice {
    info: DeviceInfo,
    file: Arc<File>,
    runtime: Runtime,
    ring: Option<&'static Arc<Ring>>,
    writes: WritePath,
    /// `Some` with `O_DIRECT`: offsets, lengths and memory are multiples of this many bytes.
    direct_align: Option<usize>,
    /// Reads try the page cache first. Cleared when the file system turns out not to offer that.
    try_cached: AtomicBool,
    /// Bytes written into the page cache.
    written_bytes: AtomicU64,
}

/// Which way writes and flushes take.
enum WritePath {
    Ring(&'static Arc<Ring>),
    Queue(Arc<WriteQueue>),
}

/// A read as the kernel sees it: the range asked for, widened to the alignment.
struct Range {
    /// Where the transfer begins.
    start: u64,
    /// Bytes before the first one asked for.
    skip: usize,
    /// Bytes asked for.
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
        let ring = if may_use_ring { Ring::shared() } else { None };
        let past_cache = opened.direct_align.is_some() || options.io_path == IoPath::Uring;
        let file = Arc::new(opened.file);
        Ok(FileDevice {
            info: opened.info,
            writes: match ring.filter(|_| past_cache) {
                Some(ring) => WritePath::Ring(ring),
                None => WritePath::Queue(WriteQueue::new(file.clone())),
            },
            file,
            runtime: runtime.clone(),
            ring,
            try_cached: AtomicBool::new(options.io_path == IoPath::Auto && opened.direct_align.is_none()),
            direct_align: opened.direct_align,
            written_bytes: AtomicU64::new(0),
        })
    }

    /// Takes the lock that keeps other programs from writing, until the device is closed.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] if another has it, in this process or another.
    pub fn lock(&self) -> Result<()> {
        open::lock(&self.file, &self.info.path)
    }

    /// The descriptor, to ask the kernel about it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills the buffer from the page cache as far as that goes. Says whether the buffer is full or the file at its end.
    fn read_cached(&self, buffer: &mut Buffer, start: u64) -> bool {
        while !buffer.is_complete() {
            match buffer.read_cached(&self.file, start) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    // EOPNOTSUPP and the like will not change; the slow way reports any error that matters.
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
    async fn read_waiting(&self, mut buffer: Buffer, range: Range) -> Result<Bytes> {
        let start = range.start;
        let outcome = match self.ring {
            Some(ring) => match ring.transfer(self.file.clone(), start, Transfer::Read(buffer)).await {
                Ok(Transfer::Read(buffer)) => Ok(buffer),
                Ok(_) => Err(Error::other("io_uring answered another request")),
                Err(error) => Err(error),
            },
            None => {
                let file = self.file.clone();
                let fill = move || read_to_end(&file, &mut buffer, start).map(|()| buffer);
                self.runtime.blocking(fill).await
            }
        };
        let io_error =
            |error| self.info.io_error(Op::Read, start + range.skip as u64, range.len as u64, error);
        self.finish_read(outcome.map_err(io_error)?, range)
    }

    /// Cuts the range asked for out of what was read.
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
        let outcome = match &self.writes {
            WritePath::Ring(ring) => ring.write(self.file.clone(), offset, data, through).await,
            WritePath::Queue(_) if through => {
                let file = self.file.clone();
                self.runtime.blocking(move || queue::write_durably(&file, offset, &data)).await
            }
            WritePath::Queue(queue) => queue.write(&self.runtime, offset, data).await,
        };
        outcome.map_err(|error| self.info.io_error(Op::Write, offset, len, error))?;
        self.written(len);
        Ok(())
    }

    /// Every so often sends what is in the page cache on its way to the disk: a flush at the end would find all of it still there.
    fn written(&self, len: u64) {
        let Some(ring) = self.ring.filter(|_| self.direct_align.is_none()) else { return };
        let before = self.written_bytes.fetch_add(len, Ordering::Relaxed);
        if before / WRITEBACK_BYTES != (before + len) / WRITEBACK_BYTES {
            // On its own; and a hint: the write has succeeded, whatever becomes of this.
            drop(ring.start_transfer(self.file.clone(), 0, Transfer::StartWriteback));
        }
    }

    /// The same data in memory that direct I/O accepts: copied only if it is not there already.
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
        let outcome = match &self.writes {
            WritePath::Ring(ring) => ring.transfer(self.file.clone(), 0, Transfer::Sync).await.map(drop),
            WritePath::Queue(_) => {
                let file = self.file.clone();
                self.runtime.blocking(move || file.sync_data()).await
            }
        };
        outcome.map_err(|error| self.info.io_error(Op::Flush, 0, 0, error))
    }

    async fn discard_waiting(&self, offset: u64, len: u64) -> Result<()> {
        let file = self.file.clone();
        // Punching a hole is how files and block devices alike give up a range; both then read as zeros.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let outcome = self.runtime.blocking(move || rustix::fs::fallocate(&*file, punch, offset, len)).await;
        outcome.map_err(|errno| match errno {
            rustix::io::Errno::OPNOTSUPP => {
                DeviceError::Unsupported { path: self.info.path.clone(), op: Op::Discard }
            }
            _ => self.info.io_error(Op::Discard, offset, len, errno.into()),
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
        match buffer.read(file, start) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
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
        if self.try_cached.load(Ordering::Relaxed) && self.read_cached(&mut buffer, offset) {
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
            // A hint: if the kernel will not take it, the read itself does all the work.
            let _ = rustix::fs::fadvise(&*self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
        }
    }

    fn has_hole(&self, offset: u64, len: u64) -> bool {
        // The descriptor's position is of no use to anybody. Block devices answer with their end.
        rustix::fs::seek(&*self.file, SeekFrom::Hole(offset)).is_ok_and(|hole| hole < offset + len)
    }
}
