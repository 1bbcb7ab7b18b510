//! One worker's measurements: a recorder for each kind of operation, its processor time, and its progress
//! reports.

use super::clock::Clock;
use super::halt::Halt;
use crate::load::job::Job;
use crate::load::measurement::{CpuTime, Recorder, Stream};
use crate::load::workload::{Kind, Operation};

/// Interval of progress reports and of readings of processor time.
const TICK_NS: u64 = 50_000_000;

#[derive(Debug, Clone)]
pub(super) struct Tally {
    read: Recorder,
    write: Recorder,
    sync: Recorder,
    begins_ns: u64,
    /// Time at which the last operation completed, or the worker ended.
    ended_ns: u64,
    /// Processor time at the start of counting; after the end, the time used while counting.
    cpu: Option<CpuTime>,
    next_tick_ns: u64,
    /// Not yet reported.
    operations: u64,
    bytes: u64,
}

impl Tally {
    pub fn new(begins_ns: u64) -> Tally {
        Tally {
            read: Recorder::new(begins_ns),
            write: Recorder::new(begins_ns),
            sync: Recorder::new(begins_ns),
            begins_ns,
            ended_ns: begins_ns,
            cpu: None,
            next_tick_ns: 0,
            operations: 0,
            bytes: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, operation: &Operation, began_ns: u64, completed_ns: u64) {
        let recorder = match operation.kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Sync | Kind::Datasync => &mut self.sync,
        };
        let bytes = u64::from(operation.bytes);
        recorder.record(bytes, began_ns, completed_ns);
        self.operations += 1;
        self.bytes += bytes;
    }

    /// Periodic work, called by the worker between operations.
    ///
    /// # Errors
    /// The run was stopped.
    #[inline]
    pub fn tick(&mut self, halt: &Halt, now_ns: u64) -> crate::Result<()> {
        halt.check()?;
        if now_ns >= self.next_tick_ns {
            self.slow_tick(halt, now_ns);
        }
        Ok(())
    }

    #[cold]
    fn slow_tick(&mut self, halt: &Halt, now_ns: u64) {
        halt.control.count(std::mem::take(&mut self.operations), std::mem::take(&mut self.bytes));
        self.next_tick_ns = now_ns + TICK_NS;
        if now_ns < self.begins_ns {
            self.next_tick_ns = self.next_tick_ns.min(self.begins_ns);
        } else if self.cpu.is_none() {
            self.cpu = Some(CpuTime::of_thread());
        }
    }

    /// Ends counting; must be called in the worker's own thread.
    pub fn end(&mut self, halt: &Halt, clock: Clock) {
        self.ended_ns = clock.now_ns().max(self.begins_ns);
        self.slow_tick(halt, self.ended_ns);
        self.cpu = self.cpu.map(|before| CpuTime::of_thread().since(before));
    }

    /// Processor time used while counting.
    pub fn cpu(&self) -> CpuTime {
        self.cpu.unwrap_or_default()
    }

    /// Reads and writes if the job does any, syncs if any happened.
    pub fn into_streams(self, job: &Job) -> Vec<Stream> {
        let percent = job.pattern.read_percent;
        let all = [
            ("read", self.read, percent > 0),
            ("write", self.write, percent < 100),
            ("sync", self.sync, false),
        ];
        let wanted = all.into_iter().filter(|(_, recorder, always)| *always || recorder.operations() > 0);
        wanted.map(|(name, recorder, _)| recorder.into_stream(name, self.ended_ns)).collect()
    }
}
