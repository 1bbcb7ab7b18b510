//! Devices: files, block devices, memory, and small layers that compose over any of them.
//!
//! ```text
//!      Counted     counts operations, bytes, times, sizes
//!      Traced      counts and records operations       \
//!      Delayed     takes time                           |  layers: a Device over a Device, in any order
//!      Faulty      errors, corruption, torn writes      |
//!      Gate        holds writes back until it opens    |
//!      Fence       refuses writes once a lease ran out /
//!   ------------------------------------------------
//!      FileDevice  regular file or block device: page cache inline, then io_uring or threads
//!      MemoryDevice  a live and a durable image: a power cut is one line
//! ```
//!
//! A device moves whole ranges: a read returns every requested byte, or an error with its place and cause.
//! Buffers are owned ([`Bytes`]), so a transfer may outlive the task that started it; slices of one read
//! share its buffer.

mod buffer_pool;
mod counted;
mod delayed;
mod error;
mod faulty;
mod fence;
mod file;
mod held;
mod host;
mod io;
pub mod list;
mod memory;
mod order;
mod pieces;
pub mod place;
mod rack;
mod tenure;
mod traced;

pub use buffer_pool::BufferPool;
pub use bytes::Bytes;
pub use counted::{Counted, Counters, Counts, SIZE_BUCKETS, TIME_BUCKETS};
pub use delayed::{Delayed, Latency};
pub use error::{DeviceError, Op, Result};
pub use faulty::{Fault, Faults, Faulty, Rule};
pub use fence::Fence;
pub use file::{Access, BlockDevice, Direct, FileDevice, IoPath, OpenOptions, block_devices};
pub use held::Gate;
pub use host::hostid;
pub use io::Io;
pub use memory::MemoryDevice;
pub use order::{Order, Position, Turn};
pub use place::Place;
pub use rack::{Rack, open};
pub use tenure::{Agreed, Tenure};
pub use traced::{Event, OpCount, Traced};

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The properties of an open device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Path as given, or a name, for errors and reports.
    pub path: Arc<str>,
    /// Size.
    pub size_bytes: u64,
    /// The unit that it writes without reading first (physical sector); 512 if unknown.
    pub sector_bytes: u32,
    /// `Some(true)` for spinning disks, `None` if unknown (image files).
    pub rotational: Option<bool>,
    /// Writes are refused.
    pub read_only: bool,
    /// Users other than root and this program's own could write to it when it was opened.
    pub others_may_write: bool,
    /// How it is reached.
    pub nature: Nature,
}

/// How a device is reached: for the wait for its answers, and for choices among devices with the same data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nature {
    /// The complete address of a remote device, to open it again; `None`: its path.
    pub address: Option<Arc<Place>>,
    /// The part whose failure takes all its devices away: a server; `None`: this machine.
    pub domain: Option<Arc<str>>,
    /// Class of its latency.
    pub distance: Distance,
    /// Neighbouring operations are joined up to this size at least; 0: no preference.
    pub best_io_bytes: u64,
    /// A device that does not answer within this time is out of use.
    pub deadline: Duration,
    /// Its lock in the storage itself.
    pub storage_lock: StorageLock,
}

/// A lock that the storage enforces: it refuses the writes of all others, also late ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorageLock {
    /// There is none.
    None,
    /// Opening the device for writing takes it.
    Offered,
    /// It is ours. After its loss, all operations end with [`DeviceError::Fenced`].
    Held,
}

/// Classes of latency, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// A disk of this machine.
    Local,
    /// Over a network.
    Network,
}

impl Nature {
    /// A disk of this machine. Deadline: `zfs_deadman_ziotime_ms`.
    pub const LOCAL: Nature = Nature {
        address: None,
        domain: None,
        distance: Distance::Local,
        best_io_bytes: 0,
        deadline: Duration::from_secs(300),
        storage_lock: StorageLock::None,
    };
}

/// Is told why a device was taken away.
pub type TellFenced = Box<dyn Fn(&str) + Send + Sync>;

/// A store of bytes. Shared as `Arc<dyn Device>`; all methods may be called concurrently.
///
/// An operation begins when its method is called. It owns its buffers and runs to its end, even if its [`Io`]
/// is dropped. A device closed meanwhile stays open for it.
///
/// Overlapping changes (writes and discards) are made in the order of the calls, so an awaited write is never
/// overwritten by an older change. An `Io` neither awaited nor dropped may delay later ones.
pub trait Device: Send + Sync {
    /// Properties of the device.
    fn info(&self) -> &DeviceInfo;

    /// Reads exactly `len` bytes at `offset`, of any alignment.
    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes>;

    /// Writes `data` at `offset`. Durable only after a later [`Device::flush`].
    fn write_at(&self, offset: u64, data: Bytes) -> Io<()>;

    /// Writes `data` at `offset`, durable on completion. The error may be that of another, unflushed write.
    fn write_through(&self, offset: u64, data: Bytes) -> Io<()>;

    /// Reads consecutive ranges, each into its own memory.
    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        pieces::read(self, offset, lens)
    }

    /// Writes consecutive pieces.
    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        pieces::write(self, offset, pieces)
    }

    /// Makes earlier writes durable. An error is reported once, to one flush or write-through; the affected
    /// writes may be lost although later flushes succeed.
    fn flush(&self) -> Io<()>;

    /// After a failed flush in a layer above, a simulated device treats unflushed writes as Linux treats
    /// pages that it could not write: they are clean, are read as written, and may or may not be on the disk.
    /// Real devices behave so anyway.
    fn lose_unflushed(&self) {}

    /// Discards a range, which then reads as zeros or as before. A hint; may be [`DeviceError::Unsupported`].
    fn discard(&self, offset: u64, len: u64) -> Io<()>;

    /// Whether a write to part of a range must allocate space. A hint, usually without a system call.
    fn has_hole(&self, _offset: u64, _len: u64) -> Io<bool> {
        Io::done(Ok(false))
    }

    /// Whether the device is still present, as far as known; asked after failures.
    fn is_there(&self) -> Io<bool> {
        Io::done(Ok(true))
    }

    /// Current size; smaller after a truncation.
    fn size_now(&self) -> Io<u64> {
        Io::done(Ok(self.size_bytes()))
    }

    /// The same open device with its new size, if it has grown.
    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        Io::done(Ok(None))
    }

    /// The same open device for writing, if it needs no second opening: a server may accept a single client.
    fn for_writing(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// Has `tell` called with the reason if the storage takes the device away for good, so that its pool
    /// stops before its next operation fails. It must not block.
    fn on_fenced(&self, _tell: TellFenced) {}

    /// Offsets and lengths of writes must be multiples of it.
    fn align_bytes(&self) -> u32 {
        1
    }

    /// Size at opening.
    fn size_bytes(&self) -> u64 {
        self.info().size_bytes
    }

    /// Path or name, for messages.
    fn describe(&self) -> &str {
        &self.info().path
    }
}

impl DeviceInfo {
    /// Where the device is.
    pub fn place(&self) -> Place {
        let here = || Place::from(Path::new(&*self.path));
        self.nature.address.as_deref().map_or_else(here, Place::clone)
    }

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
