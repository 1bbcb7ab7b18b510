//! io_uring: one ring per runtime, without its own thread.
//!
//! ```text
//!   any thread                             a task of the runtime (the reaper)
//!   ------------------------------------   ----------------------------------------------------
//!   put one entry into the ring, submit    sleeps until the ring's descriptor is readable
//!   await the reply                   <--  short transfer? submit the rest; else send the reply
//! ```
//!
//! The requester submits the transfer itself, and the kernel wakes the worker that sleeps in the event loop:
//! a read takes one thread switch. A thread for the ring would make it three, each of which costs tens of
//! microseconds if an idle core has to be woken first (in a virtual machine).
//!
//! The kernel finishes a thread's transfers in its context. When the thread ends, it cancels those not yet
//! started, and copies from the page cache fail (`EFAULT`). Threads of commands do end, so such transfers are
//! submitted again ([`is_to_repeat`]).
//!
//! Ownership: from submission to completion the kernel has the request (buffer, data, file), in a box whose
//! address is the entry's user data. A dropped task loses only the reply; the memory that the kernel may
//! still write to stays valid. Requests in flight when the runtime ends are never freed.
//!
//! Locking: `submission` is held to put one entry into the ring and hand it to the kernel; `completion` to
//! take completions out of the ring. They are processed after both are released.
#![allow(unsafe_code)] // entries hold addresses; the boxed request keeps the memory valid

mod transfer;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::channel::oneshot;
use io_uring::{IoUring, opcode, squeue};
use parking_lot::Mutex;

use super::interrupted;
use super::open::{OpenFile, Waits};
use transfer::{Write, WritePieces};

pub(super) use transfer::{Transfer, Vectors};

/// More than one is queued only after the kernel was short of memory.
const SUBMISSION_ENTRIES: u32 = 256;
/// The kernel keeps the overflow.
const COMPLETION_ENTRIES: u32 = 4096;
/// Kernel threads that may wait for files at once, per submitting thread. By default there are four per core:
/// one hung disk of a network file system would take them all.
const KERNEL_THREADS: u32 = 512;
const BATCH: usize = 64;

struct Request {
    transfer: Transfer,
    file: Arc<OpenFile>,
    offset: u64,
    /// Consecutive retries requested by the kernel.
    put_off: u32,
    reply: oneshot::Sender<io::Result<Transfer>>,
}

pub(super) struct Ring {
    kernel: IoUring,
    submission: Mutex<()>,
    completion: Mutex<()>,
}

impl Ring {
    /// `None` if the kernel refuses a ring (old, seccomp, sysctl).
    pub(super) fn of(runtime: &Runtime) -> Option<Arc<Ring>> {
        runtime.shared(|| Ring::start(runtime).ok())
    }

    fn start(runtime: &Runtime) -> io::Result<Arc<Ring>> {
        let kernel =
            IoUring::builder().dontfork().setup_cqsize(COMPLETION_ENTRIES).build(SUBMISSION_ENTRIES)?;
        let mut probe = io_uring::Probe::new();
        kernel.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
        ];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Kernels before 5.15 know no limit.
        drop(kernel.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS, 0]));
        // SAFETY: the ring is open.
        let file = unsafe { BorrowedFd::borrow_raw(kernel.as_raw_fd()) };
        let watch = runtime.watch(file.try_clone_to_owned()?)?;
        let ring = Arc::new(Ring { kernel, submission: Mutex::default(), completion: Mutex::default() });
        let of_task = ring.clone();
        // It must not hold the runtime, whose end ends it.
        let reaper = async move {
            while watch.readable().await.is_ok() {
                of_task.reap();
            }
        };
        runtime.spawn(reaper).detach();
        Ok(ring)
    }

    /// A read or write is complete unless the file ended before it.
    pub(super) async fn transfer(
        &self,
        file: Arc<OpenFile>,
        offset: u64,
        transfer: Transfer,
    ) -> io::Result<Transfer> {
        let outcome = self.start_transfer(file, offset, transfer);
        outcome.await.unwrap_or_else(|_| Err(io::Error::other("io_uring has lost a transfer")))
    }

    /// Writes all of `data`; with `through`, returns once durable.
    pub(super) async fn write(
        &self,
        file: Arc<OpenFile>,
        offset: u64,
        data: Bytes,
        through: bool,
    ) -> io::Result<()> {
        let len = data.len();
        match self.transfer(file, offset, Transfer::Write(Write { data, done: 0, through })).await? {
            Transfer::Write(write) if write.done == len => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    pub(super) async fn write_pieces(
        &self,
        file: Arc<OpenFile>,
        offset: u64,
        pieces: Vec<Bytes>,
    ) -> io::Result<()> {
        let write = WritePieces { pieces, done: 0 };
        match self.transfer(file, offset, Transfer::WritePieces(write, Vectors::default())).await? {
            Transfer::WritePieces(write, _) if write.done == write.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Continues without a waiter.
    pub(super) fn start_transfer(
        &self,
        file: Arc<OpenFile>,
        offset: u64,
        transfer: Transfer,
    ) -> oneshot::Receiver<io::Result<Transfer>> {
        let (reply, outcome) = oneshot::channel();
        self.submit(Box::new(Request { transfer, file, offset, put_off: 0, reply }));
        outcome
    }

    fn submit(&self, mut request: Box<Request>) {
        let entry = {
            let Request { transfer, file, offset, .. } = &mut *request;
            let entry = transfer.entry(&**file, *offset);
            // Otherwise the kernel would block this thread, and all later submitters behind it.
            if file.waits == Waits::Always { entry.flags(squeue::Flags::ASYNC) } else { entry }
        };
        let entry = entry.user_data(Box::into_raw(request) as u64);
        let mut is_in = false;
        loop {
            {
                let _alone = self.submission.lock();
                // SAFETY: nobody else uses the submission queue now. The memory, the descriptor and the data
                // of the entry live in the boxed request, which is freed only when completed.
                is_in = is_in || unsafe { self.kernel.submission_shared().push(&entry) }.is_ok();
                if self.kernel.submit().is_ok() && is_in {
                    return;
                }
            }
            // The kernel is short of memory, or of room for completions.
            self.reap();
            std::thread::yield_now();
        }
    }

    fn reap(&self) {
        loop {
            let mut batch = [(0, 0); BATCH];
            let taken = {
                let _alone = self.completion.lock();
                // SAFETY: nobody else uses the completion queue now.
                let mut queue = unsafe { self.kernel.completion_shared() };
                let mut taken = 0;
                for (slot, completion) in batch.iter_mut().zip(&mut queue) {
                    *slot = (completion.user_data(), completion.result());
                    taken += 1;
                }
                taken
            };
            for (address, result) in &batch[..taken] {
                // SAFETY: each entry has the address of its own boxed request, and completes once.
                let request = unsafe { Box::from_raw(*address as *mut Request) };
                self.complete(request, *result);
            }
            if taken < BATCH && !self.fetch_overflow() {
                return;
            }
        }
    }

    /// Makes the kernel move overflowed completions into the ring, if any.
    fn fetch_overflow(&self) -> bool {
        let _alone = self.submission.lock();
        // SAFETY: nobody else uses the submission queue now.
        let is_over = unsafe { self.kernel.submission_shared() }.cq_overflow();
        is_over && self.kernel.submit().is_ok()
    }

    fn complete(&self, mut request: Box<Request>, result: i32) {
        let Ok(count) = usize::try_from(result) else {
            return match -result {
                errno if is_to_repeat(errno) && request.put_off < interrupted::CALLS => {
                    request.put_off += 1;
                    self.submit(request);
                }
                errno => drop(request.reply.send(Err(io::Error::from_raw_os_error(errno)))),
            };
        };
        request.put_off = 0;
        // SAFETY: the kernel reports this count for the entry that it has completed.
        let is_complete = unsafe { request.transfer.advance(count) };
        if !is_complete && count > 0 {
            return self.submit(request);
        }
        drop(request.reply.send(Ok(request.transfer)));
    }
}

/// Whether to resubmit: also if the submitting thread has ended, since no transfer is cancelled here.
fn is_to_repeat(errno: i32) -> bool {
    matches!(errno, libc::EINTR | libc::EAGAIN | libc::ECANCELED | libc::EFAULT)
}
