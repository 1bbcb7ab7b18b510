//! Latencies of two kinds in one test: found as hills of the histogram, explained by the caches.
//!
//! If the part of the reads that were fast is the part that a cache says it had, the fast ones are its hits. Median and mean then
//! describe no operation that ever happened, and a data set that fits the cache less well will be slower than the figures say.

use serde::{Deserialize, Serialize};

use super::cache::{Cache, HitRate};
use super::{Finding, Severity};
use crate::measurement::Latency;
use crate::stats::{Mode, modes};
use crate::unit::Unit;

/// Hills whose centers are nearer than this factor are one kind of operation with a wide spread.
const APART: f64 = 5.0;
/// Shares that differ by less than this are the same: histograms and counters cut at different places.
const SAME_SHARE: f64 = 0.1;
/// Fewer operations have no shape.
const LEAST_OPERATIONS: u64 = 200;

/// The hills of one stream's latencies, where there are two kinds or more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyModes {
    /// The test.
    pub test: String,
    /// The target.
    pub target: String,
    /// The operation.
    pub operation: String,
    /// From fast to slow.
    pub modes: Vec<Mode>,
    /// Part of the summed latency that operations of all but the fastest mode took.
    pub slow_time_share: f64,
    /// What the caches counted meanwhile.
    pub hit_rates: Vec<HitRate>,
    /// The cache whose hits are as many as the fast operations.
    pub explained_by: Option<Cache>,
}

impl LatencyModes {
    /// Looks for kinds of latencies among those of one stream, all repeats together.
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
        // Nor may they differ by more than the smaller kind has: 2 % fast reads are not the hits of a cache that had 9 %.
        let near = SAME_SHARE.min(fast).min(1.0 - fast);
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

    /// It in words.
    pub fn finding(&self) -> Finding {
        let kinds: Vec<String> = self
            .modes
            .iter()
            .map(|m| format!("{} of them about {}", percent(m.share), Unit::Nanoseconds.show(m.center_ns)))
            .collect();
        let mut sentence = format!(
            "{} on {}: {} operations are of {} kinds: {}. The slower ones take {} of the time. ",
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
            .with("time of the slow operations", self.slow_time_share * 100.0, Unit::Percent);
        for (number, mode) in (1..).zip(&self.modes) {
            finding = finding
                .with(format!("center of kind {number}"), mode.center_ns, Unit::Nanoseconds)
                .with(format!("share of kind {number}"), mode.share * 100.0, Unit::Percent);
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
                "The fast ones are as many as the hits of the {} ({}): they came from it, the others from disk. The figures hold for a data \
                 set that is cached as well as this one.",
                cache.name(),
                rates.join(", ")
            ),
            None if !rates.is_empty() => {
                format!("The caches don't explain it: {}.", rates.join(", "))
            }
            None if !is_change(&self.operation) => {
                "A cache would look like this, but no cache counters were sampled: it is not known.".into()
            }
            None => "Writes that are only put into memory beside writes that wait for the disks would look like this.".into(),
        }
    }
}

/// Whether it changes what is stored: `write`, `sequential-create`; reads, look-ups and nine of ten of bonnie's seeks don't.
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
