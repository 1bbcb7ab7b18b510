//! The engine: does what jobs say, on real files and devices, and measures it.
//!
//! ```text
//! Jobs ──> groups (stonewall), one after the other
//!            each: files laid out and opened ──> workers, all at once ──> what they wrote is read back, if it is verified
//!                                                  │ Source: which operation is next, and when (workload, rates, pauses, end)
//!                                                  │ Ring or threads: do it
//!                                                  └ Tally: latency, seconds, processor time
//!          ──> Lines: workers that count together ──> Outcome
//! ```
//!
//! Words are fio's, and so are meanings: latency is fio's completion latency, from when an operation is given to the
//! kernel until it is seen to be done; a worker's runtime is from the end of its ramp until its last operation is done, `end_fsync`
//! included. Names of streams: see [`lines`].
//!
//! Where it differs, on purpose: operations that are ready at the same time go to the kernel in one system call; who is held up does not
//! make up for it in a burst; a file with holes is laid out; what jobs write is read back in the order of offsets, and that is not
//! counted as reads; and an error of any operation ends the run with it.
//!
//! Memory: `workers x iodepth x bs` for buffers (twice that in a mix), and 1 MiB a worker for histograms.

mod buffers;
mod clock;
mod group;
mod layout;
pub(crate) mod lines;
mod pace;
mod place;
mod source;
mod tally;
#[cfg(test)]
mod tests;
mod threads;
mod transfer;
mod uring;
mod verify;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub use place::Place;

use crate::control::Control;
use crate::job::{Job, Jobs, Method};
use crate::measurement::{CpuTime, Outcome, Tool};
use crate::unit::Unit;
use crate::{LabError, Result};
use clock::Clock;
use group::Done;
use lines::Lines;
use worker::Worker;

/// Does what `jobs` say at `place`. Files that it makes there are left; the caller's [`Scratch`](crate::target::Scratch) removes them.
///
/// # Errors
/// A job makes no sense there, a file can't be made or used, an operation failed, what was read back is wrong; or `control` said stop.
pub fn run(jobs: &Jobs, place: &Place, control: &Control) -> Result<Outcome> {
    run_with(jobs, place, control, true)
}

/// The same, without io_uring unless `rings`.
fn run_with(jobs: &Jobs, place: &Place, control: &Control, rings: bool) -> Result<Outcome> {
    let clock = Clock::start();
    let halt = Halt { control, failed: AtomicBool::new(false) };
    let mut lines = Lines::new(jobs);
    let mut notes = Notes::default();
    let mut cpu = CpuTime::default();
    for group in groups(jobs) {
        let workers = make_ready(&group, place, control)?;
        control.doing(group.iter().map(|(_, job)| job.name.as_str()).collect::<Vec<_>>().join(", "));
        let all_done = group::run(&workers, rings, &halt, clock)?;
        for (worker, done) in workers.iter().zip(all_done) {
            notes.of_worker(worker, &done);
            if worker.job.verify && worker::writes(worker.job) {
                control.doing(format!("{}: reading back", worker.job.name));
                let bytes = verify::read_back(worker, done.issued, &halt)?;
                notes.add(format!(
                    "{}: {} of what was written read back and right",
                    worker.path.display(),
                    Unit::Bytes.show(bytes as f64)
                ));
            }
            for tally in done.tallies {
                cpu.add(tally.cpu());
                lines.add(worker.index, worker.number, tally.into_streams(worker.job));
            }
        }
    }
    Ok(Outcome {
        tool: Tool::cenote(),
        cpu: Some(cpu),
        streams: lines.into_streams(),
        others: Vec::new(),
        notes: notes.0,
    })
}

/// Jobs that run together, with their numbers: a new group begins where one has `stonewall`.
fn groups(jobs: &Jobs) -> Vec<Vec<(usize, &Job)>> {
    let mut groups: Vec<Vec<_>> = Vec::new();
    for (index, job) in jobs.0.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if !job.stonewall => group.push((index, job)),
            _ => groups.push(vec![(index, job)]),
        }
    }
    groups
}

/// The workers of a group, with their files laid out and open.
fn make_ready<'a>(group: &[(usize, &'a Job)], place: &Place, control: &Control) -> Result<Vec<Worker<'a>>> {
    let mut workers: Vec<Worker<'_>> = Vec::new();
    for (index, job) in group {
        if let Some(what) = job.contradiction() {
            return Err(LabError::Refused(format!("job {}: {what}", job.name)));
        }
        for number in 0..job.workers.max(1) {
            let id = workers.len() as u32;
            let worker = Worker::new(job, *index, number, id, place, control)?;
            if let Some(other) = workers.iter().find(|other| other.path == worker.path)
                && (worker.job.verify || other.job.verify)
            {
                return Err(LabError::Refused(format!(
                    "job {}: verify needs a file for each worker, but several use {}",
                    job.name,
                    worker.path.display()
                )));
            }
            workers.push(worker);
        }
    }
    Ok(workers)
}

/// Whether to go on.
#[derive(Debug)]
struct Halt<'a> {
    control: &'a Control,
    /// A worker failed: the others stop.
    failed: AtomicBool,
}

impl Halt<'_> {
    #[inline]
    fn check(&self) -> Result<()> {
        if self.failed.load(Relaxed) { Err(LabError::Interrupted) } else { self.control.check() }
    }
}

/// What a reader must know, each once.
#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, note: String) {
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    fn of_worker(&mut self, worker: &Worker<'_>, done: &Done) {
        let job = worker.job;
        if worker.direct_refused {
            self.add(format!("{}: O_DIRECT refused by the file system: buffered", job.name));
        }
        if let Some(why) = &done.no_ring {
            self.add(format!(
                "{}: no io_uring ({why}): {} threads a worker instead",
                job.name,
                job.queue_depth.max(1)
            ));
        }
        if job.method == Method::Threads && job.queue_depth > 1 {
            self.add(format!(
                "{}: iodepth={} has no effect: one operation at a time a worker (ioengine=io_uring does more)",
                job.name, job.queue_depth
            ));
        }
    }
}
