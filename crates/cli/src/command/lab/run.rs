//! `cenote lab run`: a study, from one command to its report.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use cenote_control::text::parse_bytes;
use cenote_lab::LabError;
use cenote_lab::analysis::report::{self, Study};
use cenote_lab::control::Control;
use cenote_lab::machine::{Machine, TargetPlace};
use cenote_lab::recovery::Engine;
use cenote_lab::result::Recorder;
use cenote_lab::suite::{self, Options, Plan};
use cenote_lab::target::Target;
use cenote_lab::walk::PoolScan;
use clap::{Args, ValueEnum};

use super::failed;
use super::{Permission, live};
use crate::message::say;
use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, interrupted, print_bytes, print_json};

/// Suites by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SuiteName {
    /// How do targets compare? Sequential, random and mixed reads and writes
    Pools,
    /// How does storage serve virtual machines, and what limits it?
    Vm,
    /// How many concurrent operations does a target sustain? The same work with 1 to 128 in flight
    Depth,
    /// Block output, rewrite, input, seeks, files, like bonnie++
    Bonnie,
    /// Inodes per second: trees of folders and files created, and copied as rsync does
    Metadata,
    /// List all files, cold and warm
    Scan,
    /// How long do scrubs and resilvers take? Uses pools created for the purpose
    Recovery,
}

/// `cenote lab run`
#[derive(Debug, Args)]
#[command(
    after_help = "A target is a folder, a file or a block device, with an optional name: NAME=PATH.\n\n\
        Example: cenote lab run pools --quick nvme=/tank/bench hdd=/srv/bench"
)]
pub struct Run {
    /// The study
    pub suite: SuiteName,
    /// Targets to measure: PATH or NAME=PATH
    #[arg(required = true)]
    pub targets: Vec<String>,
    /// Finish in under four minutes: shorter, smaller, fewer tests
    #[arg(long)]
    pub quick: bool,
    /// Create the result's folder here
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Repeats of each test
    #[arg(long, value_name = "N", value_parser = at_least_one::<u32>)]
    pub repeats: Option<u32>,
    /// Size of the data set (recovery: of each disk)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Duration of each timed test
    #[arg(long, value_name = "SECONDS", value_parser = at_least_one::<u64>)]
    pub seconds: Option<u64>,
    /// Measure all targets at once instead of in turn
    #[arg(long)]
    pub together: bool,
    /// Run the real fio or bonnie++ instead of the built-in engine
    #[arg(long)]
    pub real: bool,
    /// Scan: create a tree with this many files instead of scanning the existing ones
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    pub files: Option<u64>,
    /// Recovery: create pools on this device instead of files; repeatable
    #[arg(long, value_name = "DEVICE")]
    pub spare: Vec<PathBuf>,
    /// Recovery: implementation that holds the damaged pools [default: module]
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<EngineName>,
    /// Targets that may be overwritten
    #[command(flatten)]
    pub permission: Permission,
}

/// Implementations of ZFS by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// OpenZFS's programs and kernel module
    Module,
    /// A daemon of this program, started for the test
    Cenote,
}

/// Parses a size.
pub fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "give a size: 512M, 8G".into())
}

/// Parses a number of at least one.
pub fn at_least_one<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number >= N::from(1));
    number.ok_or_else(|| "give a whole number, at least 1".into())
}

impl Run {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        self.refuse_unused()?;
        let targets = self.permission.targets(&self.targets)?;
        let machine = Machine::describe(&targets);
        let plan = self.plan(session, &machine, &targets)?;
        let machine = super::as_json(&machine)?;
        super::check(&plan, &targets, &machine)?;
        let recorder = Recorder::create_in(&self.out, &plan, &targets, &machine).map_err(failed)?;
        perform(session, recorder).await
    }

    /// Refuses options that the suite would ignore.
    fn refuse_unused(&self) -> Result<(), CliError> {
        use SuiteName::{Bonnie, Metadata, Recovery, Scan};
        let suite = self.suite;
        let unused = [
            ("--size", self.size.is_some() && matches!(suite, Metadata | Scan)),
            ("--seconds", self.seconds.is_some() && matches!(suite, Bonnie | Scan | Recovery)),
            ("--files", self.files.is_some() && suite != Scan),
            ("--engine", self.engine.is_some() && suite != Recovery),
            ("--spare", !self.spare.is_empty() && suite != Recovery),
            ("--real", self.real && matches!(suite, Metadata | Scan | Recovery)),
        ];
        match unused.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                let name =
                    suite.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned());
                Err(CliError::Usage(format!("the suite {name} does not use {option}; omit it")))
            }
            None => Ok(()),
        }
    }

    fn plan(&self, session: &Session, machine: &Machine, targets: &[Target]) -> Result<Plan, CliError> {
        let options = Options {
            quick: self.quick,
            repeats: self.repeats,
            size_bytes: self.size,
            seconds: self.seconds,
            together: self.together,
            real: self.real,
            engine: match self.engine {
                Some(EngineName::Cenote) => Engine::Cenote,
                Some(EngineName::Module) | None => Engine::Module,
            },
            memory_bytes: machine.memory_bytes,
            command: session.command_line().to_owned(),
        };
        Ok(match self.suite {
            SuiteName::Pools => suite::pools::plan(&options, targets.len()),
            SuiteName::Vm => suite::vm::plan(&options, targets.len()),
            SuiteName::Depth => suite::depth::plan(&options, targets.len()),
            SuiteName::Recovery => suite::recovery::plan(&options, &self.spares()?),
            SuiteName::Bonnie => suite::bonnie::plan(&options, targets.len()),
            SuiteName::Metadata => suite::metadata::plan(&options, targets.len()),
            SuiteName::Scan => suite::scan::plan(&options, self.files, &pool_scans(machine)),
        })
    }

    fn spares(&self) -> Result<Vec<PathBuf>, CliError> {
        let words: Vec<_> = self.spare.iter().map(|path| path.display().to_string()).collect();
        Ok(self.permission.targets(&words)?.into_iter().map(|target| target.path).collect())
    }
}

/// How this program scans the targets that are datasets: without a mount, from the pool's devices.
fn pool_scans(machine: &Machine) -> Vec<PoolScan> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let scan = |place: &TargetPlace| {
        // On the devices, the blocks of part of a dataset can't be told from the rest.
        let is_whole = place.mount.as_ref().is_some_and(|mount| mount.point == place.path);
        let dataset = place.dataset.as_ref().filter(|_| is_whole)?;
        let arguments = PoolScan::arguments(dataset);
        Some(PoolScan { target: place.path.clone(), program: program.clone(), arguments })
    };
    machine.places.iter().filter_map(scan).collect()
}

/// Runs the rest of a plan and writes a report of the results so far, even after an interrupt.
pub async fn perform(session: &Session, mut recorder: Recorder) -> Result<Outcome, CliError> {
    let control = Arc::new(Control::default());
    let folder = recorder.path().to_owned();
    let shown = live::Live::new(Arc::clone(&control), session.json());
    let work = {
        let (control, shown) = (Arc::clone(&control), shown.clone());
        tokio::task::spawn_blocking(move || {
            let done = cenote_lab::run::run(&mut recorder, &control, &|event| shown.tell(&event));
            (recorder, done)
        })
    };
    let mut work = std::pin::pin!(work);
    let (recorder, done) = loop {
        tokio::select! {
            biased;
            () = interrupted() => {
                if control.stopped() {
                    shown.finish();
                    leave(&folder);
                }
                control.stop();
                shown.say("interrupted: removing the test files; interrupt again to leave them");
            }
            done = &mut work => {
                break done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            }
        }
    };
    shown.finish();
    let written = finish(session, &recorder)?;
    match done {
        Ok(()) => Ok(written),
        Err(LabError::Interrupted) => Err(CliError::Stopped(format!(
            "interrupted; the results so far are in {0}; continue with: cenote lab resume {0}",
            recorder.path().display()
        ))),
        Err(error) => Err(failed(error)),
    }
}

/// Ends the program while other threads are still working: they can't be told to stop at once.
fn leave(folder: &Path) -> ! {
    say!(
        "interrupted twice; test files are left in the targets (the next `cenote lab run` there names them); \
         continue with: cenote lab resume {}",
        folder.display()
    );
    std::process::exit(1)
}

/// Writes summary and report, and prints the essentials.
fn finish(session: &Session, recorder: &Recorder) -> Result<Outcome, CliError> {
    let summary = recorder.finish().map_err(failed)?;
    let study = Study::read(recorder).map_err(failed)?;
    super::report::write(&study, recorder)?;
    let outcome = if summary.failures.is_empty() { Outcome::Done } else { Outcome::Failed };
    let report = shown_path(&recorder.path().join(report::HTML));
    Ok(outcome.printed(match session.json() {
        true => print_json(&summary),
        false => print_bytes(super::show::essentials(&study) + &format!("report: {report}\n")),
    }))
}

fn shown_path(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}
