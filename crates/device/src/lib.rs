//! Where bytes live: files, block devices, memory, and small layers that compose over any of them.
//!
//! ```text
//!      Counted     counts operations, bytes, times, sizes
//!      Traced      counts and records what passes      \
//!      Delayed     takes time                           |  layers: a Device over a Device, in any order
//!      Faulty      errors, corruption, torn writes      |
//!      Gate        holds writes back until it opens    /
//!   ------------------------------------------------
//!      FileDevice  regular file or block device: page cache inline, then io_uring or threads
//!      MemoryDevice  a live and a durable image: a power cut is one line
//! ```
//!
//! A device moves whole ranges: a read returns every requested byte, or an error that says where and why.
//! Buffers are owned ([`Bytes`]), so a transfer may outlive the task that started it; slices of one read
//! share its buffer.
//!
//! Nothing here knows what the bytes mean.

mod buffer_pool;
mod counted;
mod delayed;
mod error;
mod faulty;
mod file;
mod held;
mod io;
pub mod list;
mod memory;
mod order;
mod pieces;
mod traced;

pub use buffer_pool::BufferPool;
pub use bytes::Bytes;
pub use counted::{Counted, Counters, Counts, SIZE_BUCKETS, TIME_BUCKETS};
pub use delayed::{Delayed, Latency};
pub use error::{DeviceError, Op, Result};
pub use faulty::{Fault, Faults, Faulty, Rule};
pub use file::{Access, Direct, FileDevice, IoPath, OpenOptions};
pub use held::Gate;
pub use io::Io;
pub use memory::MemoryDevice;
pub use traced::{Event, OpCount, Traced};

use std::sync::Arc;

/// What is known about a device when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name in errors and reports: the path as given, or a name.
    pub path: Arc<str>,
    /// Bytes it holds.
    pub size_bytes: u64,
    /// The unit that it writes without reading first (physical sector); 512 if unknown.
    pub sector_bytes: u32,
    /// Whether seeks cost time: `Some(true)` for spinning disks, `None` if unknown (image files).
    pub rotational: Option<bool>,
    /// Writes are refused.
    pub read_only: bool,
    /// Users other than root and this program's own could write it when it was opened.
    pub others_may_write: bool,
}

/// Something that holds bytes. Shared as `Arc<dyn Device>`; all methods may be called concurrently.
///
/// An operation begins when its method is called. From then on it owns its buffers and goes on to its end,
/// even if its [`Io`] is dropped; only its result is lost. A device that is closed meanwhile stays open for
/// it.
///
/// Changes (writes and discards) that overlap are made in the order of the calls: each begins when the one
/// before it is over, even if nobody waits for that one any more. So data that were written, and awaited, are
/// never overwritten by an older change. An `Io` that is neither awaited nor dropped may keep later ones
/// waiting.
pub trait Device: Send + Sync {
    /// Path, size, sector, kind.
    fn info(&self) -> &DeviceInfo;

    /// Reads exactly `len` bytes at `offset` (both in bytes, of any alignment).
    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes>;

    /// Writes all of `data` at `offset`. Durable only after a later [`Device::flush`].
    fn write_at(&self, offset: u64, data: Bytes) -> Io<()>;

    /// Writes all of `data` at `offset`, and completes once it is durable. Guarantees nothing about other
    /// writes; an error may be that of another write, which was not flushed.
    fn write_through(&self, offset: u64, data: Bytes) -> Io<()>;

    /// Reads ranges that follow each other, the first at `offset`, in one operation, each into memory of its
    /// own.
    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        pieces::read(self, offset, lens)
    }

    /// Writes pieces that follow each other, the first at `offset`, in one operation.
    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        pieces::write(self, offset, pieces)
    }

    /// Makes every write durable that completed before this call. An error is told once, to one of those who
    /// flush or write through: what should have been written by then may be lost, although later flushes
    /// succeed.
    fn flush(&self) -> Io<()>;

    /// A flush has failed in a layer above: a simulated device then treats what was unflushed as Linux treats
    /// pages that it could not write. They are clean, are read as written, and may or may not be on the
    /// disk. Real devices do that by themselves.
    fn lose_unflushed(&self) {}

    /// Discards the content of a range, which then reads as zeros or as before until it is written again. A
    /// hint: a device that cannot do it returns [`DeviceError::Unsupported`].
    fn discard(&self, offset: u64, len: u64) -> Io<()>;

    /// Whether the first write to a part of this range must allocate space first: sparse files have holes.
    /// A hint, and usually known without asking the system.
    fn has_hole(&self, _offset: u64, _len: u64) -> Io<bool> {
        Io::done(Ok(false))
    }

    /// Whether it is still part of the machine, as far as that can be told: a disk that was pulled out is
    /// not. Asked when it has failed.
    fn is_there(&self) -> Io<bool> {
        Io::done(Ok(true))
    }

    /// Bytes that it holds by now: fewer than when it was opened if it was cut short.
    fn size_now(&self) -> Io<u64> {
        Io::done(Ok(self.size_bytes()))
    }

    /// The same open device with the size that it has by now, if that is larger than it was.
    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        Io::done(Ok(None))
    }

    /// Bytes it holds.
    fn size_bytes(&self) -> u64 {
        self.info().size_bytes
    }

    /// Its path or name, for messages.
    fn describe(&self) -> &str {
        &self.info().path
    }
}

impl DeviceInfo {
    /// Checks that a range lies within the device.
    pub fn check_range(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(DeviceError::OutOfRange {
                path: self.path.clone(),
                op,
                offset,
                len,
                size_bytes: self.size_bytes,
            }),
        }
    }

    /// Checks that a range lies within the device and may be changed.
    pub fn check_writable(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        if self.read_only {
            return Err(DeviceError::ReadOnly { path: self.path.clone(), op });
        }
        self.check_range(op, offset, len)
    }

    /// The error of an operation that the host failed.
    pub fn io_error(&self, op: Op, offset: u64, len: u64, source: std::io::Error) -> DeviceError {
        DeviceError::Io { path: self.path.clone(), op, offset, len, source: Arc::new(source) }
    }
}
