//! A worker's next operation and its start time: operations from the [`Workload`], held back by rates, pauses
//! and the time limit.
//!
//! ```text
//! workload ──> held? ──> [verify: overlaps one in flight] ──> [pace: not due yet] ──> Issue
//!                                  Drain                             Until
//! ```
//!
//! Verified data carry the number of the write that left them. In a job that verifies, an operation waits for
//! any overlapping one in flight, so that the last write started is the last to land.

use std::ops::Range;

use super::pace::Pace;
use crate::Result;
use crate::load::job::Job;
use crate::load::workload::buffer::Filler;
use crate::load::workload::{Kind, Operation, Workload};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Issue(Operation),
    /// Nothing before this time; then ask again.
    Until(u64),
    /// Nothing before an operation completes; then ask again.
    Drain,
    End,
}

#[derive(Debug)]
pub(super) struct Source {
    workload: Workload,
    filler: Filler,
    pace: Option<Pace>,
    begins_ns: u64,
    ends_ns: u64,
    paused_until_ns: u64,
    /// Taken from the workload, not yet issued.
    held: Option<Operation>,
    in_flight: u32,
    /// Operations in flight, if the job verifies.
    busy: Option<Vec<Operation>>,
    issued: u64,
}

impl Source {
    /// Source of worker `id` (unique among those that run together), without time limits.
    ///
    /// # Errors
    /// The job is invalid on this region.
    pub fn new(job: &Job, id: u32, region: Range<u64>) -> Result<Source> {
        Ok(Source {
            workload: Workload::new(job, id, region)?,
            filler: Filler::new(job, id)?,
            pace: Pace::new(job),
            begins_ns: 0,
            ends_ns: u64::MAX,
            paused_until_ns: 0,
            held: None,
            in_flight: 0,
            busy: job.verify.then(Vec::new),
            issued: 0,
        })
    }

    /// Sets the times between which operations are issued.
    pub fn limit(&mut self, begins_ns: u64, ends_ns: u64) {
        (self.begins_ns, self.ends_ns) = (begins_ns, ends_ns);
    }

    /// Next step at `now_ns`. An issued operation must later be reported [`completed`](Self::completed).
    #[inline]
    pub fn next(&mut self, now_ns: u64) -> Next {
        if now_ns >= self.ends_ns {
            return Next::End;
        }
        if now_ns < self.begins_ns {
            return Next::Until(self.begins_ns);
        }
        let Some(operation) = self.held.take().or_else(|| self.workload.next()) else {
            return Next::End;
        };
        if let Some(wait) = self.hindrance(&operation, now_ns) {
            self.held = Some(operation);
            return wait;
        }
        if matches!(operation.kind, Kind::Read | Kind::Write) {
            self.issued = operation.number + 1;
        }
        self.in_flight += 1;
        Next::Issue(operation)
    }

    #[inline]
    pub fn completed(&mut self, operation: &Operation) {
        self.in_flight -= 1;
        if let Some(busy) = &mut self.busy
            && let Some(at) = busy.iter().position(|other| other == operation)
        {
            busy.swap_remove(at);
        }
    }

    pub fn filler(&mut self) -> &mut Filler {
        &mut self.filler
    }

    pub fn issued(&self) -> u64 {
        self.issued
    }

    #[inline]
    fn hindrance(&mut self, operation: &Operation, now_ns: u64) -> Option<Next> {
        if let Some(pace) = &mut self.pace {
            if pace.wants_pause() {
                if self.in_flight > 0 {
                    return Some(Next::Drain);
                }
                self.paused_until_ns = now_ns + pace.begin_pause();
            }
            if now_ns < self.paused_until_ns {
                return Some(Next::Until(self.paused_until_ns.min(self.ends_ns)));
            }
        }
        if let Some(busy) = &self.busy
            && busy.iter().any(|other| overlap(other, operation))
        {
            return Some(Next::Drain);
        }
        if let Some(pace) = &mut self.pace
            && let Some(due_ns) = pace.due(operation, now_ns)
        {
            return Some(Next::Until(due_ns.min(self.ends_ns)));
        }
        if let Some(busy) = &mut self.busy {
            busy.push(*operation);
        }
        None
    }
}

fn overlap(one: &Operation, other: &Operation) -> bool {
    let end = |operation: &Operation| operation.offset + u64::from(operation.bytes);
    one.offset < end(other) && other.offset < end(one)
}
