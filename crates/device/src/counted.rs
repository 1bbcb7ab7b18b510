//! A layer that counts operations, bytes, times and sizes.
//!
//! Idea: counters are atomics, updated when an operation ends, so counting costs two clock reads and a few
//! additions. Histograms have doubling buckets.
//!
//! Source: OpenZFS `vdev_stat_ex_t`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cenote_runtime::Runtime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Op;
use crate::io::Io;
use crate::{Device, DeviceInfo};

/// Bucket `n` has times of at least 2^n ns (`VDEV_L_HISTO_BUCKETS`).
pub const TIME_BUCKETS: usize = 37;
/// Bucket `n` has sizes of at least 2^n bytes (`VDEV_RQ_HISTO_BUCKETS`).
pub const SIZE_BUCKETS: usize = 25;

/// The counters of one device; shared with readers.
#[derive(Debug, Default)]
pub struct Counters([Kind; Op::ALL.len()]);

#[derive(Debug)]
struct Kind {
    operations: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    active: AtomicU64,
    times: [AtomicU64; TIME_BUCKETS],
    sizes: [AtomicU64; SIZE_BUCKETS],
}

impl Default for Kind {
    fn default() -> Kind {
        let zero = AtomicU64::default;
        Kind {
            operations: zero(),
            bytes: zero(),
            busy_ns: zero(),
            active: zero(),
            times: std::array::from_fn(|_| zero()),
            sizes: std::array::from_fn(|_| zero()),
        }
    }
}

/// A snapshot of one kind of operation's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Operations that ended.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their total duration.
    pub busy_ns: u64,
    /// Operations under way.
    pub active: u64,
    /// Histogram of durations.
    #[serde(with = "crate::list")]
    #[schemars(with = "Vec<u64>")]
    pub times: [u64; TIME_BUCKETS],
    /// Histogram of sizes.
    pub sizes: [u64; SIZE_BUCKETS],
}

impl Counters {
    /// The counts of one kind of operation.
    pub fn of(&self, op: Op) -> Counts {
        let kind = &self.0[op as usize];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            operations: read(&kind.operations),
            bytes: read(&kind.bytes),
            busy_ns: read(&kind.busy_ns),
            active: read(&kind.active),
            times: std::array::from_fn(|bucket| read(&kind.times[bucket])),
            sizes: std::array::from_fn(|bucket| read(&kind.sizes[bucket])),
        }
    }
}

impl Default for Counts {
    fn default() -> Counts {
        let (times, sizes) = ([0; TIME_BUCKETS], [0; SIZE_BUCKETS]);
        Counts { operations: 0, bytes: 0, busy_ns: 0, active: 0, times, sizes }
    }
}

impl Counts {
    /// Adds another device's.
    pub fn add(&mut self, other: &Counts) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.busy_ns += other.busy_ns;
        self.active += other.active;
        self.times.iter_mut().zip(other.times).for_each(|(sum, count)| *sum += count);
        self.sizes.iter_mut().zip(other.sizes).for_each(|(sum, count)| *sum += count);
    }

    /// The difference since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            operations: self.operations.saturating_sub(before.operations),
            bytes: self.bytes.saturating_sub(before.bytes),
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
            active: self.active,
            times: std::array::from_fn(|n| self.times[n].saturating_sub(before.times[n])),
            sizes: std::array::from_fn(|n| self.sizes[n].saturating_sub(before.sizes[n])),
        }
    }

    /// Average duration.
    pub fn average_ns(&self) -> Option<u64> {
        self.busy_ns.checked_div(self.operations)
    }
}

/// A counted device.
pub struct Counted {
    inner: Arc<dyn Device>,
    runtime: Runtime,
    counters: Arc<Counters>,
}

impl Counted {
    /// Adds to existing counters.
    pub fn new(inner: Arc<dyn Device>, counters: Arc<Counters>, runtime: &Runtime) -> Counted {
        Counted { inner, runtime: runtime.clone(), counters }
    }

    /// `call` begins the operation, so its time is counted too.
    fn count<T: Send>(&self, op: Op, len: u64, call: impl FnOnce() -> Io<T>) -> Io<T> {
        let begun_ns = self.runtime.now().as_ns();
        let kind = &self.counters.0[op as usize];
        kind.active.fetch_add(1, Ordering::Relaxed);
        let io = call();
        if io.is_done() {
            kind.ended(len, self.runtime.now().as_ns().saturating_sub(begun_ns));
            return io;
        }
        let (counters, runtime) = (self.counters.clone(), self.runtime.clone());
        io.holding(Running { counters, runtime, op, len, begun_ns })
    }
}

impl Kind {
    fn ended(&self, len: u64, took_ns: u64) {
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        self.active.fetch_sub(1, Ordering::Relaxed);
        add(&self.operations, 1);
        add(&self.bytes, len);
        add(&self.busy_ns, took_ns);
        add(&self.times[bucket(took_ns, TIME_BUCKETS)], 1);
        add(&self.sizes[bucket(len, SIZE_BUCKETS)], 1);
    }
}

struct Running {
    counters: Arc<Counters>,
    runtime: Runtime,
    op: Op,
    len: u64,
    begun_ns: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        let took_ns = self.runtime.now().as_ns().saturating_sub(self.begun_ns);
        self.counters.0[self.op as usize].ended(self.len, took_ns);
    }
}

fn bucket(number: u64, buckets: usize) -> usize {
    (number.max(1).ilog2() as usize).min(buckets - 1)
}

impl Device for Counted {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, len: usize) -> Io<Bytes> {
        self.count(Op::Read, len as u64, || self.inner.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, data: Bytes) -> Io<()> {
        self.count(Op::Write, data.len() as u64, || self.inner.write_at(offset, data))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> Io<()> {
        self.count(Op::Write, data.len() as u64, || self.inner.write_through(offset, data))
    }

    fn read_pieces(&self, offset: u64, lens: Vec<usize>) -> Io<Vec<Bytes>> {
        let bytes = lens.iter().map(|len| *len as u64).sum();
        self.count(Op::Read, bytes, || self.inner.read_pieces(offset, lens))
    }

    fn write_pieces(&self, offset: u64, pieces: Vec<Bytes>) -> Io<()> {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.count(Op::Write, bytes, || self.inner.write_pieces(offset, pieces))
    }

    fn flush(&self) -> Io<()> {
        self.count(Op::Flush, 0, || self.inner.flush())
    }

    fn lose_unflushed(&self) {
        self.inner.lose_unflushed();
    }

    fn discard(&self, offset: u64, len: u64) -> Io<()> {
        self.count(Op::Discard, len, || self.inner.discard(offset, len))
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

    fn grown(&self) -> Io<Option<Arc<dyn Device>>> {
        let (counters, runtime) = (self.counters.clone(), self.runtime.clone());
        let above = move |inner| Arc::new(Counted::new(inner, counters, &runtime)) as Arc<dyn Device>;
        self.inner.grown().map(|grown| Ok(grown?.map(above)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn operations_are_counted_by_kind_size_and_time() {
        let runtime = Runtime::real(Some(1));
        let counters = Arc::<Counters>::default();
        let memory = Arc::new(MemoryDevice::new("memory", 1 << 20));
        let device = Counted::new(memory, counters.clone(), &runtime);
        runtime.block_on(async {
            device.write_at(0, vec![7; 4096].into()).await.unwrap();
            let before = counters.of(Op::Write);
            device.write_at(4096, vec![7; 512].into()).await.unwrap();
            device.read_at(0, 5000).await.unwrap();
            device.flush().await.unwrap();
            assert!(device.read_at(2 << 20, 1).await.is_err());
            let writes = counters.of(Op::Write);
            assert_eq!((writes.operations, writes.bytes, writes.active), (2, 4608, 0));
            assert_eq!((writes.sizes[12], writes.sizes[9]), (1, 1));
            let later = writes.since(&before);
            assert_eq!((later.operations, later.bytes, later.times.iter().sum::<u64>()), (1, 512, 1));
            let reads = counters.of(Op::Read);
            assert_eq!((reads.operations, reads.sizes[12], counters.of(Op::Flush).operations), (2, 1, 1));
        });
    }
}
