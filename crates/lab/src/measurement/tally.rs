//! Counts operations of one kind as they are done: their latencies, and what each second was like.
//!
//! Each worker has its own tallies, so that recording takes no lock; they are added up when the work is over.

use std::time::Instant;

use super::{Latency, Second, Stream};

const SECOND_NS: u64 = 1_000_000_000;

/// Operations of one kind, so far.
#[derive(Debug, Clone)]
pub struct Tally {
    began: Instant,
    operations: u64,
    bytes: u64,
    errors: u64,
    latency: Latency,
    seconds: Vec<Second>,
}

impl Tally {
    /// Of a measurement that began then: seconds are counted from there.
    pub fn new(began: Instant) -> Tally {
        Tally { began, operations: 0, bytes: 0, errors: 0, latency: Latency::default(), seconds: Vec::new() }
    }

    /// Does an operation that moves so many bytes, and notes it, or its failure.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn time<T, E>(&mut self, bytes: u64, operation: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let began = Instant::now();
        let done = operation();
        match &done {
            Ok(_) => self.record(began, Instant::now(), bytes),
            Err(_) => self.errors += 1,
        }
        done
    }

    /// Notes an operation that lasted from `began` to `ended`.
    pub fn record(&mut self, began: Instant, ended: Instant, bytes: u64) {
        let took_ns = nanoseconds(ended, began);
        self.latency.record(took_ns);
        let second = self.pass(1, ended, bytes);
        second.latency_sum_ns += took_ns;
        second.latency_max_ns = second.latency_max_ns.max(took_ns);
    }

    /// Notes operations that were over by `at`, whose latencies are not known.
    pub fn record_many(&mut self, operations: u64, at: Instant, bytes: u64) {
        self.pass(operations, at, bytes);
    }

    /// Adds what another worker did in the same measurement.
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.add(&other.latency);
        for theirs in &other.seconds {
            let ours = self.second(theirs.at_ns / SECOND_NS);
            ours.operations += theirs.operations;
            ours.bytes += theirs.bytes;
            ours.latency_sum_ns += theirs.latency_sum_ns;
            ours.latency_max_ns = ours.latency_max_ns.max(theirs.latency_max_ns);
        }
    }

    /// How many operations were done.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// All of it as a stream, which went on for `runtime_ns`.
    pub fn into_stream(self, operation: impl Into<String>, runtime_ns: u64) -> Stream {
        Stream {
            operation: operation.into(),
            operations: self.operations,
            bytes: self.bytes,
            runtime_ns,
            errors: self.errors,
            latency: self.latency,
            seconds: self.seconds,
        }
    }

    fn pass(&mut self, operations: u64, at: Instant, bytes: u64) -> &mut Second {
        self.operations += operations;
        self.bytes += bytes;
        let second = self.second(nanoseconds(at, self.began) / SECOND_NS);
        second.operations += operations;
        second.bytes += bytes;
        second
    }

    fn second(&mut self, index: u64) -> &mut Second {
        while self.seconds.len() as u64 <= index {
            self.seconds.push(Second { at_ns: self.seconds.len() as u64 * SECOND_NS, ..Second::default() });
        }
        &mut self.seconds[index as usize]
    }
}

/// Nanoseconds from `began` to `ended`; 0 if that is not later.
pub fn nanoseconds(ended: Instant, began: Instant) -> u64 {
    u64::try_from(ended.saturating_duration_since(began).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn workers_add_up_second_by_second() {
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
