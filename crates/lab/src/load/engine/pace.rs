//! Pace: start times of operations, by `rate`, `rate_iops` and `thinktime`.
//!
//! Each direction has its own clock, which advances by the time that an operation may take at its rate; an
//! operation waits until due. A late worker catches up by at most [`CREDIT_NS`], so no burst follows a long
//! delay. (fio catches up in full.)
//!
//! In a mix, operations keep their order, so reads wait for writes not yet due, and vice versa: the slower
//! rate decides.

use crate::load::job::Job;
use crate::load::workload::{Kind, Operation};

/// Maximum delay caught up.
const CREDIT_NS: f64 = 10e6;

#[derive(Debug, Clone, Copy)]
struct Rate {
    ns_an_operation: f64,
    ns_a_byte: f64,
    due_ns: f64,
}

#[derive(Debug)]
pub(super) struct Pace {
    read: Option<Rate>,
    write: Option<Rate>,
    think_ns: u64,
    think_blocks: u32,
    /// Reads and writes since the last pause.
    since_pause: u32,
}

impl Pace {
    /// Pace of a worker of `job`; None if unlimited.
    pub fn new(job: &Job) -> Option<Pace> {
        let pace = Pace {
            read: Rate::new(job.rate_iops.read, job.rate_bytes.read),
            write: Rate::new(job.rate_iops.write, job.rate_bytes.write),
            think_ns: job.think_ns,
            think_blocks: job.think_blocks.max(1),
            since_pause: 0,
        };
        (pace.read.is_some() || pace.write.is_some() || pace.think_ns > 0).then_some(pace)
    }

    /// Due time of this operation, if later than `now_ns`; otherwise it counts as started.
    pub fn due(&mut self, operation: &Operation, now_ns: u64) -> Option<u64> {
        let rate = match operation.kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Sync | Kind::Datasync => return None,
        };
        if let Some(rate) = rate {
            if (now_ns as f64) < rate.due_ns {
                return Some(rate.due_ns.ceil() as u64);
            }
            let from_ns = rate.due_ns.max(now_ns as f64 - CREDIT_NS);
            rate.due_ns = from_ns + rate.ns_an_operation.max(rate.ns_a_byte * f64::from(operation.bytes));
        }
        self.since_pause += 1;
        None
    }

    /// Whether a pause is due, once all started operations are complete.
    pub fn wants_pause(&self) -> bool {
        self.think_ns > 0 && self.since_pause >= self.think_blocks
    }

    /// Starts a pause, and returns its length.
    pub fn begin_pause(&mut self) -> u64 {
        self.since_pause = 0;
        self.think_ns
    }
}

impl Rate {
    fn new(iops: Option<u64>, bytes: Option<u64>) -> Option<Rate> {
        let ns = |a_second: Option<u64>| a_second.filter(|&n| n > 0).map_or(0.0, |n| 1e9 / n as f64);
        let rate = Rate { ns_an_operation: ns(iops), ns_a_byte: ns(bytes), due_ns: 0.0 };
        (rate.ns_an_operation > 0.0 || rate.ns_a_byte > 0.0).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;
    use crate::load::job::ReadWrite;

    const READ: Operation = Operation { kind: Kind::Read, offset: 0, bytes: 4096, number: 0 };
    const SECOND_NS: u64 = 1_000_000_000;

    /// Operations started between two times by a worker that asks as early as possible.
    fn begun(pace: &mut Pace, from_ns: u64, until_ns: u64) -> u64 {
        let (mut now_ns, mut count) = (from_ns, 0);
        while now_ns < until_ns {
            match pace.due(&READ, now_ns) {
                Some(due_ns) => now_ns = due_ns,
                None => count += 1,
            }
        }
        count
    }

    #[test]
    fn rates_hold_and_a_stall_is_not_followed_by_a_burst() {
        let iops = ReadWrite { read: Some(1000), write: None };
        let mut pace = Pace::new(&Job { rate_iops: iops, ..Job::default() }).unwrap();
        let first = begun(&mut pace, 0, SECOND_NS);
        assert!((999..=1001).contains(&first), "{first}");
        let stalled = begun(&mut pace, 3 * SECOND_NS, 4 * SECOND_NS);
        assert!((1000..=1012).contains(&stalled), "{stalled}: catches up 10 ms, not two seconds");
        let bytes = ReadWrite { read: Some(40960), write: None };
        let mut pace = Pace::new(&Job { rate_bytes: bytes, ..Job::default() }).unwrap();
        assert!((99..=101).contains(&begun(&mut pace, 0, 10 * SECOND_NS)));
    }

    #[test]
    fn a_pause_follows_each_number_of_operations() {
        let mut pace = Pace::new(&Job { think_ns: 7, think_blocks: 3, ..Job::default() }).unwrap();
        let mut pauses = Vec::new();
        for number in 1..=7 {
            assert_eq!(pace.due(&READ, 0), None);
            if pace.wants_pause() {
                pauses.push((number, pace.begin_pause()));
            }
        }
        assert_eq!(pauses, [(3, 7), (6, 7)]);
        assert!(Pace::new(&Job::default()).is_none());
    }
}
