//! Counts operations of a disk and the cache over a period.

use std::sync::Arc;
use std::time::Duration;

use cenote_cache::CacheStats;
use cenote_device::{Counters, Op};
use cenote_runtime::Instant;

use super::pool::Bench;

pub(crate) struct Meter {
    counters: Arc<Counters>,
    begun: Instant,
    before: Disk,
    stats_before: CacheStats,
}

#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Time since the start.
    pub(crate) at: Duration,
    pub(crate) disk: Disk,
    pub(crate) stats: CacheStats,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
}

impl Disk {
    fn of(counters: &Counters) -> Disk {
        let [read, write] = [Op::Read, Op::Write].map(|op| counters.of(op));
        Disk { reads: read.operations, read_bytes: read.bytes, writes: write.operations }
    }
}

impl Meter {
    /// Starts counting the operations behind `counters` and those of the bench's cache.
    pub(crate) fn begin(bench: &Bench, counters: &Arc<Counters>) -> Meter {
        Meter {
            counters: counters.clone(),
            begun: bench.rt.now(),
            before: Disk::of(counters),
            stats_before: bench.engine.cache().stats(),
        }
    }

    pub(crate) fn look(&self, bench: &Bench) -> Seen {
        let now = Disk::of(&self.counters);
        Seen {
            at: bench.rt.now().since(self.begun),
            disk: Disk {
                reads: now.reads - self.before.reads,
                read_bytes: now.read_bytes - self.before.read_bytes,
                writes: now.writes - self.before.writes,
            },
            stats: bench.engine.cache().stats().since(&self.stats_before),
        }
    }
}
