//! A client of volumes, by virtio-blk: the driver of a virtual machine, with one queue that it polls.
//!
//! ```text
//!   4 Ki descriptors   8 Ki available ring   12 Ki used ring   16 Ki header   20 Ki status   32 Ki data
//! ```
//!
//! Idea: a vhost-user session needs shared memory, descriptors of events and a thread. Below these is the
//! device, which takes requests from rings in memory; the guest drives that ([`LoneQueue`]), and asks for no
//! notification. The daemon opens the disk, and sends the guest away, by the code that does so for sockets.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, sections 2.7 and 5.2.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use cenote_disk::Disk;
use cenote_fuse::Errno;
use cenote_host::cancel::Cancel;
use cenote_runtime::{Rng, Runtime};
use cenote_vhost::LoneQueue;
use cenote_vhost::request::{HEADER_BYTES, SECTOR_BYTES, Status};
use parking_lot::Mutex;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::{Reply, is_whole};
use crate::machine::daemon::Daemon;

const MEMORY_BYTES: usize = 256 << 10;
/// Descriptors of the queue.
const QUEUE_SIZE: u16 = 16;
/// Addresses.
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADER: u64 = 0x4000;
const STATUS: u64 = 0x5000;
const DATA: u64 = 0x8000;
/// The room for data.
const DATA_BYTES_MAX: u64 = MEMORY_BYTES as u64 - DATA;
/// `VIRTQ_DESC_F_*`.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;
/// `VIRTIO_BLK_T_*`.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
/// `VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP`.
const UNMAP: u32 = 1;
/// Between two looks at the used ring: the shortest time, and the longest.
const POLL: Duration = Duration::from_micros(10);
const LONGEST_POLL: Duration = Duration::from_millis(20);

/// The daemon's end of a queue.
pub struct Plug(Mutex<Option<LoneQueue>>);

impl Plug {
    /// Gives a guest's memory to the device of a disk, until the guest or the daemon ends that.
    pub fn new(
        disk: Arc<dyn Disk>,
        memory: GuestMemoryMmap,
        has_event_indexes: bool,
        daemon: &Daemon,
        cancel: Cancel,
    ) -> Arc<Plug> {
        let runtime = daemon.runtime();
        let (rings, limits) = ([DESCRIPTORS, AVAILABLE, USED], daemon.limits());
        let queue = LoneQueue::new(memory, QUEUE_SIZE, has_event_indexes, rings, disk, runtime, limits);
        let plug = Arc::new(Plug(Mutex::new(Some(queue.expect("the queue is as guests have it")))));
        runtime.spawn(Plug::ends(Arc::downgrade(&plug), runtime.clone(), cancel)).detach();
        plug
    }

    /// Takes the device away if no request is under way. Returns whether it is away.
    fn is_pulled(&self) -> bool {
        let mut queue = self.0.lock();
        if queue.as_ref().is_some_and(|queue| queue.under_way() == 0) {
            *queue = None;
        }
        queue.is_none()
    }

    /// As a connection ends: requests under way are answered first.
    async fn ends(plug: Weak<Plug>, runtime: Runtime, cancel: Cancel) {
        cancel.cancelled().await;
        while plug.upgrade().is_some_and(|plug| !plug.is_pulled()) {
            runtime.sleep(POLL).await;
        }
    }
}

/// A guest's driver.
pub struct Guest {
    runtime: Runtime,
    rng: Rng,
    memory: GuestMemoryMmap,
    plug: Arc<Plug>,
    /// Requests so far.
    count: u16,
}

impl Guest {
    /// Connects to a volume; `None`: it is not served.
    pub async fn open(daemon: &Daemon, volume: &str) -> Option<Guest> {
        let mut rng = daemon.rng();
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]);
        let memory = memory.expect("the host has memory");
        let plug = daemon.plug(volume, memory.clone(), rng.chance(0.5)).await?;
        Some(Guest { runtime: daemon.runtime().clone(), rng, memory, plug, count: 0 })
    }

    fn put<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.memory.write_obj(value, GuestAddress(at)).expect("it is within the guest's memory");
    }

    fn put_slice(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).expect("it is within the guest's memory");
    }

    fn get<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.memory.read_obj(GuestAddress(at)).expect("it is within the guest's memory")
    }

    /// Writes a chain of descriptors: header, data in pieces, status.
    fn describe(&mut self, data_bytes: u64, is_read: bool) {
        let flags = if is_read { WRITE } else { 0 };
        let mut chain = vec![(HEADER, HEADER_BYTES as u64, 0)];
        let mut at = 0;
        while at < data_bytes {
            let left = data_bytes - at;
            let is_last = chain.len() + 2 >= usize::from(QUEUE_SIZE) || self.rng.chance(0.6);
            let len = if is_last { left } else { 1 + self.rng.below(left) };
            chain.push((DATA + at, len, flags));
            at += len;
        }
        chain.push((STATUS, 1, WRITE));
        let last = chain.len() - 1;
        for (number, (address, len, flags)) in chain.into_iter().enumerate() {
            let at = DESCRIPTORS + 16 * number as u64;
            self.put(at, address);
            self.put(at + 8, len as u32);
            self.put(at + 12, if number < last { flags | NEXT } else { flags });
            self.put(at + 14, if number < last { number as u16 + 1 } else { 0 });
        }
    }

    async fn ask(&mut self, kind: u32, offset: u64, data_bytes: u64, is_read: bool) -> Result<Reply> {
        assert!(data_bytes <= DATA_BYTES_MAX, "a request is too large for the guest's memory");
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.put_u32_le(kind);
        header.put_u32_le(0);
        header.put_u64_le(offset / SECTOR_BYTES);
        self.put_slice(HEADER, &header);
        self.put(STATUS, u8::MAX);
        self.describe(data_bytes, is_read);
        // The head of the chain is descriptor 0.
        let slot = u64::from(self.count % QUEUE_SIZE);
        self.put(AVAILABLE, NO_INTERRUPT);
        self.put(AVAILABLE + 4 + 2 * slot, 0_u16);
        self.count = self.count.wrapping_add(1);
        self.put(AVAILABLE + 2, self.count);
        self.kick()?;
        let mut pause = POLL;
        while self.get::<u16>(USED + 2) != self.count {
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_POLL);
            if self.plug.0.lock().is_none() && self.get::<u16>(USED + 2) != self.count {
                return Err(gone());
            }
        }
        let written: u32 = self.get(USED + 4 + 8 * slot + 4);
        let status: u8 = self.get(STATUS);
        if status != Status::Ok as u8 {
            assert_eq!(status, Status::IoError as u8, "the device does not know request {kind}");
            return Ok(Err(Errno::IO));
        }
        let read_bytes = if is_read { data_bytes } else { 0 };
        assert_eq!(u64::from(written), read_bytes + 1, "the device did not write all");
        let mut data = vec![0; read_bytes as usize];
        self.memory.read_slice(&mut data, GuestAddress(DATA)).expect("it is within the guest's memory");
        Ok(Ok(Bytes::from(data)))
    }

    fn kick(&self) -> Result<()> {
        self.plug.0.lock().as_ref().ok_or_else(gone)?.kick();
        Ok(())
    }

    /// Reads.
    ///
    /// # Errors
    /// The daemon ends the connection; within: the device's error.
    pub async fn read(&mut self, offset: u64, len: u64) -> Result<Reply> {
        self.ask(IN, offset, len, true).await
    }

    /// Writes. The protocol has no flag for durable writes: drivers flush.
    ///
    /// # Errors
    /// As [`Guest::read`].
    pub async fn write(&mut self, offset: u64, data: &[u8], is_durable: bool) -> Result<Reply> {
        self.put_slice(DATA, data);
        let written = self.ask(OUT, offset, data.len() as u64, false).await?;
        match written {
            Ok(_) if is_durable => self.flush().await,
            done => Ok(done),
        }
    }

    /// Zeroes, in one segment or two, or discards.
    ///
    /// # Errors
    /// As [`Guest::read`].
    pub async fn zero(&mut self, offset: u64, len: u64) -> Result<Reply> {
        let (kind, flags) = match self.rng.below(3) {
            0 if is_whole(offset, len) => (DISCARD, 0),
            1 => (WRITE_ZEROES, UNMAP),
            _ => (WRITE_ZEROES, 0),
        };
        let (sector, count) = (offset / SECTOR_BYTES, len / SECTOR_BYTES);
        // A discard of a part of a block would have no effect.
        let first = if kind == DISCARD { count } else { 1 + self.rng.below(count) };
        let mut segments = Vec::new();
        for (sector, count) in [(sector, first), (sector + first, count - first)] {
            if count > 0 {
                segments.put_u64_le(sector);
                segments.put_u32_le(count as u32);
                segments.put_u32_le(flags);
            }
        }
        self.put_slice(DATA, &segments);
        self.ask(kind, 0, segments.len() as u64, false).await
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// As [`Guest::read`].
    pub async fn flush(&mut self) -> Result<Reply> {
        self.ask(FLUSH, 0, 0, false).await
    }
}

fn gone() -> Error {
    ErrorKind::ConnectionAborted.into()
}
