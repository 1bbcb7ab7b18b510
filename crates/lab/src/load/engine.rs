//! The lab's load generator: runs jobs on real files and devices, and measures them.
//!
//! ```text
//! Jobs ──> groups (stonewall), in order
//!            each: files laid out and opened ──> workers, all at once ──> verified jobs: read back
//!                                                  │ Source: the next operation, and its time
//!                                                  │ Ring or threads: run it
//!                                                  └ Tally: latency, seconds, processor time
//!          ──> Lines: workers that report together ──> Outcome
//! ```
//!
//! Terms are fio's. Latency is fio's completion latency: from handing an operation to the kernel until its
//! completion is seen. A worker's runtime lasts from the end of its ramp to the completion of its last
//! operation, `end_fsync` included. For names of streams see [`lines`].
//!
//! Deliberate differences from fio: operations ready together go to the kernel in one system call; a delayed
//! worker does not catch up in a burst; a file with holes is laid out; written data are verified in offset
//! order, and not counted as reads; and any failed operation ends the run with its error.
//!
//! Memory: `workers x iodepth x bs` for buffers (twice that in a mix), and 1 MiB per worker for histograms.

mod buffers;
mod clock;
mod group;
mod halt;
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

pub use place::WorkFiles;

use crate::load::control::Control;
use crate::load::job::{Job, Jobs, Method};
use crate::load::measurement::{CpuTime, Outcome, Tool};
use crate::unit::Unit;
use crate::{LabError, Result};
use clock::Clock;
use group::Done;
use halt::Halt;
use lines::Lines;
use worker::Worker;

/// Runs `jobs` at `place`. Files created there remain; the caller's
/// [`Scratch`](crate::load::target::Scratch) removes them.
///
/// # Errors
/// A job is invalid there, a file cannot be created or used, an operation failed, verification failed, or
/// `control` requested a stop.
pub fn run(jobs: &Jobs, place: &WorkFiles, control: &Control) -> Result<Outcome> {
    run_with(jobs, place, control, true)
}

/// As [`run`], with io_uring only if `rings` is set.
fn run_with(jobs: &Jobs, place: &WorkFiles, control: &Control, rings: bool) -> Result<Outcome> {
    let clock = Clock::start();
    let halt = Halt::new(control);
    let mut lines = Lines::new(jobs);
    let mut notes = Notes::default();
    let mut cpu = CpuTime::default();
    for group in groups(jobs) {
        let workers = make_ready(&group, place, control)?;
        control.doing(group.iter().map(|(_, job)| job.name.as_str()).collect::<Vec<_>>().join(", "));
        let all_done = group::run(&workers, rings, &halt, clock)?;
        for (worker, done) in workers.iter().zip(all_done) {
            notes.of_worker(worker, &done);
            if worker.job.verify && worker.job.writes() {
                control.doing(format!("{}: reading back", worker.job.name));
                let bytes = verify::read_back(worker, done.issued, &halt)?;
                notes.add(format!(
                    "{}: {} of written data read back and verified",
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

/// Jobs that run together, with their indexes: a job with `stonewall` starts a new group.
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

fn make_ready<'a>(
    group: &[(usize, &'a Job)],
    place: &WorkFiles,
    control: &Control,
) -> Result<Vec<Worker<'a>>> {
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
            self.add(format!("{}: the file system refused O_DIRECT, so I/O is buffered", job.name));
        }
        if let Some(why) = &done.no_ring {
            self.add(format!(
                "{}: no io_uring ({why}): {} threads per worker instead",
                job.name,
                job.queue_depth.max(1)
            ));
        }
        if job.method == Method::Threads && job.queue_depth > 1 {
            self.add(format!(
                "{}: iodepth={} has no effect: each worker runs one operation at a time (ioengine=io_uring \
                 allows more)",
                job.name, job.queue_depth
            ));
        }
    }
}
