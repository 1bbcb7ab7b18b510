//! One operation at a time per thread: `pread`, `pwrite`, `fsync`.
//!
//! A worker has one thread, or, where the kernel denies it io_uring, one for each operation it may have in
//! flight; all share the worker's [`Source`].
//!
//! The clock is read once per operation: when one completes, the next starts. Only writes, whose data must be
//! generated first, and operations after a wait read it again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::buffers::Buffers;
use super::clock::Clock;
use super::halt::Halt;
use super::source::{Next, Source};
use super::tally::Tally;
use super::transfer;
use super::worker::Worker;
use crate::Result;
use crate::load::workload::Kind;

/// Bounds the reaction to a stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Interval between checks for completion of other threads' operations.
const DRAIN_SLEEP: Duration = Duration::from_micros(50);

/// Runs the operations of `source` until it ends.
///
/// # Errors
/// An operation failed, or the run was stopped.
pub(super) fn run(
    worker: &Worker<'_>,
    source: &Mutex<Source>,
    tally: &mut Tally,
    halt: &Halt,
    clock: Clock,
) -> Result<()> {
    let mut reads = Buffers::new(1, worker.read_bytes());
    let mut writes = Buffers::new(1, worker.write_bytes());
    writes.each().for_each(|slot| lock(source).filler().prepare(slot));
    let mut now_ns = clock.now_ns();
    let mut done = None;
    loop {
        tally.tick(halt, now_ns)?;
        let mut source = lock(source);
        if let Some(operation) = done.take() {
            source.completed(&operation);
        }
        match source.next(now_ns) {
            Next::Issue(operation) => {
                let bytes = operation.bytes as usize;
                let mut began_ns = now_ns;
                let buffer = match operation.kind {
                    Kind::Write => writes.slot(0, bytes),
                    _ => reads.slot(0, bytes),
                };
                if operation.kind == Kind::Write {
                    source.filler().renew(buffer, &operation);
                    began_ns = clock.now_ns();
                }
                drop(source);
                let outcome = transfer::complete(&worker.file, &operation, buffer, 0);
                outcome.map_err(|e| worker.failed(&operation, e))?;
                now_ns = clock.now_ns();
                tally.record(&operation, began_ns, now_ns);
                done = Some(operation);
                if !worker.check(&operation, buffer)? {
                    continue;
                }
            }
            Next::Until(then_ns) => {
                drop(source);
                clock.sleep_until(then_ns, LONGEST_SLEEP);
            }
            Next::Drain => {
                drop(source);
                std::thread::sleep(DRAIN_SLEEP);
            }
            Next::End => return Ok(()),
        }
        now_ns = clock.now_ns();
    }
}

fn lock(source: &Mutex<Source>) -> MutexGuard<'_, Source> {
    source.lock().unwrap_or_else(PoisonError::into_inner)
}
