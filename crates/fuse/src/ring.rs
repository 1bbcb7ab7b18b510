//! FUSE over io_uring: requests and answers in memory shared with the kernel.
//!
//! ```text
//!   process on core n --> kernel --> a slot of queue n --> thread n, on the same core --> its session
//!                           ^                                     |
//!                           '---- COMMIT_AND_FETCH: the answer is in the slot, the next request may be
//! ```
//!
//! Idea: a request wakes a thread on its own core, and one system call both answers it and waits for the
//! next. `/dev/fuse` takes two calls, and mostly two cores. Large payloads cost one more copy here.
//!
//! The kernel wants a queue for each core in each session. All queues of a core share one ring and one thread
//! ([`Member`]). Only that thread uses the ring: the kernel finishes a submission in its context. So a task
//! passes its answer to the thread ([`Seat::answer`]), and wakes it by an eventfd. Short operations remain
//! tasks of that thread ([`Core::go_on`]).
//!
//! Memory: only touched pages of a slot count. After two seconds without a large request, each slot is cut
//! down to 64 KiB. The more sessions, the fewer slots a new one has.
//!
//! Ownership: a slot is the kernel's from its registration or commit until its completion. The kernel uses it
//! only in system calls of the queue's thread, and a completion is visible before the next call: until then
//! that thread may give its memory back. Slots are freed once the kernel has given up all, after the unmount.
//!
//! Locking: `inbox` is held to add to it, or to take all.
//!
//! Source: Linux `include/uapi/linux/fuse.h` (`fuse_uring_*`), `fs/fuse/dev_uring.c`.
#![allow(unsafe_code)] // entries hold addresses; the ring owns what they point to

mod slot;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{io, thread};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::abi::uring;
use crate::channel::Channel;
use crate::reply::Reply;
use crate::request::Request;
use crate::traffic::Underway;
use slot::Slot;
use task::Task;

/// More would take too many queues per mount.
const CORES_MAX: u16 = 64;
/// Slots (concurrent requests) of all queues of a session, about as many of all sessions, and of each queue.
const SLOTS: usize = 128;
const SLOTS_OF_ALL: usize = 4096;
const QUEUE_SLOTS: std::ops::RangeInclusive<usize> = 4..=32;
/// Pause after a refused call.
const BREATH: Duration = Duration::from_millis(1);
/// Memory is given back this long after the last large request.
const QUIET: Duration = Duration::from_secs(2);
/// User data of the eventfd's entry. Those of slots are the member, then the slot (32 bits each).
const WAKE: u64 = u64::MAX;
/// Entries submitted at once, and completions before the kernel keeps them aside.
const ENTRIES: u32 = 256;
const COMPLETIONS: u32 = 2048;

/// Sessions with slots.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// A core's queue: requests of all sessions that came from it.
#[derive(Debug)]
pub struct Core {
    number: u16,
    inbox: Mutex<Inbox>,
    /// Its thread waits for the kernel, or is about to.
    is_waiting: AtomicBool,
    wake: OwnedFd,
}

/// For the core's thread.
#[derive(Debug, Default)]
struct Inbox {
    joining: Vec<Member>,
    woken: Vec<Arc<Task>>,
    answers: Vec<Answered>,
}

impl Inbox {
    /// New members, answers, and whether operations were woken.
    fn take(&mut self) -> (Vec<Member>, Vec<Answered>, bool) {
        (std::mem::take(&mut self.joining), std::mem::take(&mut self.answers), !self.woken.is_empty())
    }
}

#[derive(Debug)]
struct Answered {
    member: u32,
    slot: usize,
    unique: u64,
    answer: Result<Reply, Errno>,
    /// Held until the kernel has the answer.
    underway: Option<Underway>,
}

/// Passes on a request.
pub type Start = Box<dyn Fn(Seat, Request) + Send>;

/// A session at one core.
pub struct Member {
    channel: Channel,
    slots: Vec<Slot>,
    /// By slot.
    commit_ids: Vec<u64>,
    /// Slots that the kernel has not given up.
    live: usize,
    /// Last large request; `None`: no memory to give back.
    grown: Option<Instant>,
    start: Start,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} slots", self.live, self.slots.len())
    }
}

/// The place of a request, where its answer goes.
#[derive(Debug)]
pub struct Seat {
    core: Arc<Core>,
    member: u32,
    slot: usize,
}

impl Seat {
    /// From any thread.
    pub fn answer(&self, unique: u64, answer: Result<Reply, Errno>, underway: Option<Underway>) {
        let answered = Answered { member: self.member, slot: self.slot, unique, answer, underway };
        self.core.inbox.lock().answers.push(answered);
        self.core.hurry();
    }

    pub fn core(&self) -> Arc<Core> {
        self.core.clone()
    }
}

impl Core {
    /// Its thread looks at its inbox before it waits for the kernel again.
    fn hurry(&self) {
        if self.is_waiting.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Polls an operation at this core until its end. For the core's thread only.
    pub fn go_on(self: Arc<Core>, operation: impl Future<Output = ()> + Send + 'static) {
        Task::new(self, Box::pin(operation)).poll();
    }

    pub fn wake(&self) {
        // Fails only if its 64-bit counter is full.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }

    /// Serves a session's requests from this core until the unmount.
    fn join(&self, member: Member) {
        self.inbox.lock().joining.push(member);
        self.hurry();
    }
}

/// A session's slots, for each core.
pub struct Slots(Vec<Vec<Slot>>);

impl Slots {
    /// # Errors
    /// Memory is short.
    pub fn new(cores: &[Arc<Core>]) -> io::Result<Slots> {
        let sessions = SESSIONS.load(Ordering::Relaxed) + 1;
        let each = (SLOTS / cores.len()).min(SLOTS_OF_ALL / (sessions * cores.len()));
        let each = each.clamp(*QUEUE_SLOTS.start(), *QUEUE_SLOTS.end());
        let of_one = || (0..each).map(|_| Slot::new()).collect::<io::Result<Vec<Slot>>>();
        Ok(Slots(cores.iter().map(|_| of_one()).collect::<io::Result<_>>()?))
    }
}

/// Serves a session until its unmount; `start` makes the function for each core.
pub fn serve(cores: &[Arc<Core>], slots: Slots, channel: &Channel, start: impl Fn() -> Start) {
    SESSIONS.fetch_add(1, Ordering::Relaxed);
    for (core, slots) in cores.iter().zip(slots.0) {
        let (commit_ids, live) = (vec![0; slots.len()], slots.len());
        let (channel, start) = (channel.clone(), start());
        core.join(Member { channel, slots, commit_ids, live, grown: None, start });
    }
}

/// The cores of this machine, each with a thread; `None`: the kernel has no io_uring or refuses it, or there
/// are too many.
pub fn cores() -> Option<Arc<[Arc<Core>]>> {
    static CORES: OnceLock<Option<Arc<[Arc<Core>]>>> = OnceLock::new();
    CORES.get_or_init(|| start_cores().ok()).clone()
}

fn start_cores() -> io::Result<Arc<[Arc<Core>]>> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u16>().ok());
    let count = last.ok_or(io::ErrorKind::InvalidData)?.saturating_add(1);
    if count > CORES_MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let rings = (0..count).map(Ring::new).collect::<io::Result<Vec<Ring>>>()?;
    let cores = rings.iter().map(|ring| ring.core.clone()).collect();
    for ring in rings {
        thread::Builder::new().name("cenote-fuse".into()).spawn(move || ring.serve())?;
    }
    Ok(cores)
}

/// A core's ring, used by its thread alone.
struct Ring {
    core: Arc<Core>,
    kernel: IoUring<Entry128, cqueue::Entry>,
    members: BTreeMap<u32, Member>,
    next_member: u32,
    woken: Box<[u8; 8]>,
    /// Members with memory to give back.
    grown: BTreeSet<u32>,
}

impl Ring {
    fn new(number: u16) -> io::Result<Ring> {
        let kernel = IoUring::builder().dontfork().setup_cqsize(COMPLETIONS).build(ENTRIES)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let core = Core { number, inbox: Mutex::default(), is_waiting: AtomicBool::new(false), wake };
        let (members, grown) = Default::default();
        Ok(Ring { core: core.into(), kernel, members, next_member: 0, woken: Box::default(), grown })
    }

    fn serve(mut self) {
        let mut here = CpuSet::new();
        here.set(self.core.number.into());
        // If the core is offline or not ours, the thread runs on another one.
        sched_setaffinity(None, &here).ok();
        self.await_wake();
        let (mut answered, mut done) = (Vec::<Underway>::new(), Vec::new());
        loop {
            let woken = std::mem::take(&mut self.core.inbox.lock().woken);
            woken.into_iter().for_each(Task::poll);
            // Set before the inbox is emptied: a later answer sees it, and wakes this thread.
            self.core.is_waiting.store(true, Ordering::SeqCst);
            let (joining, answers, has_woken) = self.core.inbox.lock().take();
            joining.into_iter().for_each(|member| self.take_in(member));
            answers.into_iter().for_each(|answer| answered.extend(self.answer(answer)));
            // A pause sets its flag, then wakes this thread: either the flag is seen here, or the wait is
            // short.
            let waits = usize::from(!has_woken && !answered.iter().any(Underway::is_paused));
            match self.submit_and_wait(waits) {
                Ok(_) => answered.clear(),
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => answered.clear(),
                // Memory is short, or the completion queue is full.
                Err(_) => thread::sleep(BREATH),
            }
            self.core.is_waiting.store(false, Ordering::SeqCst);
            self.give_back();
            done.extend(self.kernel.completion().map(|done| (done.user_data(), done.result())));
            for (data, result) in done.drain(..) {
                match data {
                    WAKE => self.await_wake(),
                    _ => self.completed((data >> 32) as u32, data as u32 as usize, result),
                }
            }
        }
    }

    fn take_in(&mut self, member: Member) {
        let number = self.next_member;
        self.next_member = self.next_member.wrapping_add(1);
        let slots = member.slots.len();
        self.members.insert(number, member);
        (0..slots).for_each(|slot| self.submit(uring::REGISTER, number, slot));
    }

    /// Puts an answer into its slot. Returns the operation's guard, to be held until submitted.
    fn answer(&mut self, answered: Answered) -> Option<Underway> {
        let Answered { member: number, slot, unique, answer, underway } = answered;
        let member = self.members.get_mut(&number)?;
        member.slots[slot].put(unique, &answer);
        self.note_use(number, slot);
        self.submit(uring::COMMIT_AND_FETCH, number, slot);
        underway
    }

    /// The kernel is done with a slot: there is a request in it, or the session has ended.
    fn completed(&mut self, number: u32, slot: usize, result: i32) {
        let Some(member) = self.members.get_mut(&number) else { return };
        if result < 0 {
            // Unmounted.
            member.live -= 1;
            if member.live == 0 {
                self.members.remove(&number);
                self.grown.remove(&number);
                if self.core.number == 0 {
                    SESSIONS.fetch_sub(1, Ordering::Relaxed);
                }
            }
            return;
        }
        let (request, unique);
        (request, unique, member.commit_ids[slot]) = member.slots[slot].request();
        self.note_use(number, slot);
        let seat = Seat { core: self.core.clone(), member: number, slot };
        match (request, self.members.get(&number)) {
            (Some(request), Some(member)) => (member.start)(seat, request),
            _ => seat.answer(unique, Err(Errno::INVAL), None),
        }
    }

    /// Submits, and waits for `completions`; with memory to give back, at most [`QUIET`] (then `ETIME`).
    fn submit_and_wait(&self, completions: usize) -> io::Result<usize> {
        if self.grown.is_empty() {
            return self.kernel.submit_and_wait(completions);
        }
        let limit = types::Timespec::from(QUIET);
        self.kernel.submitter().submit_with_args(completions, &types::SubmitArgs::new().timespec(&limit))
    }

    fn note_use(&mut self, number: u32, slot: usize) {
        if let Some(member) = self.members.get_mut(&number)
            && member.slots[slot].is_large()
        {
            member.grown = Some(Instant::now());
            self.grown.insert(number);
        }
    }

    /// Gives slot memory back after a quiet time, until the kernel uses a slot.
    fn give_back(&mut self) {
        for number in self.grown.clone() {
            let Some(member) = self.members.get_mut(&number) else { continue };
            if member.grown.is_none_or(|since| since.elapsed() < QUIET) {
                continue;
            }
            for slot in &mut member.slots {
                if !self.kernel.completion().is_empty() {
                    return;
                }
                slot.give_back();
            }
            member.grown = None;
            self.grown.remove(&number);
        }
    }

    fn submit(&mut self, command: u32, number: u32, slot: usize) {
        let Some(member) = self.members.get(&number) else { return };
        // `fuse_uring_cmd_req`: flags (8), commit_id (8), qid (2), padding (6).
        let mut body = [0; 80];
        body[8..16].copy_from_slice(&member.commit_ids[slot].to_ne_bytes());
        body[16..18].copy_from_slice(&self.core.number.to_ne_bytes());
        let device = types::Fd(member.channel.device().as_raw_fd());
        let command = opcode::UringCmd80::new(device, command).cmd(body);
        let command = command.addr(Some(member.slots[slot].parts_address()));
        let mut entry = command.build().user_data(u64::from(number) << 32 | slot as u64);
        // SAFETY: `len` of `struct io_uring_sqe`, at 24, which the builder leaves 0: there are two parts.
        unsafe { std::ptr::from_mut(&mut entry).cast::<u8>().add(24).cast::<u32>().write_unaligned(2) };
        self.push(&entry);
    }

    fn await_wake(&mut self) {
        let read = opcode::Read::new(types::Fd(self.core.wake.as_raw_fd()), self.woken.as_mut_ptr(), 8);
        self.push(&read.build().user_data(WAKE).into());
    }

    fn push(&mut self, entry: &Entry128) {
        // SAFETY: the ring owns what the entry points to, and lives until the kernel has given it up.
        while unsafe { self.kernel.submission().push(entry) }.is_err() {
            self.kernel.submit().ok();
        }
    }
}
