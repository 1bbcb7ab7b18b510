//! Many operations in flight by io_uring: a ring for each worker, used by its thread alone.
//!
//! ```text
//!         ┌──> fill: as many operations as there are free slots ──> read the clock: they start
//!         │                                                               │
//!  free their slots, record them <── read the clock: done <── one system call: submits all, waits for one
//! ```
//!
//! So one system call and two clock readings serve all operations that complete together; fio needs these for
//! each.
//!
//! The file and the buffers are registered (their pages are pinned) to save work per operation; if the kernel
//! refuses, each operation names them. Completions are handled when this thread asks for them
//! (`DEFER_TASKRUN`), without interrupting it.
//!
//! Invariant: buffers and file outlive all operations in flight. On an error the ring is drained; if even
//! that fails, the buffers are leaked.
#![allow(unsafe_code)] // entries hold raw addresses; the ring's owner keeps the memory until completion

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::buffers::Buffers;
use super::clock::Clock;
use super::halt::Halt;
use super::source::{Next, Source};
use super::tally::Tally;
use super::transfer;
use super::worker::Worker;
use crate::Result;
use crate::load::workload::{Kind, Operation};

/// Longest wait for time alone; bounds the reaction to a stop.
const LONGEST_WAIT_NS: u64 = 100_000_000;
/// Kernel's limit on the size of a registered buffer.
const REGISTERED_MOST_BYTES: usize = 1 << 30;

pub(super) struct Ring {
    kernel: IoUring,
    reads: Buffers,
    writes: Buffers,
    /// Reads and writes use registered buffers.
    registered: bool,
    slots: Vec<Slot>,
    /// Unused slots.
    free: Vec<usize>,
    /// Slots filled since the last system call.
    filled: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    operation: Operation,
    began_ns: u64,
}

/// Reason for filling in no more operations now.
enum Pause {
    /// Wait for a completion.
    Completion,
    /// Wait until this time, or for a completion.
    Until(u64),
    /// The source has ended.
    End,
}

impl Ring {
    /// Creates a ring for use by the calling thread.
    ///
    /// # Errors
    /// The kernel has no io_uring, lacks a needed operation, or denies access.
    pub fn new(worker: &Worker<'_>) -> io::Result<Ring> {
        let depth = worker.job.queue_depth.max(1);
        let entries = depth.next_power_of_two();
        let deferring =
            IoUring::builder().dontfork().setup_single_issuer().setup_defer_taskrun().build(entries);
        let kernel = deferring.or_else(|_| IoUring::builder().dontfork().build(entries))?;
        if !kernel.params().is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        kernel.submitter().register_files(&[worker.file.as_raw_fd()])?;
        let depth = depth as usize;
        let nothing = Operation { kind: Kind::Sync, offset: 0, bytes: 0, number: 0 };
        let mut ring = Ring {
            kernel,
            reads: Buffers::new(depth, worker.read_bytes()),
            writes: Buffers::new(depth, worker.write_bytes()),
            registered: false,
            slots: vec![Slot { operation: nothing, began_ns: 0 }; depth],
            free: (0..depth).rev().collect(),
            filled: Vec::with_capacity(depth),
        };
        ring.registered = ring.register_buffers().is_ok();
        Ok(ring)
    }

    fn register_buffers(&mut self) -> io::Result<()> {
        let vectors = [&mut self.reads, &mut self.writes].map(|buffers| {
            let memory = buffers.all();
            // The kernel takes a vector with an address for a buffer, so give an empty one none.
            let iov_base = if memory.is_empty() { ptr::null_mut() } else { memory.as_mut_ptr().cast() };
            libc::iovec { iov_base, iov_len: memory.len() }
        });
        if vectors.iter().any(|vector| vector.iov_len > REGISTERED_MOST_BYTES) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the memory lives as long as the ring: both are fields of one value, and slots never move.
        unsafe { self.kernel.submitter().register_buffers(&vectors) }
    }

    /// Runs the operations of `source` until it ends.
    ///
    /// # Errors
    /// An operation failed, or the run was stopped.
    pub fn run(
        mut self,
        worker: &Worker<'_>,
        source: &mut Source,
        tally: &mut Tally,
        halt: &Halt,
        clock: Clock,
    ) -> Result<()> {
        self.writes.each().for_each(|slot| source.filler().prepare(slot));
        let outcome = self.turn(worker, source, tally, halt, clock);
        if outcome.is_err() && self.drain().is_err() {
            std::mem::forget(self);
        }
        outcome
    }

    fn turn(
        &mut self,
        worker: &Worker<'_>,
        source: &mut Source,
        tally: &mut Tally,
        halt: &Halt,
        clock: Clock,
    ) -> Result<()> {
        let mut now_ns = clock.now_ns();
        loop {
            tally.tick(halt, now_ns)?;
            let pause = self.fill(source, now_ns);
            if matches!(pause, Pause::End) && self.in_flight() == 0 {
                return Ok(());
            }
            now_ns = clock.now_ns();
            for slot in self.filled.drain(..) {
                self.slots[slot].began_ns = now_ns;
            }
            let waited = match pause {
                Pause::Until(then_ns) => self.wait_until(then_ns, now_ns),
                Pause::Completion | Pause::End => self.wait(),
            };
            waited.map_err(|e| worker.failed_ring(e))?;
            now_ns = clock.now_ns();
            self.take_completions(worker, source, tally, now_ns)?;
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn fill(&mut self, source: &mut Source, now_ns: u64) -> Pause {
        while let Some(&slot) = self.free.last() {
            let operation = match source.next(now_ns) {
                Next::Issue(operation) => operation,
                Next::Until(then_ns) => return Pause::Until(then_ns),
                Next::Drain => return Pause::Completion,
                Next::End => return Pause::End,
            };
            let entry = self.entry(slot, &operation, source).user_data(slot as u64);
            // SAFETY: the entry's memory and file outlive it, see the invariant above. The queue has room for
            // all slots.
            let pushed = unsafe { self.kernel.submission().push(&entry) };
            assert!(pushed.is_ok(), "the queue has an entry for each slot");
            self.free.pop();
            self.slots[slot].operation = operation;
            self.filled.push(slot);
        }
        Pause::Completion
    }

    fn entry(&mut self, slot: usize, operation: &Operation, source: &mut Source) -> squeue::Entry {
        let (file, bytes) = (Fixed(0), operation.bytes as usize);
        match operation.kind {
            Kind::Sync => opcode::Fsync::new(file).build(),
            Kind::Datasync => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
            Kind::Read => {
                let memory = self.reads.slot(slot, bytes).as_mut_ptr();
                match self.registered {
                    true => opcode::ReadFixed::new(file, memory, operation.bytes, 0)
                        .offset(operation.offset)
                        .build(),
                    false => {
                        opcode::Read::new(file, memory, operation.bytes).offset(operation.offset).build()
                    }
                }
            }
            Kind::Write => {
                let buffer = self.writes.slot(slot, bytes);
                source.filler().renew(buffer, operation);
                let memory = buffer.as_ptr();
                match self.registered {
                    true => opcode::WriteFixed::new(file, memory, operation.bytes, 1)
                        .offset(operation.offset)
                        .build(),
                    false => {
                        opcode::Write::new(file, memory, operation.bytes).offset(operation.offset).build()
                    }
                }
            }
        }
    }

    /// Submits filled slots and waits until an operation completes.
    fn wait(&mut self) -> io::Result<()> {
        unless_passing(self.kernel.submit_and_wait(1))
    }

    /// As [`Self::wait`], but at most until `then_ns`.
    fn wait_until(&mut self, then_ns: u64, now_ns: u64) -> io::Result<()> {
        let left_ns = then_ns.saturating_sub(now_ns).min(LONGEST_WAIT_NS);
        let timespec = Timespec::from(Duration::from_nanos(left_ns));
        let args = SubmitArgs::new().timespec(&timespec);
        unless_passing(self.kernel.submitter().submit_with_args(1, &args))
    }

    fn take_completions(
        &mut self,
        worker: &Worker<'_>,
        source: &mut Source,
        tally: &mut Tally,
        now_ns: u64,
    ) -> Result<()> {
        while let Some(completion) = { self.kernel.completion().next() } {
            let slot = completion.user_data() as usize;
            let Slot { operation, began_ns } = self.slots[slot];
            self.free.push(slot);
            source.completed(&operation);
            let buffer = match operation.kind {
                Kind::Write => self.writes.slot(slot, operation.bytes as usize),
                _ => self.reads.slot(slot, operation.bytes as usize),
            };
            if completion.result() != operation.bytes as i32 {
                finish(worker, &operation, buffer, completion.result())?;
            }
            tally.record(&operation, began_ns, now_ns);
            worker.check(&operation, buffer)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        while self.in_flight() > 0 {
            self.wait()?;
            while let Some(completion) = { self.kernel.completion().next() } {
                self.free.push(completion.user_data() as usize);
            }
        }
        Ok(())
    }
}

/// Finishes an operation that the kernel completed only in part, or was too busy to do.
fn finish(worker: &Worker<'_>, operation: &Operation, buffer: &mut [u8], result: i32) -> Result<()> {
    let done = match usize::try_from(result) {
        Ok(done) => done,
        Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => 0,
        Err(_) => return Err(worker.failed(operation, io::Error::from_raw_os_error(-result))),
    };
    transfer::complete(&worker.file, operation, buffer, done).map_err(|e| worker.failed(operation, e))
}

/// Ignores transient errors (interrupted, timed out, briefly out of resources): the next turn retries.
fn unless_passing(outcome: io::Result<usize>) -> io::Result<()> {
    match outcome {
        Err(e)
            if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY)) =>
        {
            Ok(())
        }
        other => other.map(|_| ()),
    }
}
