//! Notes operations of one kind as they complete, and makes a [`Stream`] of them.
//!
//! Each worker has its own, so that recording takes no lock and touches few cache lines: a histogram bucket, the present second, four
//! totals. Their streams are added up at the end ([`Stream::add`]). All times are nanoseconds since one moment that the workers share: the measurement's
//! beginning.
//!
//! ```text
//!   0            begins                                              ended
//!   |--- ramp ---|----- second -----|----- second -----|--- rest ---|
//!    not counted   at_ns = begins     at_ns = begins + 1 s
//! ```

use super::{Latency, Second, Stream};

const SECOND_NS: u64 = 1_000_000_000;
/// What is left of the last second is counted with the one before if it is as short as this: workers let their last operations complete
/// after the end of the time, which would look like a drop.
const SHORT_REST_NS: u64 = SECOND_NS / 20;

/// What completed so far.
#[derive(Debug, Clone)]
pub struct Recorder {
    begins_ns: u64,
    operations: u64,
    bytes: u64,
    errors: u64,
    latency: Latency,
    /// All but the present one.
    seconds: Vec<Second>,
    present: Second,
    present_ends_ns: u64,
}

impl Recorder {
    /// Counts what completes at `begins_ns` or later.
    pub fn new(begins_ns: u64) -> Recorder {
        Recorder {
            begins_ns,
            operations: 0,
            bytes: 0,
            errors: 0,
            latency: Latency::default(),
            seconds: Vec::new(),
            present: Second { at_ns: begins_ns, ..Second::default() },
            present_ends_ns: begins_ns + SECOND_NS,
        }
    }

    /// Notes an operation that began and completed at these times; completions come in order of time, or nearly.
    #[inline]
    pub fn record(&mut self, bytes: u64, began_ns: u64, completed_ns: u64) {
        if completed_ns < self.begins_ns {
            return;
        }
        while completed_ns >= self.present_ends_ns {
            self.next_second();
        }
        let latency_ns = completed_ns.saturating_sub(began_ns);
        self.operations += 1;
        self.bytes += bytes;
        self.latency.record(latency_ns);
        self.present.operations += 1;
        self.present.bytes += bytes;
        self.present.latency_sum_ns += latency_ns;
        self.present.latency_max_ns = self.present.latency_max_ns.max(latency_ns);
    }

    /// Notes an operation that failed: it has no latency.
    pub fn record_error(&mut self) {
        self.errors += 1;
    }

    /// How many were completed.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The stream of all that was recorded, which ended at `ended_ns`.
    pub fn into_stream(mut self, operation: impl Into<String>, ended_ns: u64) -> Stream {
        let short = ended_ns.saturating_sub(self.present.at_ns) <= SHORT_REST_NS;
        match self.seconds.last_mut() {
            Some(last) if short => last.add(&self.present),
            _ => self.seconds.push(self.present),
        }
        Stream {
            operation: operation.into(),
            operations: self.operations,
            bytes: self.bytes,
            runtime_ns: ended_ns.saturating_sub(self.begins_ns),
            errors: self.errors,
            latency: self.latency,
            seconds: self.seconds,
        }
    }

    #[cold]
    fn next_second(&mut self) {
        let next = Second { at_ns: self.present_ends_ns, ..Second::default() };
        self.seconds.push(std::mem::replace(&mut self.present, next));
        self.present_ends_ns += SECOND_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINS: u64 = 5 * SECOND_NS;

    #[test]
    fn only_what_completes_after_the_ramp_counts_and_idle_seconds_are_seen() {
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
    fn streams_add_up_to_what_recording_all_in_one_gives() {
        let (mut one, mut other, mut all) =
            (Recorder::new(BEGINS), Recorder::new(BEGINS), Recorder::new(BEGINS));
        for i in 0..40 {
            let (began, completed) = (BEGINS + i * 100_000_000, BEGINS + i * 100_000_000 + i);
            all.record(i, began, completed);
            if i % 3 == 0 || i > 30 { &mut other } else { &mut one }.record(i, began, completed);
        }
        let ended = BEGINS + 4 * SECOND_NS;
        let mut sum = one.into_stream("write", BEGINS + 3 * SECOND_NS);
        sum.add(&other.into_stream("write", ended));
        assert_eq!(sum, all.into_stream("write", ended));
    }

    #[test]
    fn a_short_rest_is_no_second() {
        let mut recorder = Recorder::new(0);
        recorder.record(1, 0, 10);
        recorder.record(1, 0, SECOND_NS + 10);
        let stream = recorder.into_stream("read", SECOND_NS + 20);
        assert_eq!(stream.seconds.len(), 1);
        assert_eq!(stream.seconds[0].operations, 2);
    }
}
