//! All data that `cenote top` shows at a time.

use cenote_control::answers::{Counts, IoClass};
use cenote_control::running::arcstat::{CacheStats, L2Stats};
use cenote_control::running::top::Seen;
use serde_json::{Map, Value, json};

use crate::zpool::iostat::sample::{Line, Sample};
use crate::zpool::tree::Style;

/// All pools at some moment, or the change between two.
#[derive(Clone)]
pub struct Look {
    pub(crate) unix_seconds: i64,
    pub(crate) pools: Vec<PoolLook>,
}

#[derive(Clone)]
pub(crate) struct PoolLook {
    pub health: String,
    /// Its vdevs, and their queues.
    pub sample: Sample,
    pub cache: CacheStats,
    pub second: L2Stats,
    /// Dirty bytes: changes not yet on disk.
    pub dirty_bytes: u64,
}

impl PoolLook {
    /// Its first line: the whole pool.
    pub fn whole(&self) -> &Line {
        &self.sample.lines[0]
    }
}

impl Look {
    /// A look at these pools.
    pub fn new(seen: Vec<Seen>, unix_seconds: i64) -> Look {
        let look = |Seen { counted, cache, second, dirty_bytes }| PoolLook {
            health: counted.health.shown_state().to_owned(),
            sample: Sample::of(&counted, Style::default()),
            cache,
            second,
            dirty_bytes,
        };
        Look { unix_seconds, pools: seen.into_iter().map(look).collect() }
    }

    /// The change since an earlier look; for a pool not open then, everything.
    pub fn since(&self, before: &Look) -> Look {
        let of = |now: &PoolLook| {
            let old = before.pools.iter().find(|old| old.whole().name == now.whole().name);
            // A pool exported and imported in between counts from 0 again.
            let Some(old) = old.filter(|old| old.sample.ns <= now.sample.ns) else { return now.clone() };
            PoolLook {
                sample: now.sample.since(&old.sample),
                cache: now.cache.since(&old.cache),
                second: now.second.since(&old.second),
                ..now.clone()
            }
        };
        Look { pools: self.pools.iter().map(of).collect(), ..*self }
    }

    /// All figures, by pool.
    pub fn json(&self) -> Map<String, Value> {
        self.pools.iter().map(|pool| (pool.whole().name.clone(), pool.json())).collect()
    }
}

impl PoolLook {
    fn json(&self) -> Value {
        let mut entry = self.line_json(self.whole());
        let queues =
            self.whole().traffic.iter().flat_map(|traffic| IoClass::ALL.into_iter().zip(&traffic.queues));
        let class = |(class, load): (IoClass, &cenote_control::answers::ClassLoad)| {
            let figures = json!({
                "pending": load.waiting,
                "active": load.active,
                "operations_per_second": self.sample.per_second(load.begun),
                "average_wait_ns": load.average_wait_ns(),
            });
            (class.name().to_owned(), figures)
        };
        let CacheStats { data, metadata, bytes, budget_bytes, policy, .. } = &self.cache;
        entry["health"] = self.health.as_str().into();
        entry["dirty_bytes"] = self.dirty_bytes.into();
        entry["classes"] = Value::Object(queues.map(class).collect());
        entry["vdevs"] = self.sample.lines[1..].iter().map(|line| self.line_json(line)).collect();
        entry["cache"] = json!({
            "data": {"hits": data.hits, "misses": data.misses, "content_bytes": data.content_bytes},
            "metadata": {
                "hits": metadata.hits,
                "misses": metadata.misses,
                "content_bytes": metadata.content_bytes,
            },
            "bytes": bytes,
            "budget_bytes": budget_bytes,
            "policy": policy.map(|policy| policy.name()),
            "l2_hits": self.second.hits,
            "l2_misses": self.second.misses,
        });
        entry
    }

    fn line_json(&self, line: &Line) -> Value {
        let traffic = line.traffic.clone().unwrap_or_default();
        let of = |counts: &Counts| {
            json!({
                "operations_per_second": self.sample.per_second(counts.operations),
                "bytes_per_second": self.sample.per_second(counts.bytes),
                "average_wait_ns": counts.average_ns(),
                "p99_wait_ns": percentile_ns(counts, 99),
            })
        };
        let mut entry = json!({"name": line.name, "read": of(&traffic.read), "write": of(&traffic.write)});
        if let Some((allocated, free)) = line.space {
            (entry["allocated"], entry["free"]) = (allocated.into(), free.into());
        }
        entry
    }
}

/// The upper bound of the fastest `percent` of the operations, to the precision of the histogram's buckets;
/// `None` if none.
pub fn percentile_ns(counts: &Counts, percent: u64) -> Option<u64> {
    let total: u64 = counts.times.iter().sum();
    let wanted = (total * percent).div_ceil(100);
    let mut below = 0;
    let bucket = counts.times.iter().position(|count| {
        below += count;
        total > 0 && below >= wanted
    })?;
    // Bucket `n` counts operations of at least 2^n ns.
    Some(2_u64.saturating_pow(bucket as u32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_end_of_the_bucket_that_reaches_it() {
        let mut counts = Counts::default();
        assert_eq!(percentile_ns(&counts, 99), None);
        counts.times[10] = 99;
        counts.times[20] = 1;
        assert_eq!(percentile_ns(&counts, 99), Some(2048));
        counts.times[20] = 2;
        assert_eq!(percentile_ns(&counts, 99), Some(1 << 21));
    }
}
