//! Writes to a file, from one thread at a time.
//!
//! ```text
//!   any task                          a thread of the runtime
//!   --------                          -------------------------------------------------
//!   queue the write
//!   yield to tasks that are ready
//!   (start a thread if none writes)   take all queued writes, sort them by offset
//!   await the reply           <--     write adjacent ones in one call: reply to each
//!                                     until the queue is empty
//! ```
//!
//! Idea: the kernel admits one writer at a time to a file's page cache, so one thread is enough. Writes that
//! arrive while it is busy are merged into a few large calls.
//!
//! Overlapping writes wait for their turn first ([`crate::order`]), so queued ones may be sorted.
//!
//! Locking: one mutex guards the queue and `has_writer`, never during a system call or an await. At most one
//! thread writes at a time. It clears `has_writer` in the same critical section in which it finds the queue
//! empty, so no write is left without a thread.

use super::interrupted;
use super::open::OpenFile;
use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::channel::oneshot;
use parking_lot::Mutex;
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::sync::Arc;

/// Adjacent writes are joined up to this length: the blocks of a txg are adjacent on every disk.
const RUN_BYTES: usize = 1 << 20;
/// Well below the kernel's limit of 1,024.
const RUN_PIECES: usize = 256;

pub(super) struct WriteQueue {
    file: Arc<OpenFile>,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    waiting: Vec<Write>,
    /// A thread is writing until the queue is empty.
    has_writer: bool,
}

impl QueueState {
    /// Whether the caller must start a thread.
    fn wants_writer(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.has_writer, true)
    }
}

struct Write {
    offset: u64,
    data: Bytes,
    reply: oneshot::Sender<Result<()>>,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

impl WriteQueue {
    pub(super) fn new(file: Arc<OpenFile>) -> Arc<WriteQueue> {
        Arc::new(WriteQueue { file, state: Mutex::default() })
    }

    pub(super) async fn write(
        self: &Arc<WriteQueue>,
        runtime: &Runtime,
        offset: u64,
        data: Bytes,
    ) -> Result<()> {
        self.write_pieces(runtime, offset, vec![data]).await
    }

    pub(super) async fn write_pieces(
        self: &Arc<WriteQueue>,
        runtime: &Runtime,
        mut offset: u64,
        pieces: Vec<Bytes>,
    ) -> Result<()> {
        let mut outcomes = Vec::with_capacity(pieces.len());
        {
            let mut state = self.state.lock();
            for data in pieces {
                let (reply, outcome) = oneshot::channel();
                let end = offset + data.len() as u64;
                state.waiting.push(Write { offset, data, reply });
                outcomes.push(outcome);
                offset = end;
            }
        }
        // Lets other tasks queue their writes first: waking a thread costs more than a write.
        runtime.yield_now().await;
        if self.state.lock().wants_writer() {
            let queue = self.clone();
            runtime.start_blocking(move || queue.write_all());
        }
        for outcome in outcomes {
            outcome.await.unwrap_or_else(|_| Err(Error::other("the thread that writes has ended")))?;
        }
        Ok(())
    }

    fn write_all(&self) {
        loop {
            let mut writes = {
                let mut state = self.state.lock();
                state.has_writer = !state.waiting.is_empty();
                std::mem::take(&mut state.waiting)
            };
            if writes.is_empty() {
                return;
            }
            writes.sort_by_key(|write| write.offset);
            debug_assert!(writes.windows(2).all(|two| two[0].end() <= two[1].offset), "they overlap");
            while !writes.is_empty() {
                let rest = writes.split_off(run_len(&writes));
                self.write_run(std::mem::replace(&mut writes, rest));
            }
        }
    }

    /// Writes a run in one call, or else each write alone, with its own error.
    fn write_run(&self, run: Vec<Write>) {
        let slices: Vec<IoSlice<'_>> = run.iter().map(|write| IoSlice::new(&write.data)).collect();
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let is_whole =
            rustix::io::pwritev(&*self.file, &slices, run[0].offset).is_ok_and(|done| done == bytes);
        for Write { offset, data, reply } in run {
            let outcome =
                if is_whole { Ok(()) } else { write_all(&self.file, offset, &data, ReadWriteFlags::empty()) };
            // The task may be gone.
            drop(reply.send(outcome));
        }
    }
}

fn run_len(writes: &[Write]) -> usize {
    let start = writes[0].offset;
    let mut bytes = writes[0].data.len();
    for (len, write) in writes.iter().enumerate().skip(1) {
        let follows = write.offset == start + bytes as u64;
        bytes += write.data.len();
        if !follows || bytes > RUN_BYTES || len == RUN_PIECES {
            return len;
        }
    }
    writes.len()
}

pub(super) fn write_durably(file: &File, offset: u64, data: &[u8]) -> Result<()> {
    write_all(file, offset, data, ReadWriteFlags::DSYNC)
}

fn write_all(file: &File, mut offset: u64, mut data: &[u8], flags: ReadWriteFlags) -> Result<()> {
    while !data.is_empty() {
        let slice = [IoSlice::new(data)];
        match interrupted::call(|| Ok(rustix::io::pwritev2(file, &slice, offset, flags)?))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            done => {
                offset += done as u64;
                data = &data[done..];
            }
        }
    }
    Ok(())
}
