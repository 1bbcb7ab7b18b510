//! FUSE over io_uring: requests and answers in memory that the kernel and we share.
//!
//! ```text
//!   process on core n --> kernel --> a slot of queue n --> thread n, on the same core --> session
//!                           ^                                     |
//!                           '---- COMMIT_AND_FETCH: the answer is in the slot, the next request may be
//! ```
//!
//! Idea: a request wakes a thread on the core that it comes from, and one system call both answers it and
//! waits for the next. Through `/dev/fuse` it takes two calls, and mostly two cores. What is large is copied
//! once more than there.
//!
//! The kernel wants a queue for each core that the machine could have. A queue's ring is used by its thread
//! alone: the kernel finishes what a thread has submitted in that thread's context. So answers of operations
//! that went on as tasks are handed to the thread ([`Queue::answer`]), which an eventfd wakes.
//!
//! Memory: a slot has room for the largest request, and takes what has been used of it. The kernel takes the
//! slot first that was used last. When for two seconds no request was large, all but 64 KiB of each slot is
//! given back.
//!
//! Ownership: a slot is the kernel's from the time it is registered or committed until its completion
//! arrives. It uses the slot only in system calls of the queue's thread, and a completion says so before the
//! next call: while there is none, that thread may give its memory back. Slots are freed when the kernel has
//! given all of them up: after the file system was unmounted.
//!
//! Locking: `answers` is held to put one in, or to take all out.
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

/// Cores beyond which there are too many queues for each mount to have.
const CORES_MAX: u16 = 64;
/// Slots of all queues together, and of each: requests under way. More wait in the kernel.
const SLOTS: usize = 128;
const QUEUE_SLOTS: std::ops::RangeInclusive<usize> = 4..=32;
/// Between two calls that the kernel refuses.
const BREATH: Duration = Duration::from_millis(1);
/// So long after the last large request memory of slots is given back.
const QUIET: Duration = Duration::from_secs(2);
/// User data of the entry that waits for the eventfd.
const WAKE: u64 = u64::MAX;

/// Where answers to requests of one queue go.
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
    /// Until the kernel has it.
    underway: Option<Underway>,
}

impl Queue {
    /// Answers the request in a slot. Any thread may.
    pub fn answer(&self, slot: usize, unique: u64, answer: Result<Reply, Errno>, underway: Option<Underway>) {
        self.answers.lock().push(Answered { slot, unique, answer, underway });
        if self.is_waiting.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Has its thread look around.
    pub fn wake(&self) {
        // It fails only if the thread has been told so often that a counter of 64 bits is full.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }
}

/// One core's ring. It belongs to one thread.
pub struct Ring {
    core: u16,
    kernel: IoUring<Entry128, cqueue::Entry>,
    device: OwnedFd,
    slots: Vec<Slot>,
    /// Under which numbers answers are committed.
    commit_ids: Vec<u64>,
    queue: Arc<Queue>,
    /// What is read of the eventfd.
    woken: Box<[u8; 8]>,
    /// When a slot was last used for much; none: none has memory to give back.
    grown: Option<Instant>,
}

impl Ring {
    /// A ring for each core that the machine could have.
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
        // One more, for the eventfd.
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

    /// Where its answers go.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Hands each request to `start`, with its slot, until the file system is unmounted.
    pub fn serve(mut self, traffic: &Traffic, start: impl Fn(&Arc<Queue>, usize, Request)) {
        let mut here = CpuSet::new();
        here.set(self.core.into());
        // On a core that is not there, or not ours, the thread serves its queue from elsewhere.
        sched_setaffinity(None, &here).ok();
        (0..self.slots.len()).for_each(|slot| self.submit(uring::REGISTER, slot));
        self.await_wake();
        let (mut live, mut answered, mut done) = (self.slots.len(), Vec::new(), Vec::new());
        while live > 0 {
            // Before the look: an answer that comes later sees it, and wakes us.
            self.queue.is_waiting.store(true, Ordering::SeqCst);
            let answers = std::mem::take(&mut *self.queue.answers.lock());
            for Answered { slot, unique, answer, underway } in answers {
                self.slots[slot].put(unique, &answer);
                self.note_use(slot);
                self.submit(uring::COMMIT_AND_FETCH, slot);
                answered.extend(underway);
            }
            // Who pauses the session wakes us afterwards: either we see that here, or we don't wait for long.
            let waits = usize::from(answered.is_empty() || !traffic.is_paused());
            match self.submit_and_wait(waits) {
                Ok(_) => answered.clear(),
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => answered.clear(),
                // Memory is short, or completions are to be taken first.
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

    /// Submits what is pushed, and waits for so many completions; not for longer than [`QUIET`] while there
    /// is memory to give back (then the error is `ETIME`).
    fn submit_and_wait(&self, completions: usize) -> io::Result<usize> {
        if self.grown.is_none() {
            return self.kernel.submit_and_wait(completions);
        }
        let limit = types::Timespec::from(QUIET);
        self.kernel.submitter().submit_with_args(completions, &types::SubmitArgs::new().timespec(&limit))
    }

    /// A slot was used.
    fn note_use(&mut self, slot: usize) {
        if self.slots[slot].is_large() {
            self.grown = Some(Instant::now());
        }
    }

    /// Gives back memory of all slots, if none was used for much lately. As soon as the kernel has used one,
    /// it is left for later.
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

    /// Gives a slot to the kernel.
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
