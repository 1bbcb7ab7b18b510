//! Does what a plan says, and keeps what comes of it.
//!
//! Order: repeats outside, then tests, then targets: what drifts (temperature, fill, neighbours) meets all targets alike. With `together`
//! the targets do each test at once. Each measurement is on disk, with what was sampled beside it, before the next begins; those that a
//! result has already are not done again, which is all there is to resuming.
//!
//! A test that fails on a target is noted with its reason, and the others go on; only an interrupt ends the run.

use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::control::Control;
use crate::engine::{self, Place};
use crate::fio;
use crate::machine::Machine;
use crate::measurement::{Measurement, Outcome};
use crate::result::{Failure, Recorder};
use crate::sample::{Sampler, Scope};
use crate::suite::{Test, Work};
use crate::target::{Scratch, Target, TargetKind};
use crate::{LabError, Result};

/// How often the system is looked at meanwhile.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What a run tells as it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// A test begins.
    Begins {
        /// Which one of how many, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// Its test.
        test: &'a Test,
        /// On which target.
        target: &'a Target,
        /// Which repeat, from 1.
        repeat: u32,
    },
    /// It gave this.
    Done(&'a Measurement),
    /// It failed.
    Failed(&'a Failure),
}

/// One test on one target, once.
#[derive(Debug, Clone, Copy)]
struct Step<'a> {
    number: usize,
    test: &'a Test,
    place: &'a Placed<'a>,
    repeat: u32,
}

/// A target, with our folder in it if it is one.
#[derive(Debug)]
struct Placed<'a> {
    target: &'a Target,
    scratch: OnceLock<Scratch>,
    /// What is sampled meanwhile.
    scope: Scope,
}

/// Does all that is planned and not done yet, on all targets.
///
/// # Errors
/// Interrupted; a target takes no files; the result can't be written.
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
    let runner = Runner {
        recorder: Mutex::new(recorder),
        control,
        tell,
        of: steps.len(),
        real: plan.options.real,
        lists,
    };
    let at_once = if plan.options.together { placed.len() } else { 1 };
    for group in steps.chunks(at_once) {
        control.check()?;
        std::thread::scope(|scope| {
            let workers: Vec<_> = group.iter().map(|step| scope.spawn(|| runner.step(*step))).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
    }
    Ok(())
}

/// What all steps share.
struct Runner<'a> {
    recorder: Mutex<&'a mut Recorder>,
    control: &'a Control,
    tell: &'a (dyn Fn(Event<'_>) + Sync),
    of: usize,
    /// The real programs do the work.
    real: bool,
    /// Where lists of files may lie for a while: not in what is scanned.
    lists: PathBuf,
}

impl<'a> Runner<'a> {
    fn recorder(&self) -> std::sync::MutexGuard<'_, &'a mut Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: Step<'_>) -> Result<()> {
        let Step { number, test, place, repeat } = step;
        let target = place.target;
        if self.recorder().done(&test.name, &target.name, repeat) {
            return Ok(());
        }
        (self.tell)(Event::Begins { number, of: self.of, test, target, repeat });
        self.control.doing(format!("{} {}", target.name, test.name));
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sampler = Sampler::start(&place.scope, SAMPLE_EVERY);
        let outcome = place.perform(self, &test.work);
        let samples = sampler.stop();
        let elapsed =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(started);
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
                self.recorder().add(measurement, samples)?;
            }
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => {
                let failure = Failure {
                    test: test.name.clone(),
                    target: target.name.clone(),
                    repeat,
                    error: error.to_string(),
                };
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

    /// Our folder in the target, made when it is first wanted: a scan of what is there writes nothing.
    fn scratch(&self) -> Result<&Path> {
        if let Some(scratch) = self.scratch.get() {
            return Ok(scratch.path());
        }
        // A target is worked on by one step at a time: nobody else makes it meanwhile.
        let made = self.target.scratch()?;
        Ok(self.scratch.get_or_init(|| made).path())
    }

    fn perform(&self, runner: &Runner<'_>, work: &Work) -> Result<Outcome> {
        let control = runner.control;
        match work {
            Work::Io(jobs) => {
                let place = match self.target.kind {
                    TargetKind::Folder => Place::Folder(self.scratch()?.to_owned()),
                    TargetKind::File | TargetKind::Device => Place::File(self.target.path.clone()),
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
