//! Latencies of many operations, in a histogram of fixed size: three significant digits from a nanosecond to an hour.

use hdrhistogram::Histogram;

/// The longest that is told apart: an hour. What takes longer counts as that.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Values are kept to three significant digits.
const DIGITS: u8 = 3;

/// How long operations took.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the library takes")]
    fn default() -> Latency {
        Latency { histogram: Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds are in order") }
    }
}

impl Latency {
    /// Notes an operation.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Notes operations that took equally long.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns, count);
    }

    /// Adds what another one has.
    pub fn add(&mut self, other: &Latency) {
        // Both have the same bounds: nothing can be out of range.
        let _ = self.histogram.add(&other.histogram);
    }

    /// How many operations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Mean, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }

    /// The shortest, in nanoseconds.
    pub fn min_ns(&self) -> u64 {
        self.histogram.min()
    }

    /// The longest, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.histogram.max()
    }

    /// What `percent` of all operations did not exceed, in nanoseconds.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent)
    }

    /// Buckets that have something: (lowest, highest value in it, count), from short to long.
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
