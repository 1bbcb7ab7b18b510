//! Latencies of many operations, in a fixed-size histogram: three significant digits from a nanosecond to an
//! hour.

use hdrhistogram::Histogram;

/// Longest representable latency: an hour. Longer ones count as that.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits.
const DIGITS: u8 = 3;

/// Latencies of a set of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the library accepts")]
    fn default() -> Latency {
        Latency { histogram: Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds are in order") }
    }
}

impl Latency {
    /// Records an operation.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Records operations of equal latency.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns, count);
    }

    /// Adds another set.
    pub fn add(&mut self, other: &Latency) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.histogram.add(&other.histogram);
    }

    /// Number of operations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Mean, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }

    /// Shortest, in nanoseconds.
    pub fn min_ns(&self) -> u64 {
        self.histogram.min()
    }

    /// Longest, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.histogram.max()
    }

    /// Latency that `percent` of all operations do not exceed, in nanoseconds.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent)
    }

    /// Non-empty buckets in ascending order: (lowest value, highest value, count).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.histogram.iter_recorded().map(|bucket| {
            let value = bucket.value_iterated_to();
            let (low, high) =
                (self.histogram.lowest_equivalent(value), self.histogram.highest_equivalent(value));
            (low, high, bucket.count_since_last_iteration())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_rebuild_the_histogram() {
        let mut latency = Latency::default();
        for ns in [1, 130, 4_242, 4_243, 1_000_000, 7_000_000_000, u64::MAX] {
            latency.record(ns);
        }
        let mut again = Latency::default();
        for (low, _, count) in latency.buckets() {
            again.record_many(low, count);
        }
        assert_eq!(latency.buckets().collect::<Vec<_>>(), again.buckets().collect::<Vec<_>>());
        assert_eq!(latency.percentile_ns(50.0), again.percentile_ns(50.0));
    }
}
