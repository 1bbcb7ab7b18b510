//! Workers that run together: they are prepared, start at the same moment, and are joined.
//! ```text
//! run            make the start gate ──> all ready? ──> open it ──> progress ... ──> join
//! each worker    source, ring, buffers ──> (drop sender: ready) ──> gate ──> work ──> (drop sender: done)
//! ```
//! Workers report by dropping a sender, so that one that panics also reports.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::{ScopedJoinHandle, scope};
use std::time::Duration;

use super::clock::Clock;
use super::halt::Halt;
use super::source::Source;
use super::tally::Tally;
use super::threads;
use super::uring::Ring;
use super::worker::Worker;
use crate::load::job::{Job, Method};
use crate::{LabError, Result};

/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Done {
    /// One per thread.
    pub tallies: Vec<Tally>,
    /// Reads and writes issued.
    pub issued: u64,
    /// Reason for working without io_uring, if denied.
    pub no_ring: Option<std::io::Error>,
}

/// Runs all workers at once. With `rings`, workers whose jobs want io_uring get it.
///
/// # Errors
/// The first error of a worker, which stops the others; or the run was stopped.
pub(super) fn run(workers: &[Worker<'_>], rings: bool, halt: &Halt<'_>, clock: Clock) -> Result<Vec<Done>> {
    let gate = RwLock::new(0);
    scope(|scope| {
        let mut closed = gate.write().unwrap_or_else(PoisonError::into_inner);
        let (ready, all_ready) = channel::<()>();
        let (running, all_done) = channel::<()>();
        let start = |worker| {
            let (ready, running, gate) = (ready.clone(), running.clone(), &gate);
            scope.spawn(move || {
                let _running = running;
                let outcome = work(worker, rings, ready, gate, halt, clock);
                if outcome.is_err() {
                    halt.fail();
                }
                outcome
            })
        };
        let handles: Vec<_> = workers.iter().map(start).collect();
        drop((ready, running));
        while all_ready.recv().is_ok() {}
        *closed = clock.now_ns();
        drop(closed);
        let progress = Progress::new(workers, halt, clock);
        while all_done.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
            progress.tell(halt, clock);
        }
        join(handles)
    })
}

/// All results; or the error that ended the run, rather than the stops it caused.
fn join(handles: Vec<ScopedJoinHandle<'_, Result<Done>>>) -> Result<Vec<Done>> {
    let outcomes = handles
        .into_iter()
        .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    let (done, mut errors): (Vec<_>, Vec<_>) = outcomes.partition(Result::is_ok);
    errors.sort_by_key(|error| matches!(error, Err(LabError::Interrupted)));
    match errors.into_iter().next() {
        Some(error) => error.map(|_| Vec::new()),
        None => done.into_iter().collect(),
    }
}

/// One worker, in its own thread, from start to end.
fn work(
    worker: &Worker<'_>,
    rings: bool,
    ready: Sender<()>,
    gate: &RwLock<u64>,
    halt: &Halt<'_>,
    clock: Clock,
) -> Result<Done> {
    let job = worker.job;
    let mut source = Source::new(job, worker.id, worker.region.clone())?;
    let ring = match (job.method, rings) {
        (Method::IoUring, true) => Some(Ring::new(worker)),
        (Method::IoUring, false) => Some(Err(std::io::ErrorKind::Unsupported.into())),
        (Method::Threads, _) => None,
    };
    drop(ready);
    let begins_ns = *gate.read().unwrap_or_else(PoisonError::into_inner) + job.start_delay_ns;
    let counts_ns = begins_ns + job.ramp_ns;
    source.limit(begins_ns, job.runtime_ns.map_or(u64::MAX, |runtime_ns| counts_ns + runtime_ns));
    let mut tally = Tally::new(counts_ns);
    let (tallies, issued, no_ring) = match ring {
        Some(Ok(ring)) => {
            ring.run(worker, &mut source, &mut tally, halt, clock)?;
            finish(worker, &mut tally, halt, clock)?;
            (vec![tally], source.issued(), None)
        }
        no_ring => {
            let no_ring = no_ring.and_then(std::result::Result::err);
            let count = if no_ring.is_some() { job.queue_depth.max(1) } else { 1 };
            let source = Mutex::new(source);
            let tallies = by_threads(worker, count, &source, tally, halt, clock)?;
            (tallies, source.into_inner().unwrap_or_else(PoisonError::into_inner).issued(), no_ring)
        }
    };
    Ok(Done { tallies, issued, no_ring })
}

/// Runs the worker's operations on `count` threads: this one, plus others if needed.
fn by_threads(
    worker: &Worker<'_>,
    count: u32,
    source: &Mutex<Source>,
    mut tally: Tally,
    halt: &Halt<'_>,
    clock: Clock,
) -> Result<Vec<Tally>> {
    scope(|scope| {
        let more = |_| {
            let mut tally = tally.clone();
            scope.spawn(move || {
                threads::run(worker, source, &mut tally, halt, clock)?;
                tally.end(halt, clock);
                Ok(tally)
            })
        };
        let others: Vec<_> = (1..count).map(more).collect();
        threads::run(worker, source, &mut tally, halt, clock)?;
        let others = others
            .into_iter()
            .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let mut tallies = others.collect::<Result<Vec<_>>>()?;
        finish(worker, &mut tally, halt, clock)?;
        tallies.push(tally);
        Ok(tallies)
    })
}

fn finish(worker: &Worker<'_>, tally: &mut Tally, halt: &Halt<'_>, clock: Clock) -> Result<()> {
    if worker.job.end_fsync {
        let operation = crate::load::workload::Operation {
            kind: crate::load::workload::Kind::Sync,
            offset: 0,
            bytes: 0,
            number: 0,
        };
        let began_ns = clock.now_ns();
        worker.file.sync_all().map_err(|e| worker.failed(&operation, e))?;
        tally.record(&operation, began_ns, clock.now_ns());
    }
    tally.end(halt, clock);
    Ok(())
}

/// Progress of the whole group: by time if every job has a time limit, otherwise by bytes.
struct Progress {
    began_ns: u64,
    whole_ns: Option<u64>,
    began_bytes: u64,
    whole_bytes: u64,
}

impl Progress {
    fn new(workers: &[Worker<'_>], halt: &Halt<'_>, clock: Clock) -> Progress {
        let ns = |job: &Job| job.runtime_ns.map(|runtime_ns| job.start_delay_ns + job.ramp_ns + runtime_ns);
        let bytes =
            |worker: &Worker<'_>| worker.job.io_size_bytes.unwrap_or(worker.region.end - worker.region.start);
        Progress {
            began_ns: clock.now_ns(),
            whole_ns: workers
                .iter()
                .map(|worker| ns(worker.job))
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max()),
            began_bytes: halt.control.seen().bytes,
            whole_bytes: workers.iter().map(bytes).sum(),
        }
    }

    fn tell(&self, halt: &Halt<'_>, clock: Clock) {
        match self.whole_ns {
            Some(whole_ns) => halt.control.done(clock.now_ns() - self.began_ns, whole_ns),
            None => halt.control.done(halt.control.seen().bytes - self.began_bytes, self.whole_bytes),
        }
    }
}
