//! A thread that serves queues of many devices.
//!
//! ```text
//!   kernel --> Ring --> request: run here up to its first wait, then as a task
//!     ^                    |
//!     '---- letters <------'   an answer, or memory for a write's data
//! ```
//!
//! Locking: the mailbox is locked to add a letter or to take all.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::thread;

use bytes::Bytes;
use cenote_disk::{Errno, Failure, Limits, Permits, Share};
use cenote_runtime::Runtime;
use parking_lot::Mutex;
use rustix::process::configure_io_flusher_behavior;

use crate::Source;
use crate::abi::{Descriptor, Numbers};
use crate::request::Request;
use crate::ring::{At, Event, Ring};

/// A serving thread. Once dropped, it ends with its last queue.
pub struct Worker {
    mailbox: Arc<Mailbox>,
}

/// A queue to serve.
pub struct NewQueue {
    /// Its device's file: `/dev/ublkcN`.
    pub device: OwnedFd,
    /// Queue number.
    pub number: u16,
    /// Requests at a time.
    pub depth: u16,
    /// The disk, and limits.
    pub served: Served,
}

/// The disk behind a queue.
#[derive(Clone)]
pub struct Served {
    /// The disk's source.
    pub source: Arc<dyn Source>,
    /// Share of the memory limits.
    pub share: Share,
    /// Dropped with the last queue.
    pub gone: Sender<()>,
}

enum Letter {
    Attach(NewQueue, Sender<io::Result<()>>),
    /// Memory for a write is granted.
    Room(At, Option<Permits>),
    Answer(At, i32, Bytes, Option<Permits>),
    End,
}

struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    /// The thread waits, or is about to.
    is_waiting: AtomicBool,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    fn put(&self, letter: Letter) {
        self.letters.lock().push(letter);
        if self.is_waiting.swap(false, Ordering::SeqCst) {
            // Fails only on overflow of 64 bits.
            rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
        }
    }
}

impl Worker {
    /// Starts a thread.
    ///
    /// # Errors
    /// Thread or io_uring unavailable.
    pub fn start(runtime: &Runtime, limits: &Limits, numbers: Numbers) -> io::Result<Worker> {
        let ring = Ring::new(numbers)?;
        let wake = ring.wake().clone();
        let mailbox =
            Arc::new(Mailbox { letters: Mutex::default(), is_waiting: AtomicBool::new(false), wake });
        let (runtime, limits) = (runtime.clone(), limits.clone());
        let work =
            Work { ring, mailbox: mailbox.clone(), queues: Vec::new(), runtime, limits, is_over: false };
        thread::Builder::new().name("cenote-ublk".into()).spawn(move || work.run())?;
        Ok(Worker { mailbox })
    }

    /// Serves a queue. Blocks until the thread has taken it.
    pub fn attach(&self, queue: NewQueue) -> io::Result<()> {
        let (reply, answer): (_, Receiver<io::Result<()>>) = channel();
        self.mailbox.put(Letter::Attach(queue, reply));
        answer.recv().map_err(|_| io::ErrorKind::BrokenPipe)?
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.mailbox.put(Letter::End);
    }
}

struct Work {
    ring: Ring,
    mailbox: Arc<Mailbox>,
    /// By index in the ring.
    queues: Vec<Option<Queue>>,
    runtime: Runtime,
    limits: Limits,
    is_over: bool,
}

struct Queue {
    served: Served,
    /// Permits of writes awaiting their data, by tag.
    held: Vec<Option<Permits>>,
}

impl Work {
    fn run(mut self) {
        // When memory is short, the kernel may wait for this thread to write, so this thread must not wait
        // for it.
        configure_io_flusher_behavior(true).ok();
        let (mut answered, mut events) = (Vec::new(), Vec::new());
        while !self.is_over || self.queues.iter().any(Option::is_some) {
            // Before the check: a later letter sees the flag and wakes this thread.
            self.mailbox.is_waiting.store(true, Ordering::SeqCst);
            let letters = std::mem::take(&mut *self.mailbox.letters.lock());
            for letter in letters {
                match letter {
                    Letter::Attach(queue, reply) => drop(reply.send(self.attach(queue))),
                    Letter::Room(at, permits) => {
                        if let Some(queue) = self.queue(at) {
                            queue.held[usize::from(at.tag)] = permits;
                            self.ring.get_data(at);
                        }
                    }
                    Letter::Answer(at, result, data, permits) => {
                        self.ring.commit(at, result, data);
                        answered.push(permits);
                    }
                    Letter::End => self.is_over = true,
                }
            }
            if self.is_over && self.queues.iter().all(Option::is_none) {
                return;
            }
            self.ring.wait(&mut events);
            self.mailbox.is_waiting.store(false, Ordering::SeqCst);
            answered.clear();
            for event in events.drain(..) {
                self.heed(event);
            }
        }
    }

    fn attach(&mut self, new: NewQueue) -> io::Result<()> {
        let place = self.ring.attach(new.device, new.number, new.depth)? as usize;
        self.queues.resize_with(self.queues.len().max(place + 1), || None);
        let held = (0..new.depth).map(|_| None).collect();
        self.queues[place] = Some(Queue { served: new.served, held });
        Ok(())
    }

    fn queue(&mut self, at: At) -> Option<&mut Queue> {
        self.queues.get_mut(at.queue as usize)?.as_mut()
    }

    fn heed(&mut self, event: Event) {
        match event {
            Event::Woken => {}
            Event::Gone(queue) => self.queues[queue as usize] = None,
            Event::Arrived(at, descriptor, true) => self.make_room(at, descriptor),
            Event::Arrived(at, descriptor, false) => self.carry_out(at, &descriptor, None),
            Event::Filled(at, descriptor, data) => self.carry_out(at, &descriptor, Some(data)),
        }
    }

    /// Acquires memory for a write.
    fn make_room(&mut self, at: At, descriptor: Descriptor) {
        let Some(queue) = self.queues.get(at.queue as usize).and_then(Option::as_ref) else { return };
        let bytes = Request::of(&descriptor).data_bytes();
        let (limits, share, mailbox) =
            (self.limits.clone(), queue.served.share.clone(), self.mailbox.clone());
        let work = async move {
            let permits = limits.take(&share, bytes).await;
            mailbox.put(Letter::Room(at, permits));
        };
        self.begin(Box::pin(work));
    }

    fn carry_out(&mut self, at: At, descriptor: &Descriptor, data: Option<Bytes>) {
        let request = Request::of(descriptor);
        let Some(queue) = self.queue(at) else { return };
        let held = queue.held[usize::from(at.tag)].take();
        let Served { source, share, .. } = queue.served.clone();
        let (limits, duty) =
            (self.limits.clone(), Duty { mailbox: self.mailbox.clone(), at, is_done: false });
        let work = async move {
            let permits = match held {
                None => limits.take(&share, request.data_bytes()).await,
                held => held,
            };
            let done = match source.disk().await {
                Ok(disk) => request.carry_out(&*disk, data.unwrap_or_default()).await,
                Err(failure) => Err(failure),
            };
            duty.done(&request, done, permits);
        };
        self.begin(Box::pin(work));
    }

    /// Runs work up to its first wait here; the rest becomes a task.
    fn begin(&self, mut work: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // A wake-up before the task exists is not lost: a new task is polled at once.
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context)));
        if let Ok(Poll::Pending) = polled {
            self.runtime.spawn(work).detach();
        }
    }
}

/// Obligation to answer. If dropped unfulfilled (panic), it answers `EIO`, so that no user hangs.
struct Duty {
    mailbox: Arc<Mailbox>,
    at: At,
    is_done: bool,
}

impl Duty {
    fn done(mut self, request: &Request, done: Result<Bytes, Failure>, permits: Option<Permits>) {
        self.is_done = true;
        let result = request.result(&done);
        self.mailbox.put(Letter::Answer(self.at, result, done.unwrap_or_default(), permits));
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if !self.is_done {
            self.mailbox.put(Letter::Answer(self.at, -(Errno::Io as i32), Bytes::new(), None));
        }
    }
}
