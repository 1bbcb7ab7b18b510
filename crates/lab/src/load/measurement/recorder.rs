//! Records operations of one kind as they complete, and turns them into a [`Stream`].
//!
//! Each worker has its own recorder, without locks, on few cache lines: a histogram bucket, the current
//! second, four totals. Recorders, or their streams, are summed at the end. Times are nanoseconds since the
//! measurement's start, the same for all workers.
//!
//! ```text
//!   0            begins                                              ended
//!   |--- ramp ---|----- second -----|----- second -----|--- rest ---|
//!    not counted   at_ns = begins     at_ns = begins + 1 s
//! ```

use super::{Latency, Second, Stream};

const SECOND_NS: u64 = 1_000_000_000;
/// A remainder of the last second up to this counts with the previous one: workers complete their last
/// operations after the time limit, which would look like a drop.
const SHORT_REST_NS: u64 = SECOND_NS / 20;

/// Operations completed so far.
#[derive(Debug, Clone)]
pub struct Recorder {
    begins_ns: u64,
    /// Stream so far; its last second is the current one.
    stream: Stream,
    present_ends_ns: u64,
}

impl Recorder {
    /// Counts operations completed at `begins_ns` or later.
    pub fn new(begins_ns: u64) -> Recorder {
        let stream = Stream {
            operation: String::new(),
            operations: 0,
            bytes: 0,
            runtime_ns: 0,
            errors: 0,
            latency: Latency::default(),
            seconds: vec![Second { at_ns: begins_ns, ..Second::default() }],
        };
        Recorder { begins_ns, stream, present_ends_ns: begins_ns + SECOND_NS }
    }

    /// Records an operation with its start and completion times. Completions must arrive in time order, or
    /// nearly so.
    #[inline]
    pub fn record(&mut self, bytes: u64, began_ns: u64, completed_ns: u64) {
        if completed_ns < self.begins_ns {
            return;
        }
        let latency_ns = completed_ns.saturating_sub(began_ns);
        self.stream.latency.record(latency_ns);
        self.count(1, bytes, completed_ns, latency_ns);
    }

    /// Records operations completed at that time with unknown latencies.
    pub fn record_many(&mut self, operations: u64, bytes: u64, completed_ns: u64) {
        if completed_ns >= self.begins_ns {
            self.count(operations, bytes, completed_ns, 0);
        }
    }

    /// Records a failed operation, which has no latency.
    pub fn record_error(&mut self) {
        self.stream.errors += 1;
    }

    /// Number of completed operations.
    pub fn operations(&self) -> u64 {
        self.stream.operations
    }

    /// Adds another worker's operations; it must have started at the same time.
    pub fn add(&mut self, other: &Recorder) {
        self.stream.add(&other.stream);
        self.present_ends_ns = self.present_ends_ns.max(other.present_ends_ns);
    }

    /// Stream of everything recorded, ending at `ended_ns`.
    pub fn into_stream(self, operation: impl Into<String>, ended_ns: u64) -> Stream {
        let runtime_ns = ended_ns.saturating_sub(self.begins_ns);
        let mut stream = Stream { operation: operation.into(), runtime_ns, ..self.stream };
        let rest_ns = ended_ns.saturating_sub(self.present_ends_ns - SECOND_NS);
        if rest_ns <= SHORT_REST_NS
            && stream.seconds.len() > 1
            && let (Some(rest), Some(last)) = (stream.seconds.pop(), stream.seconds.last_mut())
        {
            last.add(&rest);
        }
        stream
    }

    #[inline]
    fn count(&mut self, operations: u64, bytes: u64, completed_ns: u64, latency_ns: u64) {
        while completed_ns >= self.present_ends_ns {
            self.next_second();
        }
        self.stream.operations += operations;
        self.stream.bytes += bytes;
        if let Some(present) = self.stream.seconds.last_mut() {
            present.operations += operations;
            present.bytes += bytes;
            present.latency_sum_ns += latency_ns;
            present.latency_max_ns = present.latency_max_ns.max(latency_ns);
        }
    }

    #[cold]
    fn next_second(&mut self) {
        self.stream.seconds.push(Second { at_ns: self.present_ends_ns, ..Second::default() });
        self.present_ends_ns += SECOND_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINS: u64 = 5 * SECOND_NS;

    #[test]
    fn only_operations_after_the_ramp_count_and_idle_seconds_are_seen() {
        let mut recorder = Recorder::new(BEGINS);
        recorder.record(1, BEGINS - 10, BEGINS - 1);
        recorder.record(2, BEGINS - 10, BEGINS);
        recorder.record(4, BEGINS, BEGINS + 2 * SECOND_NS + 7);
        let stream = recorder.into_stream("read", BEGINS + 2 * SECOND_NS + SECOND_NS / 2);
        assert_eq!((stream.operations, stream.bytes, stream.runtime_ns), (2, 6, 5 * SECOND_NS / 2));
        let seconds: Vec<_> = stream.seconds.iter().map(|s| (s.at_ns, s.operations)).collect();
        assert_eq!(seconds, [(BEGINS, 1), (BEGINS + SECOND_NS, 0), (BEGINS + 2 * SECOND_NS, 1)]);
    }

    #[test]
    fn adding_recorders_or_streams_equals_one_recording() {
        let (mut one, mut other, mut all) =
            (Recorder::new(BEGINS), Recorder::new(BEGINS), Recorder::new(BEGINS));
        for i in 0..40 {
            let (began, completed) = (BEGINS + i * 100_000_000, BEGINS + i * 100_000_000 + i);
            all.record(i, began, completed);
            if i % 3 == 0 || i > 30 { &mut other } else { &mut one }.record(i, began, completed);
        }
        let ended = BEGINS + 4 * SECOND_NS;
        let mut sum = one.clone().into_stream("write", BEGINS + 3 * SECOND_NS);
        sum.add(&other.clone().into_stream("write", ended));
        one.add(&other);
        assert_eq!(one.into_stream("write", ended), sum);
        assert_eq!(sum, all.into_stream("write", ended));
    }

    #[test]
    fn a_short_remainder_is_not_a_second() {
        let mut recorder = Recorder::new(0);
        recorder.record(1, 0, 10);
        recorder.record(1, 0, SECOND_NS + 10);
        let stream = recorder.into_stream("read", SECOND_NS + 20);
        assert_eq!(stream.seconds.len(), 1);
        assert_eq!(stream.seconds[0].operations, 2);
    }
}
