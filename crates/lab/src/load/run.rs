//! Executes a plan and records its results.
//!
//! Repeats are the outer loop, then tests, then targets, so that drift (temperature, fill, neighbours)
//! affects all targets alike. With `together`, the targets run each test at the same time. Each measurement
//! is on disk with its samples before the next starts; a resumed run skips those that exist.
//!
//! A test that fails on a target is recorded with its error, and the others continue; only an interrupt ends
//! the run.

mod eta;

use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::load::control::Control;
use crate::load::engine::{self, WorkFiles};
use crate::load::fio;
use crate::load::machine::Machine;
use crate::load::measurement::{Measurement, Outcome};
use crate::load::result::{Failure, Recorder};
use crate::load::sample::{Sampler, Scope};
use crate::load::suite::{Test, Work};
use crate::load::target::{Scratch, Target, TargetKind};
use crate::{LabError, Result};
use eta::Eta;

const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Progress of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A test starts.
    Begins {
        /// Number of the measurement, from 1.
        number: usize,
        /// Number of all measurements.
        of: usize,
        /// Test to run.
        test: &'a Test,
        /// Target of the test.
        target: &'a Target,
        /// Repeat, from 1.
        repeat: u32,
        /// Estimated time for all remaining measurements, this one included.
        left: Option<Duration>,
    },
    /// The test produced a measurement.
    Done(&'a Measurement),
    /// The test failed.
    Failed(&'a Failure),
}

#[derive(Debug, Clone, Copy)]
struct Step<'a> {
    number: usize,
    test: &'a Test,
    place: &'a Placed<'a>,
    repeat: u32,
}

/// A target, with the lab's folder if it is a folder.
#[derive(Debug)]
struct Placed<'a> {
    target: &'a Target,
    scratch: OnceLock<Scratch>,
    /// Sampled pools, devices and interfaces.
    scope: Scope,
}

/// Runs all planned measurements not yet done, on all targets.
///
/// # Errors
/// Interrupted; a target cannot hold files; the result cannot be written.
pub fn run(recorder: &mut Recorder, control: &Control, tell: &(dyn Fn(Event<'_>) + Sync)) -> Result<()> {
    let (plan, targets) = (recorder.plan().clone(), recorder.targets().to_vec());
    let placed: Vec<_> = targets.iter().map(Placed::new).collect();
    let mut steps = Vec::new();
    for repeat in 1..=plan.repeats {
        for test in &plan.tests {
            for place in &placed {
                steps.push(Step { number: steps.len() + 1, test, place, repeat });
            }
        }
    }
    let lists = recorder.path().to_owned();
    let runner = &Runner {
        recorder: Mutex::new(recorder),
        control,
        tell,
        of: steps.len(),
        eta: Mutex::default(),
        real: plan.options.real,
        lists,
    };
    let at_once = if plan.options.together { placed.len() } else { 1 };
    for (number, group) in steps.chunks(at_once).enumerate() {
        control.check()?;
        let left = runner.left(&steps[number * at_once..], at_once);
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                group.iter().map(|step| scope.spawn(move || runner.step(*step, left))).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
    }
    Ok(())
}

struct Runner<'a> {
    recorder: Mutex<&'a mut Recorder>,
    control: &'a Control,
    tell: &'a (dyn Fn(Event<'_>) + Sync),
    of: usize,
    eta: Mutex<Eta>,
    /// The real programs do the work.
    real: bool,
    /// Folder of temporary lists of files, outside the folders scanned.
    lists: PathBuf,
}

impl<'a> Runner<'a> {
    fn recorder(&self) -> std::sync::MutexGuard<'_, &'a mut Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Estimated time of these steps, with `at_once` in parallel.
    fn left(&self, steps: &[Step<'_>], at_once: usize) -> Option<Duration> {
        let recorder = self.recorder();
        let is_left =
            |step: &&Step<'_>| !recorder.done(&step.test.name, &step.place.target.name, step.repeat);
        let tests = steps.iter().step_by(at_once).filter(is_left).map(|step| step.test);
        self.eta.lock().unwrap_or_else(PoisonError::into_inner).of(tests)
    }

    fn step(&self, step: Step<'_>, left: Option<Duration>) -> Result<()> {
        let Step { number, test, place, repeat } = step;
        let target = place.target;
        if self.recorder().done(&test.name, &target.name, repeat) {
            return Ok(());
        }
        (self.tell)(Event::Begins { number, of: self.of, test, target, repeat, left });
        self.control.doing(format!("{} {}", target.name, test.name));
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sampler = Sampler::start(&place.scope, SAMPLE_EVERY);
        let outcome = place.perform(self, &test.work);
        let samples = sampler.stop();
        let elapsed =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(started);
        self.eta.lock().unwrap_or_else(PoisonError::into_inner).took(test, elapsed);
        let failed = |error: &LabError| Failure {
            test: test.name.clone(),
            target: target.name.clone(),
            repeat,
            error: error.to_string(),
        };
        match outcome {
            Ok(outcome) => {
                let measurement = Measurement {
                    test: test.name.clone(),
                    target: target.name.clone(),
                    repeat,
                    started_unix_ns: started.as_nanos() as u64,
                    elapsed_ns: elapsed.as_nanos() as u64,
                    outcome,
                };
                (self.tell)(Event::Done(&measurement));
                let added = self.recorder().add(measurement, samples);
                if let Err(error) = added {
                    // Most likely the disk is full; the reserve still has space to record the failure.
                    self.recorder().fail(failed(&error))?;
                    return Err(error);
                }
            }
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => {
                let failure = failed(&error);
                (self.tell)(Event::Failed(&failure));
                self.recorder().fail(failure)?;
            }
        }
        Ok(())
    }
}

impl<'a> Placed<'a> {
    fn new(target: &'a Target) -> Placed<'a> {
        let scope = Scope::of(&Machine::describe(slice::from_ref(target)));
        Placed { target, scratch: OnceLock::new(), scope }
    }

    /// The lab's folder in the target, created on first use: a scan of existing files writes nothing.
    fn scratch(&self) -> Result<&Path> {
        if let Some(scratch) = self.scratch.get() {
            return Ok(scratch.path());
        }
        // Only one step at a time works on a target, so the folder cannot appear meanwhile.
        let made = self.target.scratch()?;
        Ok(self.scratch.get_or_init(|| made).path())
    }

    fn perform(&self, runner: &Runner<'_>, work: &Work) -> Result<Outcome> {
        let control = runner.control;
        match work {
            Work::Io(jobs) => {
                let place = match self.target.kind {
                    TargetKind::Folder => WorkFiles::Folder(self.scratch()?.to_owned()),
                    TargetKind::File | TargetKind::Device => WorkFiles::File(self.target.path.clone()),
                };
                if runner.real { fio::run(jobs, &place, control) } else { engine::run(jobs, &place, control) }
            }
            Work::Tree(tree) => tree.run(self.scratch()?, control),
            Work::Bonnie(bonnie) => bonnie.run(self.scratch()?, control),
            Work::Recovery(recovery) => recovery.run(self.scratch()?, control),
            Work::Scan(scan) => {
                let scratch = scan.tree.is_some().then(|| self.scratch()).transpose()?;
                scan.run(&self.target.path, scratch, &runner.lists, control)
            }
        }
    }
}
