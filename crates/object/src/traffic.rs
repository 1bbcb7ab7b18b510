//! What users of a dataset read, write and remove: the counts of its kstat, `objset-*`; and how long they
//! waited.
//!
//! Idea: cells that all states of an open object set share. Whoever serves its users adds to them: a file
//! system, a volume. Who waits for a request, a mount or a protocol of disks, also tells how long it took.
//!
//! Source: OpenZFS `dataset_kstats.c`; the times are Cenote's own.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_runtime::Runtime;

/// Counts of a dataset since it was opened.
#[derive(Debug, Default)]
pub struct Traffic {
    counts: [AtomicU64; NAMES.len()],
    waits: [Waits; Wait::ALL.len()],
}

/// What a user waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// To read.
    Read,
    /// Until a write is taken.
    Write,
    /// Until what was written is durable: fsync, a flush.
    Commit,
}

impl Wait {
    /// All of them.
    pub const ALL: [Wait; 3] = [Wait::Read, Wait::Write, Wait::Commit];
}

/// Buckets of times: bucket `n` has those of at least 2^n ns, the last one all of 2^36 ns (69 s) and more.
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

/// How long users waited, at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// All together.
    pub sum_ns: u64,
    /// How many waited how long.
    pub times: [u64; WAIT_BUCKETS],
}

const NAMES: [&str; 6] = ["writes", "nwritten", "reads", "nread", "nunlinks", "nunlinked"];

impl Traffic {
    /// So many bytes were written.
    pub fn wrote(&self, bytes: u64) {
        self.add(0, 1);
        self.add(1, bytes);
    }

    /// So many bytes were read.
    pub fn read(&self, bytes: u64) {
        self.add(2, 1);
        self.add(3, bytes);
    }

    /// Something lost its last name.
    pub fn unlinked(&self) {
        self.add(4, 1);
    }

    /// It was freed.
    pub fn freed(&self) {
        self.add(5, 1);
    }

    /// Does what a user waits for. Counted at its end; if nobody waits so long, not at all.
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

    /// How long users waited for this.
    pub fn waited(&self, wait: Wait) -> Waited {
        let waits = &self.waits[wait as usize];
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Waited { sum_ns: read(&waits.sum_ns), times: std::array::from_fn(|n| read(&waits.times[n])) }
    }

    /// All counts, by name.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(&self.counts).map(|(name, cell)| (name, cell.load(Ordering::Relaxed))).collect()
    }

    fn add(&self, at: usize, count: u64) {
        self.counts[at].fetch_add(count, Ordering::Relaxed);
    }
}
