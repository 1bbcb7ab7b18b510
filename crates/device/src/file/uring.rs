//! io_uring: one ring per process, owned by one thread.
//!
//! ```text
//!   any task                         reactor thread (owns the ring)
//!   --------                         ---------------------------------------------
//!   push a request to the inbox -->  take the inbox: one entry each, one system call for all
//!   (eventfd if it was empty)        writes sorted by offset: the kernel joins neighbours
//!                                    wait for completions or the eventfd
//!   await the reply             <--  short transfer? submit the rest; else send the reply
//! ```
//!
//! A thread of its own submits because the kernel runs completions in the submitter's context, and cancels
//! a thread's transfers when that thread ends. Worker threads are busy and may end.
//!
//! Ownership: from submission to completion the reactor owns the request (buffer, data, file). A task that
//! goes away loses the reply; the memory that the kernel may still write to stays valid.
//!
//! Locking: the inbox's mutex is held only to push to it or to take it, never during a system call. Only
//! the reactor thread touches the ring and the requests in flight. The task that finds the inbox empty
//! writes to the eventfd, so that the reactor wakes once per batch. When the reactor gives up it takes the
//! inbox away (`None`), so later callers fail at once.
#![allow(unsafe_code)] // entries hold addresses; the reactor keeps the memory alive until the kernel is done

use super::buffer::Buffer;
use super::interrupted;
use bytes::Bytes;
use futures::channel::oneshot;
use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, LazyLock};

/// Entries of the submission queue: the most requests per system call.
const SUBMISSION_ENTRIES: u32 = 256;
/// Longer transfers are split: the kernel's length has 32 bits and its limit is just under 2 GiB.
const PIECE_BYTES: usize = 1 << 30;
/// The completion that means that the inbox has requests.
const WAKE: u64 = u64::MAX;

/// The data of a request, and its direction.
pub(super) enum Transfer {
    Read(Buffer),
    Write(Write),
    /// Into several buffers, one after the other.
    ReadPieces(Vec<Buffer>, Vectors),
    /// From several, which follow each other.
    WritePieces(WritePieces, Vectors),
    /// `fdatasync`.
    Sync,
    /// `sync_file_range`: starts writing dirty pages to the disk.
    StartWriteback,
}

/// A write.
pub(super) struct Write {
    data: Bytes,
    /// Bytes written so far.
    done: usize,
    /// Complete only once it is durable (`RWF_DSYNC`).
    through: bool,
}

/// Pieces to be written one after the other.
pub(super) struct WritePieces {
    pieces: Vec<Bytes>,
    /// Bytes written so far.
    done: usize,
}

/// The memory of a transfer's pieces as the kernel takes it.
#[derive(Default)]
pub(super) struct Vectors(Vec<libc::iovec>);

// SAFETY: the addresses are those of memory that the same request owns, and only the reactor fills them in.
unsafe impl Send for Vectors {}

struct Request {
    transfer: Transfer,
    file: Arc<File>,
    offset: u64,
    /// Consecutive times that the kernel only asked to try again.
    put_off: u32,
    reply: oneshot::Sender<io::Result<Transfer>>,
}

/// The way to the reactor.
pub(super) struct Ring {
    /// `None` once the reactor has ended.
    inbox: Mutex<Option<Vec<Request>>>,
    wake: OwnedFd,
}

impl Ring {
    /// The ring of this process, or `None` if the kernel has none or refuses it (old, seccomp, sysctl).
    pub(super) fn shared() -> Option<&'static Arc<Ring>> {
        static RING: LazyLock<Option<Arc<Ring>>> = LazyLock::new(|| Ring::start().ok());
        RING.as_ref()
    }

    fn start() -> io::Result<Arc<Ring>> {
        let kernel = IoUring::builder().dontfork().build(SUBMISSION_ENTRIES)?;
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
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let ring = Arc::new(Ring { inbox: Mutex::new(Some(Vec::new())), wake });
        let of_thread = ring.clone();
        let work = move || {
            Reactor { kernel, ring: of_thread, in_flight: Slab::new(), woken: Box::new([0; 8]) }.run();
        };
        std::thread::Builder::new().name("cenote-uring".into()).spawn(work)?;
        Ok(ring)
    }

    /// Makes a transfer. A read or write is complete unless the file ended before it.
    pub(super) async fn transfer(
        &self,
        file: Arc<File>,
        offset: u64,
        transfer: Transfer,
    ) -> io::Result<Transfer> {
        let outcome = self.start_transfer(file, offset, transfer)?;
        outcome.await.unwrap_or_else(|_| Err(io::Error::other("the io_uring thread has ended")))
    }

    /// Writes all of `data`; with `through`, returns once it is durable.
    pub(super) async fn write(
        &self,
        file: Arc<File>,
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

    /// Writes pieces that follow each other.
    pub(super) async fn write_pieces(
        &self,
        file: Arc<File>,
        offset: u64,
        pieces: Vec<Bytes>,
    ) -> io::Result<()> {
        let write = WritePieces { pieces, done: 0 };
        match self.transfer(file, offset, Transfer::WritePieces(write, Vectors::default())).await? {
            Transfer::WritePieces(write, _) if write.done == write.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Starts a transfer. It continues even if nobody waits for its outcome.
    pub(super) fn start_transfer(
        &self,
        file: Arc<File>,
        offset: u64,
        transfer: Transfer,
    ) -> io::Result<oneshot::Receiver<io::Result<Transfer>>> {
        let (reply, outcome) = oneshot::channel();
        let was_empty = {
            let mut inbox = self.inbox.lock();
            // Without an inbox, the reply's channel closes when the request is dropped below.
            inbox.as_mut().is_some_and(|inbox| {
                inbox.push(Request { transfer, file, offset, put_off: 0, reply });
                inbox.len() == 1
            })
        };
        if was_empty {
            rustix::io::retry_on_intr(|| rustix::io::write(&self.wake, &1u64.to_ne_bytes()))?;
        }
        Ok(outcome)
    }
}

impl WritePieces {
    fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// What is not written yet.
    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let mut done = self.done;
        self.pieces.iter().filter_map(move |piece| {
            let skipped = done.min(piece.len());
            done -= skipped;
            Some(&piece[skipped..]).filter(|rest| !rest.is_empty())
        })
    }
}

fn vector(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

struct Reactor {
    kernel: IoUring,
    ring: Arc<Ring>,
    in_flight: Slab<Request>,
    /// The kernel reads the eventfd's count into it.
    woken: Box<[u8; 8]>,
}

impl Reactor {
    fn run(mut self) {
        self.await_wake();
        loop {
            match self.kernel.submit_and_wait(1) {
                Ok(_) => {}
                // Interrupted, or the kernel is short of memory or of room for completions, which are taken
                // next.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(_) => return self.give_up(),
            }
            self.take_completions();
        }
    }

    /// The ring is unusable: every caller, now and later, gets an error. The kernel may still write to
    /// buffers in flight, so that memory is never freed.
    fn give_up(self) {
        let waiting = self.ring.inbox.lock().take();
        drop(waiting);
        std::mem::forget(self.woken);
        for (_, Request { transfer, file, reply, .. }) in self.in_flight {
            std::mem::forget((transfer, file));
            drop(reply);
        }
    }

    fn take_completions(&mut self) {
        while let Some(completion) = { self.kernel.completion().next() } {
            match completion.user_data() {
                WAKE => {
                    let requests = self.ring.inbox.lock().as_mut().map(std::mem::take);
                    self.submit_all(requests.unwrap_or_default());
                    self.await_wake();
                }
                key => {
                    if let Some(request) = self.in_flight.try_remove(key as usize) {
                        self.complete(request, completion.result());
                    }
                }
            }
        }
    }

    fn complete(&mut self, mut request: Request, result: i32) {
        let Ok(count) = usize::try_from(result) else {
            return match -result {
                libc::EINTR | libc::EAGAIN if request.put_off < interrupted::CALLS => {
                    request.put_off += 1;
                    self.submit(request);
                }
                errno => drop(request.reply.send(Err(io::Error::from_raw_os_error(errno)))),
            };
        };
        request.put_off = 0;
        let complete = match &mut request.transfer {
            Transfer::Read(buffer) => {
                // SAFETY: the kernel has completed a read of `count` bytes at the start of the spare memory.
                unsafe { buffer.assume_filled(count) };
                buffer.is_complete()
            }
            Transfer::Write(write) => {
                write.done += count;
                write.done >= write.data.len()
            }
            Transfer::ReadPieces(buffers, _) => {
                let mut left = count;
                for buffer in buffers.iter_mut() {
                    let filled = left.min(buffer.spare().len());
                    // SAFETY: the kernel has filled the buffers in this order, `count` bytes in all.
                    unsafe { buffer.assume_filled(filled) };
                    left -= filled;
                }
                buffers.iter().all(Buffer::is_complete)
            }
            Transfer::WritePieces(write, _) => {
                write.done += count;
                write.done >= write.len()
            }
            Transfer::Sync | Transfer::StartWriteback => true,
        };
        if !complete && count > 0 {
            return self.submit(request);
        }
        drop(request.reply.send(Ok(request.transfer)));
    }

    /// Submits requests that arrived together, with writes sorted by offset.
    fn submit_all(&mut self, requests: Vec<Request>) {
        let is_write =
            |request: &Request| matches!(request.transfer, Transfer::Write(_) | Transfer::WritePieces(..));
        let (mut writes, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_write);
        writes.sort_by_key(|request| (request.file.as_raw_fd(), request.offset));
        others.into_iter().chain(writes).for_each(|request| self.submit(request));
    }

    fn submit(&mut self, mut request: Request) {
        let fd = types::Fd(request.file.as_raw_fd());
        let entry = match &mut request.transfer {
            Transfer::Read(buffer) => {
                let at = request.offset + buffer.filled() as u64;
                let spare = buffer.spare();
                opcode::Read::new(fd, spare.as_mut_ptr().cast(), spare.len().min(PIECE_BYTES) as u32)
                    .offset(at)
                    .build()
            }
            Transfer::Write(Write { data, done, through }) => {
                let (at, rest) = (request.offset + *done as u64, &data[*done..]);
                let flags = if *through { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, rest.as_ptr(), rest.len().min(PIECE_BYTES) as u32)
                    .offset(at)
                    .rw_flags(flags)
                    .build()
            }
            Transfer::ReadPieces(buffers, vectors) => {
                let at = request.offset + buffers.iter().map(|buffer| buffer.filled() as u64).sum::<u64>();
                let spare = buffers.iter_mut().map(Buffer::spare).filter(|spare| !spare.is_empty());
                vectors.0 = spare.map(|spare| vector(spare.as_mut_ptr().cast(), spare.len())).collect();
                opcode::Readv::new(fd, vectors.0.as_ptr(), vectors.0.len() as u32).offset(at).build()
            }
            Transfer::WritePieces(write, vectors) => {
                vectors.0 = write.rest().map(|rest| vector(rest.as_ptr().cast_mut(), rest.len())).collect();
                let at = request.offset + write.done as u64;
                opcode::Writev::new(fd, vectors.0.as_ptr(), vectors.0.len() as u32).offset(at).build()
            }
            Transfer::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            // Length 0 means to the end of the file.
            Transfer::StartWriteback => {
                opcode::SyncFileRange::new(fd, 0).flags(libc::SYNC_FILE_RANGE_WRITE).build()
            }
        };
        // The addresses point into vectors' memory, which does not move with the request.
        let key = self.in_flight.insert(request);
        self.push(entry.user_data(key as u64));
    }

    fn await_wake(&mut self) {
        let fd = types::Fd(self.ring.wake.as_raw_fd());
        let entry = opcode::Read::new(fd, self.woken.as_mut_ptr(), 8).build();
        self.push(entry.user_data(WAKE));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the memory, the descriptor and the data of the entry live in `in_flight` or in `self` until
        // it completes.
        while unsafe { self.kernel.submission().push(&entry) }.is_err() {
            // Full: hand the entries to the kernel. If that fails, the queue stays full, and we try again.
            let _ = self.kernel.submit();
        }
    }
}
