//! A layer that counts operations and optionally records them.
//!
//! Locking: one mutex guards counts and events; it is taken once when an operation ends, never across a
//! transfer.

use crate::error::{Op, Result};
use crate::io::Io;
use crate::{Device, DeviceInfo};
use bytes::Bytes;
use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Statistics of one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCount {
    /// Operations that ended, successfully or not.
    pub ended: u64,
    /// Failures among them.
    pub failed: u64,
    /// Bytes of successful operations.
    pub bytes: u64,
    /// Total duration.
    pub busy: Duration,
}

/// One completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time of the request.
    pub start: Instant,
    /// Duration.
    pub took: Duration,
    /// The kind of operation.
    pub op: Op,
    /// Offset in bytes; zero for a flush.
    pub offset: u64,
    /// Length in bytes; zero for a flush.
    pub len: u64,
    /// Whether it failed.
    pub failed: bool,
}

/// A traced device; clones share its state.
#[derive(Clone)]
pub struct Traced {
    inner: Arc<dyn Device>,
    runtime: Runtime,
    seen: Arc<Mutex<Seen>>,
    event_limit: usize,
}

#[derive(Default)]
struct Seen {
    counts: [OpCount; Op::ALL.len()],
    events: Vec<Event>,
}

impl Traced {
    /// Counts all operations, and records the first `event_limit` that end.
    pub fn new(inner: Arc<dyn Device>, event_limit: usize, runtime: &Runtime) -> Traced {
        Traced { inner, runtime: runtime.clone(), seen: Arc::default(), event_limit }
    }

    /// Statistics of this kind of operation so far.
    pub fn count(&self, op: Op) -> OpCount {
        self.seen.lock().counts[op as usize]
    }

    /// Takes the recorded operations, making room again.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.seen.lock().events)
    }

    fn note(&self, start: Instant, op: Op, offset: u64, len: u64, failed: bool) {
        let took = self.runtime.now() - start;
        let seen = &mut *self.seen.lock();
        let count = &mut seen.counts[op as usize];
        count.ended += 1;
        count.failed += u64::from(failed);
        count.bytes += if failed { 0 } else { len };
        count.busy += took;
        if seen.events.len() < self.event_limit {
            seen.events.push(Event { start, took, op, offset, len, failed });
        }
    }

    fn watch<T: Send>(&self, op: Op, offset: u64, len: u64, call: impl FnOnce() -> Io<T>) -> Io<T> {
        let (start, of) = (self.runtime.now(), self.clone());
        call().inspect(move |result: &Result<T>| of.note(start, op, offset, len, result.is_err()))
    }
}

impl Device for Traced {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.watch(Op::Read, offset, len as u64, || self.inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.watch(Op::Write, offset, data.len() as u64, || self.inner.write_at(offset, data))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        let of = self.clone();
        self.write_at(offset, data).then(move |()| of.flush())
    }

    fn flush(&self) -> Io<()> {
        self.watch(Op::Flush, 0, 0, || self.inner.flush())
    }

    fn lose_unflushed(&self) {
        self.inner.lose_unflushed();
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.watch(Op::Discard, offset, len, || self.inner.discard(offset, len))
    }

    fn has_hole(&self, offset: u64, len: u64) -> Io<bool> {
        self.inner.has_hole(offset, len)
    }

    fn is_there(&self) -> Io<bool> {
        self.inner.is_there()
    }

    fn size_now(&self) -> Io<u64> {
        self.inner.size_now()
    }
}
