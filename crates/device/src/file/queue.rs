//! Writes to a file, one thread at a time.
//!
//! ```text
//!   any task                          a thread of the runtime
//!   --------                          -------------------------------------------------
//!   put it in the queue
//!   let tasks that are ready do so
//!   (start a thread if none writes)   take all that wait, in the order of their places
//!   await the answer          <--     what follows one another goes down in one call: answer each
//!                                     until nothing waits
//! ```
//!
//! Idea: the kernel lets one writer at a time into a file's page cache, and a call that may block takes a thread of its own there or here.
//! So one is enough; what comes while it writes gathers, and goes as a few large calls instead of many that wait for each other.

use bytes::Bytes;
use cenote_runtime::Runtime;
use futures::channel::oneshot;
use parking_lot::Mutex;
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Writes that follow one another go as one up to this many bytes: the blocks of a group lie in a row on every disk.
const RUN_BYTES: usize = 1 << 20;
/// And up to this many pieces, well below the kernel's 1,024.
const RUN_PIECES: usize = 256;

/// The way into a file.
pub(super) struct WriteQueue {
    file: Arc<File>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Write>,
    /// A thread is at it, and takes what waits before it ends.
    has_writer: bool,
}

impl State {
    /// Something waits, and nobody is at it: who asks is to start a thread.
    fn wants_writer(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.has_writer, true)
    }
}

struct Write {
    offset: u64,
    data: Bytes,
    reply: oneshot::Sender<Result<()>>,
}

impl WriteQueue {
    pub(super) fn new(file: Arc<File>) -> Arc<WriteQueue> {
        Arc::new(WriteQueue { file, state: Mutex::default() })
    }

    /// Writes all of `data`.
    pub(super) async fn write(
        self: &Arc<WriteQueue>,
        runtime: &Runtime,
        offset: u64,
        data: Bytes,
    ) -> Result<()> {
        let (reply, outcome) = oneshot::channel();
        self.state.lock().waiting.push(Write { offset, data, reply });
        // Whoever is about to write, too, does so first: a thread that is woken for each write costs more than the write.
        runtime.yield_now().await;
        if self.state.lock().wants_writer() {
            let queue = self.clone();
            runtime.start_blocking(move || queue.write_all());
        }
        outcome.await.unwrap_or_else(|_| Err(Error::other("the thread that writes has ended")))
    }

    /// Writes what waits, until nothing does.
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
            while !writes.is_empty() {
                let rest = writes.split_off(run_len(&writes));
                self.write_run(std::mem::replace(&mut writes, rest));
            }
        }
    }

    /// Writes a run in one call. If that does not take all, each goes by itself and hears of its own trouble.
    fn write_run(&self, run: Vec<Write>) {
        let slices: Vec<IoSlice<'_>> = run.iter().map(|write| IoSlice::new(&write.data)).collect();
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let is_whole =
            rustix::io::pwritev(&*self.file, &slices, run[0].offset).is_ok_and(|done| done == bytes);
        for Write { offset, data, reply } in run {
            let outcome = if is_whole { Ok(()) } else { self.file.write_all_at(&data, offset) };
            // Who asked may have gone.
            drop(reply.send(outcome));
        }
    }
}

/// How many writes, from the first on, go as one.
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

/// Writes all of `data` and returns when it is durable.
pub(super) fn write_durably(file: &File, mut offset: u64, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        match rustix::io::pwritev2(file, &[IoSlice::new(data)], offset, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(done) => {
                offset += done as u64;
                data = &data[done..];
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
