//! Times operations of one kind: a [`Recorder`] driven by the system clock.

use std::time::Instant;

use super::{Recorder, Stream};

/// Operations of one kind so far.
#[derive(Debug, Clone)]
pub struct Tally {
    began: Instant,
    recorder: Recorder,
}

impl Tally {
    /// Counts seconds from `began`.
    pub fn new(began: Instant) -> Tally {
        Tally { began, recorder: Recorder::new(0) }
    }

    /// Performs an operation that transfers `bytes`, and records it or its failure.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn time<T, E>(&mut self, bytes: u64, operation: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let began = Instant::now();
        let done = operation();
        match &done {
            Ok(_) => self.record(began, Instant::now(), bytes),
            Err(_) => self.recorder.record_error(),
        }
        done
    }

    /// Records an operation that lasted from `began` to `ended`.
    pub fn record(&mut self, began: Instant, ended: Instant, bytes: u64) {
        self.recorder.record(bytes, nanoseconds(began, self.began), nanoseconds(ended, self.began));
    }

    /// Records operations that completed by `at`, with unknown latencies.
    pub fn record_many(&mut self, operations: u64, at: Instant, bytes: u64) {
        self.recorder.record_many(operations, bytes, nanoseconds(at, self.began));
    }

    /// Adds another worker's operations in the same measurement.
    pub fn add(&mut self, other: &Tally) {
        self.recorder.add(&other.recorder);
    }

    /// Number of operations.
    pub fn operations(&self) -> u64 {
        self.recorder.operations()
    }

    /// Stream that lasted `runtime_ns`.
    pub fn into_stream(self, operation: impl Into<String>, runtime_ns: u64) -> Stream {
        self.recorder.into_stream(operation, runtime_ns)
    }
}

/// Nanoseconds from `began` to `ended`; 0 if `ended` is not later.
pub fn nanoseconds(ended: Instant, began: Instant) -> u64 {
    u64::try_from(ended.saturating_duration_since(began).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn workers_are_summed_second_by_second() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let (mut one, mut other) = (Tally::new(began), Tally::new(began));
        one.record(at(100), at(200), 10);
        one.record(at(2100), at(2600), 10);
        other.record(at(2000), at(2900), 5);
        other.record_many(7, at(3500), 0);
        one.add(&other);
        let stream = one.into_stream("read", 4_000_000_000);
        assert_eq!((stream.operations, stream.bytes, stream.latency.count()), (10, 25, 3));
        let seconds: Vec<_> = stream.seconds.iter().map(|s| (s.operations, s.bytes)).collect();
        assert_eq!(seconds, [(1, 10), (0, 0), (2, 15), (7, 0)]);
        assert_eq!(stream.seconds[2].latency_max_ns, 900_000_000);
        assert_eq!(stream.seconds[2].latency_sum_ns, 1_400_000_000);
    }
}
