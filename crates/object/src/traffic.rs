//! Traffic of a dataset's users: counters of its kstat `objset-*`, and wait times.
//!
//! Idea: counters shared by all states of an open object set. File systems and volumes count operations;
//! mounts and disk protocols also add the time of each request.
//!
//! Source: OpenZFS `dataset_kstats.c`; the times are Cenote's own.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_runtime::Runtime;

/// Counters of a dataset since it was opened.
#[derive(Debug, Default)]
pub struct Traffic {
    counts: [AtomicU64; NAMES.len()],
    waits: [Waits; Wait::ALL.len()],
}

/// Kinds of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A read.
    Read,
    /// Until a write is accepted.
    Write,
    /// Until a write is durable: fsync, flush.
    Commit,
}

impl Wait {
    /// All kinds.
    pub const ALL: [Wait; 3] = [Wait::Read, Wait::Write, Wait::Commit];
}

/// Bucket `n` begins at 2^n ns, the last at 2^36 ns (69 s).
pub const WAIT_BUCKETS: usize = 37;

#[derive(Debug)]
struct Waits {
    sum_ns: AtomicU64,
    times: [AtomicU64; WAIT_BUCKETS],
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { sum_ns: AtomicU64::new(0), times: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// Wait times so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// The sum.
    pub sum_ns: u64,
    /// Waits by bucket.
    pub times: [u64; WAIT_BUCKETS],
}

const NAMES: [&str; 6] = ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"];

impl Traffic {
    /// Counts a write.
    pub fn wrote(&self, bytes: u64) {
        self.add(0, 1);
        self.add(1, bytes);
    }

    /// Counts a read.
    pub fn read(&self, bytes: u64) {
        self.add(2, 1);
        self.add(3, bytes);
    }

    /// Counts the loss of a last name.
    pub fn unlinked(&self) {
        self.add(4, 1);
    }

    /// Counts a freed object.
    pub fn freed(&self) {
        self.add(5, 1);
    }

    /// Runs and times `work`; not counted if cancelled.
    pub async fn timed<T>(&self, runtime: &Runtime, wait: Wait, work: impl Future<Output = T>) -> T {
        let begun = runtime.now();
        let done = work.await;
        let took_ns = runtime.now().since(begun).as_nanos() as u64;
        let waits = &self.waits[wait as usize];
        waits.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
        let bucket = (took_ns.max(1).ilog2() as usize).min(WAIT_BUCKETS - 1);
        waits.times[bucket].fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Wait times of a kind.
    pub fn waited(&self, wait: Wait) -> Waited {
        let waits = &self.waits[wait as usize];
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Waited { sum_ns: read(&waits.sum_ns), times: std::array::from_fn(|n| read(&waits.times[n])) }
    }

    /// All counters, by name.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(&self.counts).map(|(name, cell)| (name, cell.load(Ordering::Relaxed))).collect()
    }

    fn add(&self, at: usize, count: u64) {
        self.counts[at].fetch_add(count, Ordering::Relaxed);
    }
}
