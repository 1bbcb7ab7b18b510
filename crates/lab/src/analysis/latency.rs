//! Several kinds of latency in one test: found as modes of the histogram, explained by the caches.
//!
//! If the share of fast reads matches the hit share of a cache, they are most likely those hits. Median and
//! mean then describe no real operation, and a larger data set will be slower than the figures say. Modes
//! that no cache counter matches get no cause.

use serde::{Deserialize, Serialize};

use super::cache::{Cache, HitRate};
use super::{Finding, Severity};
use crate::load::measurement::Latency;
use crate::stats::{Mode, modes};
use crate::unit::Unit;

/// Modes with centers closer than this factor are one kind of operation with a wide spread.
const APART: f64 = 5.0;
/// Shares that differ by less than this are equal: histograms and counters divide operations
/// differently.
const SAME_SHARE: f64 = 0.1;
/// Fewer operations have no shape.
const LEAST_OPERATIONS: u64 = 200;

/// Modes of one stream's latencies, at least two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyModes {
    /// Name of the test.
    pub test: String,
    /// Name of the target.
    pub target: String,
    /// Name of the operation.
    pub operation: String,
    /// From fastest to slowest.
    pub modes: Vec<Mode>,
    /// Share of the summed latency spent outside the fastest mode.
    pub slow_time_share: f64,
    /// Hit rates during the run.
    pub hit_rates: Vec<HitRate>,
    /// Cache whose hits match the fast operations.
    pub explained_by: Option<Cache>,
}

impl LatencyModes {
    /// Looks for several modes in the latencies of one stream, all repeats together.
    pub fn find(
        test: &str,
        target: &str,
        operation: &str,
        latency: &Latency,
        hit_rates: &[HitRate],
    ) -> Option<Self> {
        if latency.count() < LEAST_OPERATIONS {
            return None;
        }
        let modes = modes(latency.buckets());
        let (first, last) = (modes.first()?, modes.last()?);
        if modes.len() < 2 || last.center_ns < APART * first.center_ns {
            return None;
        }
        let fast_until = modes.iter().take_while(|m| m.center_ns < APART * first.center_ns).last()?.high_ns;
        let fast: f64 = modes.iter().filter(|m| m.high_ns <= fast_until).map(|m| m.share).sum();
        let mut sums = (0.0, 0.0);
        for (low, high, count) in latency.buckets() {
            let time = (low as f64 + high as f64) / 2.0 * count as f64;
            if low as f64 <= fast_until { sums.0 += time } else { sums.1 += time }
        }
        let is_read = !is_change(operation);
        // Nor may they differ by more than half of the smaller kind: 2 % fast reads are not the hits of a
        // cache that hit 9 %, or none.
        let near = SAME_SHARE.min(fast / 2.0).min((1.0 - fast) / 2.0);
        let same = |h: &&HitRate| is_read && (h.rate - fast).abs() <= near;
        Some(LatencyModes {
            test: test.into(),
            target: target.into(),
            operation: operation.into(),
            slow_time_share: sums.1 / (sums.0 + sums.1),
            explained_by: hit_rates.iter().find(same).map(|h| h.cache),
            hit_rates: if is_read { hit_rates.to_vec() } else { Vec::new() },
            modes,
        })
    }

    /// Puts it into words.
    pub fn finding(&self) -> Finding {
        let kinds: Vec<String> = self
            .modes
            .iter()
            .map(|m| format!("{} at about {}", percent(m.share), Unit::Nanoseconds.show(m.center_ns)))
            .collect();
        let mut sentence = format!(
            "{} on {}: {} latency has {} modes: {}. The slower modes account for {} of the time. ",
            self.test,
            self.target,
            self.operation,
            self.modes.len(),
            kinds.join(", "),
            percent(self.slow_time_share),
        );
        sentence.push_str(&self.explanation());
        let mut finding = Finding::new("latency.bimodal", Severity::Notice, sentence)
            .of_test(&self.test)
            .of_target(&self.target)
            .with("time in the slower modes", self.slow_time_share * 100.0, Unit::Percent);
        for (number, mode) in (1..).zip(&self.modes) {
            finding = finding
                .with(format!("center of mode {number}"), mode.center_ns, Unit::Nanoseconds)
                .with(format!("share of mode {number}"), mode.share * 100.0, Unit::Percent);
        }
        for hit in &self.hit_rates {
            finding = finding.with(format!("{} hit rate", hit.cache.name()), hit.rate * 100.0, Unit::Percent);
        }
        finding
    }

    fn explanation(&self) -> String {
        let rates: Vec<String> = self
            .hit_rates
            .iter()
            .map(|h| format!("the {} hit {}", h.cache.name(), percent(h.rate)))
            .collect();
        match self.explained_by {
            Some(cache) => format!(
                "The share of fast operations matches {} ({}): most likely these were hits, and the others \
                 waited for disks. The figures apply only to data that are cached as well as these.",
                match cache {
                    Cache::PageCache => "the reads without disk I/O".to_owned(),
                    counted => format!("the {} hits", counted.name()),
                },
                rates.join(", ")
            ),
            None if !rates.is_empty() => {
                format!("Cache hits do not explain this: {}.", rates.join(", "))
            }
            None if !is_change(&self.operation) => {
                "The cause is unknown: no cache with hit counters was involved.".into()
            }
            None => "The cause is unknown: no counter shows which writes waited for a disk.".into(),
        }
    }
}

/// Whether an operation changes stored data, such as `write` or `sequential-create`. Reads, lookups and nine
/// out of ten of bonnie's seeks do not.
fn is_change(operation: &str) -> bool {
    let last = operation.rsplit(['/', '-']).next();
    matches!(
        last,
        Some("write" | "rewrite" | "create" | "delete" | "rename" | "copy" | "attributes" | "sync" | "trim")
    )
}

fn percent(share: f64) -> String {
    format!("{:.*} %", usize::from(!(0.1..=0.9).contains(&share)), share * 100.0)
}
