//! Where bytes live: files, block devices, memory, and small layers that compose over any of them.
//!
//! ```text
//!      Traced      counts and records what passes      \
//!      Delayed     takes time                           |  layers: a Device over a Device, in any order
//!      Faulty      errors, corruption, torn writes     /
//!   ------------------------------------------------
//!      FileDevice  regular file or block device: page cache inline, then io_uring or threads
//!      MemoryDevice  a live and a durable image: a power cut is one line
//! ```
//!
//! A device moves whole ranges: a read gives every byte asked for or an error that says where and why. Buffers are owned
//! ([`Bytes`]), so a transfer may outlive whoever asked for it; slices of one read share its buffer.
//!
//! Nothing here knows what the bytes mean.

mod delayed;
mod error;
mod faulty;
mod file;
mod io;
mod memory;
mod spare;
mod traced;

pub use bytes::Bytes;
pub use delayed::{Delayed, Latency};
pub use error::{DeviceError, Op, Result};
pub use faulty::{Fault, Faulty};
pub use file::{Access, Direct, FileDevice, IoPath, OpenOptions};
pub use io::Io;
pub use memory::MemoryDevice;
pub use spare::Spare;
pub use traced::{Event, OpCount, Traced};

use std::sync::Arc;

/// What is known about a device when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// How errors and reports call it: the path as given, or a name.
    pub path: Arc<str>,
    /// Bytes it holds.
    pub size_bytes: u64,
    /// The unit in which it writes without reading first (physical sector); 512 where nothing is known.
    pub sector_bytes: u32,
    /// Whether seeks cost: `Some(true)` for disks that turn, `None` where nothing is known (image files).
    pub rotational: Option<bool>,
    /// Writes are refused.
    pub read_only: bool,
}

/// A place that holds bytes. Shared as `Arc<dyn Device>`; all methods may be called concurrently.
///
/// A transfer may begin when the method is called, and goes on if its future is dropped; only its result is lost then.
pub trait Device: Send + Sync {
    /// Path, size, sector, kind.
    fn info(&self) -> &DeviceInfo;

    /// Reads exactly `len` bytes at `offset` (both in bytes, of any alignment).
    fn read_at(&self, offset: u64, len: usize) -> Io<'_, Bytes>;

    /// Writes all of `data` at `offset`. Durable only after a later [`Device::flush`].
    fn write_at(&self, offset: u64, data: Bytes) -> Io<'_, ()>;

    /// Writes all of `data` at `offset`, and is done when that is durable. Says nothing of other writes.
    fn write_through(&self, offset: u64, data: Bytes) -> Io<'_, ()> {
        Io::pending(async move {
            self.write_at(offset, data).await?;
            self.flush().await
        })
    }

    /// Makes durable every write that was done before this call.
    fn flush(&self) -> Io<'_, ()>;

    /// Gives up the content of a range; it reads as zeros or as before until written again. A hint: a device that cannot
    /// answers [`DeviceError::Unsupported`].
    fn discard(&self, offset: u64, len: u64) -> Io<'_, ()>;

    /// Says that this range will be read soon, for read-ahead.
    fn advise(&self, _offset: u64, _len: u64) {}

    /// Whether the first write to a part of this range has to find room for it: sparse files have holes. A hint, and cheap.
    fn has_hole(&self, _offset: u64, _len: u64) -> bool {
        false
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

    /// An operation on this device that the host failed.
    pub fn io_error(&self, op: Op, offset: u64, len: u64, source: std::io::Error) -> DeviceError {
        DeviceError::Io { path: self.path.clone(), op, offset, len, source: Arc::new(source) }
    }
}
