//! Driver commands over io_uring, and the memory they use.
//!
//! ```text
//!   [`control`]   one command to /dev/ublk-control, on a ring of its own
//!   [`Ring`]      queues of many devices: FETCH each tag once, then per request
//!                   read    arrived ------------------------------------------> COMMIT with the data
//!                   write   arrived, wants a buffer --> NEED_GET_DATA --> filled --> COMMIT
//! ```
//!
//! Idea: tags have no memory of their own (`UBLK_F_NEED_GET_DATA`). COMMIT names the address of data read;
//! for a write, the kernel asks for a buffer first. So the server decides how much memory is in use.
//!
//! Threads: the driver accepts a queue's commands only from the thread that fetched first, in whose context
//! it copies. So a [`Ring`] belongs to one thread.
//!
//! Ownership: the kernel owns a tag from FETCH or COMMIT to its completion. Until then the ring keeps the
//! memory that the command names; COMMIT copies at submission.
#![allow(unsafe_code)] // entries hold addresses; queues' descriptors are mapped; the kernel fills buffers

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::abi::{
    DEPTH_MAX, DESCRIPTOR_BYTES, Descriptor, Io, Numbers, RES_NEED_GET_DATA, Subject, io_command,
};

const ENTRIES: u32 = 256;
/// Completion queue entries. The kernel keeps further completions.
const COMPLETIONS: u32 = 1024;
/// Pause after a refused system call.
const BREATH: Duration = Duration::from_millis(1);
/// User data of the eventfd poll.
const WAKE: u64 = u64::MAX;

/// Executes a control command and waits for it. `buffer`: its input or output.
///
/// # Errors
/// The driver's, or io_uring is unavailable.
pub fn control(driver: &OwnedFd, number: u32, subject: Subject, buffer: &mut [u8]) -> io::Result<u32> {
    let mut kernel: IoUring<Entry128, cqueue::Entry> = IoUring::builder().dontfork().build(1)?;
    let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
    let len = u16::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let body = subject.encode(address, len);
    let entry = opcode::UringCmd80::new(types::Fd(driver.as_raw_fd()), number).cmd(body).build();
    // SAFETY: the buffer is borrowed until this returns, which is after the completion, or if the kernel has
    // not taken the entry.
    unsafe { kernel.submission().push(&entry) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
    loop {
        let waited = kernel.submit_and_wait(1);
        if let Some(done) = kernel.completion().next() {
            let failed = |_| io::Error::from_raw_os_error(-done.result());
            return u32::try_from(done.result()).map_err(failed);
        }
        if let Err(error) = waited {
            if !kernel.submission().is_empty() && error.raw_os_error() != Some(Errno::INTR.raw_os_error()) {
                return Err(error);
            }
            std::thread::sleep(BREATH);
        }
    }
}

/// A tag of a queue: one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Its index in the ring.
    pub queue: u32,
    /// The tag.
    pub tag: u16,
}

/// A ring event.
#[derive(Debug)]
pub enum Event {
    /// The eventfd was written to.
    Woken,
    /// A request; `true`: needs [`Ring::get_data`].
    Arrived(At, Descriptor, bool),
    /// A write's data; cut short if memory is short.
    Filled(At, Descriptor, Bytes),
    /// The queue ended: the device was stopped.
    Gone(u32),
}

/// Queues of devices. Belongs to one thread.
pub struct Ring {
    // Dropped first: then its commands' memory belongs to the ring alone.
    kernel: IoUring<Entry128, cqueue::Entry>,
    queues: Vec<Option<Queue>>,
    /// Data of unsubmitted commits.
    committed: Vec<Bytes>,
    wake: Arc<OwnedFd>,
    numbers: Numbers,
}

struct Queue {
    device: OwnedFd,
    number: u16,
    descriptors: Descriptors,
    /// Buffers in the kernel's hands, by tag.
    filling: Vec<Option<Vec<u8>>>,
    /// Tags not yet aborted.
    live: usize,
}

impl Ring {
    /// Creates an empty ring.
    ///
    /// # Errors
    /// io_uring is missing or denied.
    pub fn new(numbers: Numbers) -> io::Result<Ring> {
        let kernel = IoUring::builder().dontfork().setup_cqsize(COMPLETIONS).build(ENTRIES)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut ring = Ring { kernel, queues: Vec::new(), committed: Vec::new(), wake, numbers };
        ring.await_wake();
        Ok(ring)
    }

    /// Eventfd that wakes [`Ring::wait`].
    pub fn wake(&self) -> &Arc<OwnedFd> {
        &self.wake
    }

    /// Serves a queue. Returns its index.
    ///
    /// # Errors
    /// Its descriptors cannot be mapped.
    pub fn attach(&mut self, device: OwnedFd, number: u16, depth: u16) -> io::Result<u32> {
        let descriptors = Descriptors::map(&device, number, depth.into())?;
        let filling = (0..depth).map(|_| None).collect();
        let queue = Queue { device, number, descriptors, filling, live: depth.into() };
        let free = self.queues.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() - 1
        });
        self.queues[place] = Some(queue);
        let place = place as u32;
        (0..depth).for_each(|tag| self.submit(Io::FetchReq, At { queue: place, tag }, 0, 0));
        // The next wait submits the rest.
        self.kernel.submit().ok();
        Ok(place)
    }

    /// Asks for a write's data.
    pub fn get_data(&mut self, at: At) {
        let Some(queue) = self.queue(at) else { return };
        // The kernel fills the descriptor's length, and wants an address even for none.
        let mut buffer = Vec::with_capacity(queue.descriptors.get(at.tag).brings().max(1));
        let address = buffer.as_mut_ptr() as u64;
        queue.filling[usize::from(at.tag)] = Some(buffer);
        self.submit(Io::NeedGetData, at, 0, address);
    }

    /// Answers with data read, and fetches the next request.
    pub fn commit(&mut self, at: At, result: i32, data: Bytes) {
        let Some(queue) = self.queue(at) else { return };
        let address = data.as_ptr() as u64;
        // The result is the length that the kernel copies.
        let result = match queue.descriptors.get(at.tag) {
            read if read.op == Descriptor::READ => result.min(data.len().min(read.bytes()) as i32),
            _ => result,
        };
        self.committed.push(data);
        self.submit(Io::CommitAndFetchReq, at, result, address);
    }

    /// Submits commands and waits for events.
    pub fn wait(&mut self, events: &mut Vec<Event>) {
        match self.kernel.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            // Memory is short, or the completion queue is full.
            Err(_) => std::thread::sleep(BREATH),
        }
        if self.kernel.submission().is_empty() {
            self.committed.clear();
        }
        let done: Vec<(u64, i32)> =
            self.kernel.completion().map(|done| (done.user_data(), done.result())).collect();
        for (user_data, result) in done {
            match user_data {
                WAKE => {
                    // Fails if the counter is 0.
                    rustix::io::read(&self.wake, &mut [0; 8]).ok();
                    self.await_wake();
                    events.push(Event::Woken);
                }
                _ => {
                    let at = At { queue: (user_data >> 16) as u32, tag: user_data as u16 };
                    events.extend(self.complete(at, result));
                }
            }
        }
    }

    fn complete(&mut self, at: At, result: i32) -> Option<Event> {
        let queue = self.queue(at)?;
        let filled = queue.filling[usize::from(at.tag)].take();
        if result < 0 {
            queue.live -= 1;
            if queue.live > 0 {
                return None;
            }
            self.queues[at.queue as usize] = None;
            return Some(Event::Gone(at.queue));
        }
        let descriptor = queue.descriptors.get(at.tag);
        match filled {
            Some(mut buffer) if result != RES_NEED_GET_DATA => {
                let len = descriptor.brings().min(buffer.capacity());
                // SAFETY: the kernel has filled as much of it as the descriptor says, and has given it back.
                unsafe { buffer.set_len(len) };
                Some(Event::Filled(at, descriptor, buffer.into()))
            }
            _ => Some(Event::Arrived(at, descriptor, result == RES_NEED_GET_DATA)),
        }
    }

    fn queue(&mut self, at: At) -> Option<&mut Queue> {
        let queue = self.queues.get_mut(at.queue as usize)?.as_mut()?;
        (usize::from(at.tag) < queue.filling.len()).then_some(queue)
    }

    fn submit(&mut self, command: Io, at: At, result: i32, address: u64) {
        let number = self.numbers.io(command);
        let Some(queue) = self.queue(at) else { return };
        let body = io_command(queue.number, at.tag, result, address);
        let entry = opcode::UringCmd80::new(types::Fd(queue.device.as_raw_fd()), number).cmd(body).build();
        self.push(&entry.user_data(u64::from(at.queue) << 16 | u64::from(at.tag)));
    }

    fn await_wake(&mut self) {
        let flags = u32::from(PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), flags).build();
        self.push(&entry.user_data(WAKE).into());
    }

    fn push(&mut self, entry: &Entry128) {
        // SAFETY: the ring owns the memory that the entry points to, until the kernel has given it up.
        while unsafe { self.kernel.submission().push(entry) }.is_err() {
            self.kernel.submit().ok();
        }
    }
}

/// Request descriptors, written by the kernel.
struct Descriptors {
    memory: *mut c_void,
    bytes: usize,
    depth: usize,
}

// SAFETY: it owns its mapping.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(device: &OwnedFd, queue: u16, depth: usize) -> io::Result<Descriptors> {
        let round = |bytes: usize| bytes.next_multiple_of(page_size());
        let bytes = round(depth * DESCRIPTOR_BYTES);
        let offset = u64::from(queue) * round(DEPTH_MAX * DESCRIPTOR_BYTES) as u64;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: new memory, wherever the kernel likes, which only the kernel writes.
        let memory = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, flags, device.as_fd(), offset)? };
        Ok(Descriptors { memory, bytes, depth })
    }

    fn get(&self, tag: u16) -> Descriptor {
        assert!(usize::from(tag) < self.depth, "tags are checked");
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let at = self.memory.cast::<u8>().wrapping_add(usize::from(tag) * DESCRIPTOR_BYTES);
        // SAFETY: within the mapping; the kernel wrote it before the completion, and keeps it until COMMIT.
        unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), DESCRIPTOR_BYTES) };
        Descriptor::decode(&bytes)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped so, and nobody else knows of it.
        unsafe { munmap(self.memory, self.bytes) }.ok();
    }
}
