//! A layer that counts what passes, and on request remembers it.

use crate::error::{Op, Result};
use crate::io::Io;
use crate::{Device, DeviceInfo};
use bytes::Bytes;
use cenote_runtime::{Instant, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What passed of one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCount {
    /// Operations that ended, well or not.
    pub ended: u64,
    /// Of these, how many failed.
    pub failed: u64,
    /// Bytes of those that did not fail.
    pub bytes: u64,
    /// Time they took, added up.
    pub busy: Duration,
}

/// One operation that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it was asked for.
    pub start: Instant,
    /// How long it took.
    pub took: Duration,
    /// What it was.
    pub op: Op,
    /// Where, in bytes; zero for a flush.
    pub offset: u64,
    /// How much, in bytes; zero for a flush.
    pub len: u64,
    /// Whether it failed.
    pub failed: bool,
}

/// A device that is watched.
pub struct Traced {
    inner: Arc<dyn Device>,
    runtime: Runtime,
    seen: Mutex<Seen>,
    event_limit: usize,
}

#[derive(Default)]
struct Seen {
    counts: [OpCount; Op::ALL.len()],
    events: Vec<Event>,
}

impl Traced {
    /// Counts, and remembers the first `event_limit` operations in the order in which they end.
    pub fn new(inner: Arc<dyn Device>, event_limit: usize, runtime: &Runtime) -> Traced {
        Traced { inner, runtime: runtime.clone(), seen: Mutex::default(), event_limit }
    }

    /// What passed of this kind so far.
    pub fn count(&self, op: Op) -> OpCount {
        self.seen.lock().counts[op as usize]
    }

    /// Takes the operations remembered, making room for as many again.
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

    fn watch<'a, T: Send + 'a>(
        &'a self,
        op: Op,
        offset: u64,
        len: u64,
        call: impl FnOnce() -> Io<'a, T>,
    ) -> Io<'a, T> {
        let start = self.runtime.now();
        let transfer = call();
        let note = move |result: &Result<T>| self.note(start, op, offset, len, result.is_err());
        transfer.inspect(note)
    }
}

impl Device for Traced {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<'_, Bytes> {
        self.watch(Op::Read, offset, len as u64, || self.inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<'_, ()> {
        self.watch(Op::Write, offset, data.len() as u64, || self.inner.write_at(offset, data))
    }

    fn flush(&self) -> Io<'_, ()> {
        self.watch(Op::Flush, 0, 0, || self.inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Io<'_, ()> {
        self.watch(Op::Discard, offset, len, || self.inner.discard(offset, len))
    }

    fn advise(&self, offset: u64, len: u64) {
        self.inner.advise(offset, len);
    }

    fn has_hole(&self, offset: u64, len: u64) -> bool {
        self.inner.has_hole(offset, len)
    }
}
