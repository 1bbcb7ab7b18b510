//! FUSE over io_uring: requests and answers in memory shared with the kernel.
//!
//! ```text
//!   process on core n --> kernel --> a slot of queue n --> thread n, on the same core --> session
//!                           ^                                     |
//!                           '---- COMMIT_AND_FETCH: the answer is in the slot, the next request may be
//! ```
//!
//! Idea: a request wakes a thread on its own core, and one system call both answers it and waits for the
//! next. `/dev/fuse` takes two calls, and mostly two cores. Large payloads cost one more copy here.
//!
//! The kernel wants a queue for each possible core. Only a queue's thread uses its ring: the kernel finishes
//! a submission in the context of the submitting thread. So a task passes its answer to the thread
//! ([`Queue::answer`]), and wakes it by an eventfd.
//!
//! Memory: a slot has room for the largest request, but only touched pages take memory. The kernel reuses the
//! most recent slot first. After two seconds without a large request, each slot is cut down to 64 KiB.
//!
//! Ownership: a slot is the kernel's from its registration or commit until its completion. The kernel uses it
//! only in system calls of the queue's thread, and a completion is visible before the next call: until then
//! that thread may give its memory back. Slots are freed once the kernel has given up all of them, after the
//! unmount.
//!
//! Locking: `answers` is held to add one, or to take all.
//!
//! Source: Linux `include/uapi/linux/fuse.h` (`fuse_uring_*`), `fs/fuse/dev_uring.c`.
#![allow(unsafe_code)] // entries hold addresses; the ring owns what they point to

mod slot;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::abi::uring;
use crate::reply::Reply;
use crate::request::Request;
use crate::traffic::{Traffic, Underway};
use slot::Slot;

/// More would take too many queues per mount.
const CORES_MAX: u16 = 64;
/// Slots (concurrent requests) of all queues, and of each.
const SLOTS: usize = 128;
const QUEUE_SLOTS: std::ops::RangeInclusive<usize> = 4..=32;
/// Pause after a refused call.
const BREATH: Duration = Duration::from_millis(1);
/// Memory is given back this long after the last large request.
const QUIET: Duration = Duration::from_secs(2);
/// User data of the eventfd's entry.
const WAKE: u64 = u64::MAX;

#[derive(Debug)]
pub struct Queue {
    answers: Mutex<Vec<Answered>>,
    /// Its thread waits for the kernel, or is about to.
    is_waiting: AtomicBool,
    wake: OwnedFd,
}

#[derive(Debug)]
struct Answered {
    slot: usize,
    unique: u64,
    answer: Result<Reply, Errno>,
    /// Held until the kernel has the answer.
    underway: Option<Underway>,
}

impl Queue {
    /// From any thread.
    pub fn answer(&self, slot: usize, unique: u64, answer: Result<Reply, Errno>, underway: Option<Underway>) {
        self.answers.lock().push(Answered { slot, unique, answer, underway });
        if self.is_waiting.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    pub fn wake(&self) {
        // Fails only if its 64-bit counter is full.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }
}

/// One core's ring, used by one thread.
pub struct Ring {
    core: u16,
    kernel: IoUring<Entry128, cqueue::Entry>,
    device: OwnedFd,
    slots: Vec<Slot>,
    /// By slot.
    commit_ids: Vec<u64>,
    queue: Arc<Queue>,
    woken: Box<[u8; 8]>,
    /// Last large request; `None`: no memory to give back.
    grown: Option<Instant>,
}

impl Ring {
    /// A ring for each possible core.
    ///
    /// # Errors
    /// The kernel has no io_uring, or refuses it; there are too many cores.
    pub fn all(device: &OwnedFd) -> io::Result<Vec<Ring>> {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u16>().ok());
        let cores = last.ok_or(io::ErrorKind::InvalidData)?.saturating_add(1);
        if cores > CORES_MAX {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let slots = (SLOTS / usize::from(cores)).clamp(*QUEUE_SLOTS.start(), *QUEUE_SLOTS.end());
        (0..cores).map(|core| Ring::new(device, core, slots)).collect()
    }

    fn new(device: &OwnedFd, core: u16, slots: usize) -> io::Result<Ring> {
        // With the eventfd.
        let entries = slots as u32 + 1;
        let kernel = IoUring::builder().dontfork().setup_cqsize(2 * entries).build(entries)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let queue = Queue { answers: Mutex::default(), is_waiting: AtomicBool::new(false), wake };
        Ok(Ring {
            core,
            kernel,
            device: device.try_clone()?,
            slots: (0..slots).map(|_| Slot::new()).collect::<io::Result<_>>()?,
            commit_ids: vec![0; slots],
            queue: queue.into(),
            woken: Box::default(),
            grown: None,
        })
    }

    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Passes each request to `start`, with its slot, until the unmount.
    pub fn serve(mut self, traffic: &Traffic, start: impl Fn(&Arc<Queue>, usize, Request)) {
        let mut here = CpuSet::new();
        here.set(self.core.into());
        // If the core is offline or not ours, the thread runs on another one.
        sched_setaffinity(None, &here).ok();
        (0..self.slots.len()).for_each(|slot| self.submit(uring::REGISTER, slot));
        self.await_wake();
        let (mut live, mut answered, mut done) = (self.slots.len(), Vec::new(), Vec::new());
        while live > 0 {
            // Set before the answers are taken: a later answer sees it, and wakes this thread.
            self.queue.is_waiting.store(true, Ordering::SeqCst);
            let answers = std::mem::take(&mut *self.queue.answers.lock());
            for Answered { slot, unique, answer, underway } in answers {
                self.slots[slot].put(unique, &answer);
                self.note_use(slot);
                self.submit(uring::COMMIT_AND_FETCH, slot);
                answered.extend(underway);
            }
            // A pause sets its flag, then wakes this thread: either the flag is seen here, or the wait is
            // short.
            let waits = usize::from(answered.is_empty() || !traffic.is_paused());
            match self.submit_and_wait(waits) {
                Ok(_) => answered.clear(),
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => answered.clear(),
                // Memory is short, or the completion queue is full.
                Err(_) => std::thread::sleep(BREATH),
            }
            self.queue.is_waiting.store(false, Ordering::SeqCst);
            self.give_back();
            done.extend(self.kernel.completion().map(|done| (done.user_data(), done.result())));
            for (slot, result) in done.drain(..) {
                if slot == WAKE {
                    self.await_wake();
                    continue;
                }
                let slot = slot as usize;
                if result < 0 {
                    // Unmounted.
                    live -= 1;
                    continue;
                }
                let (request, unique);
                (request, unique, self.commit_ids[slot]) = self.slots[slot].request();
                self.note_use(slot);
                match request {
                    Some(request) => start(&self.queue, slot, request),
                    None => self.queue.answer(slot, unique, Err(Errno::INVAL), None),
                }
            }
        }
    }

    /// Submits, and waits for `completions`; with memory to give back, at most [`QUIET`] (then `ETIME`).
    fn submit_and_wait(&self, completions: usize) -> io::Result<usize> {
        if self.grown.is_none() {
            return self.kernel.submit_and_wait(completions);
        }
        let limit = types::Timespec::from(QUIET);
        self.kernel.submitter().submit_with_args(completions, &types::SubmitArgs::new().timespec(&limit))
    }

    fn note_use(&mut self, slot: usize) {
        if self.slots[slot].is_large() {
            self.grown = Some(Instant::now());
        }
    }

    /// Gives slot memory back after a quiet time, until the kernel uses a slot.
    fn give_back(&mut self) {
        if self.grown.is_some_and(|since| since.elapsed() >= QUIET) {
            for slot in &mut self.slots {
                if !self.kernel.completion().is_empty() {
                    return;
                }
                slot.give_back();
            }
            self.grown = None;
        }
    }

    fn submit(&mut self, command: u32, slot: usize) {
        // `fuse_uring_cmd_req`: flags (8), commit_id (8), qid (2), padding (6).
        let mut body = [0; 80];
        body[8..16].copy_from_slice(&self.commit_ids[slot].to_ne_bytes());
        body[16..18].copy_from_slice(&self.core.to_ne_bytes());
        let command = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), command).cmd(body);
        let command = command.addr(Some(self.slots[slot].parts_address()));
        let mut entry = command.build().user_data(slot as u64);
        // SAFETY: `len` of `struct io_uring_sqe`, at 24, which the builder leaves 0: there are two parts.
        unsafe { std::ptr::from_mut(&mut entry).cast::<u8>().add(24).cast::<u32>().write_unaligned(2) };
        self.push(&entry);
    }

    fn await_wake(&mut self) {
        let read = opcode::Read::new(types::Fd(self.queue.wake.as_raw_fd()), self.woken.as_mut_ptr(), 8);
        self.push(&read.build().user_data(WAKE).into());
    }

    fn push(&mut self, entry: &Entry128) {
        // SAFETY: the ring owns what the entry points to, and lives until the kernel has given it up.
        while unsafe { self.kernel.submission().push(entry) }.is_err() {
            self.kernel.submit().ok();
        }
    }
}
