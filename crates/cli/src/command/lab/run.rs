//! `cenote lab run`: a study, from one command to its report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_lab::LabError;
use cenote_lab::control::Control;
use cenote_lab::machine::{Machine, Place};
use cenote_lab::report::{self, Study};
use cenote_lab::result::Recorder;
use cenote_lab::suite::{self, Options, Plan};
use cenote_lab::target::Target;
use cenote_lab::walk::PoolScan;
use clap::{Args, ValueEnum};

use super::{Permission, live};
use crate::outcome::{CliError, Outcome};
use crate::render::parse_bytes;
use crate::session::{Session, interrupted, print, print_json};

/// Suites by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SuiteName {
    /// How do places compare? Sequential and random reads and writes, mixed ones
    Pools,
    /// What does storage give to virtual machines, and what limits it?
    Vm,
    /// Block output, rewrite, input, seeks, files: what bonnie++ measures
    Bonnie,
    /// Inodes a second: trees of folders and files created, and copied as rsync does
    Metadata,
    /// A list of all files, cold and warm
    Scan,
    /// How long do scrubs and resilvers take? On pools made for the purpose
    Recovery,
}

/// `cenote lab run`
#[derive(Debug, Args)]
#[command(
    after_help = "A target is a folder, a file or a block device, with a name for the report if you like: NAME=PATH.\n\n\
    Example: cenote lab run pools --quick nvme=/tank/bench hdd=/data/bench"
)]
pub struct Run {
    /// The study
    pub suite: SuiteName,
    /// What to measure: PATH or NAME=PATH
    #[arg(required = true)]
    pub targets: Vec<String>,
    /// All of it under four minutes: shorter, smaller, fewer
    #[arg(long)]
    pub quick: bool,
    /// The result's folder is made here
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// How often each test is done
    #[arg(long, value_name = "N")]
    pub repeats: Option<u32>,
    /// Size of the data set (recovery: of each disk)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// How long each timed test goes on
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// All targets at once, instead of in turn
    #[arg(long)]
    pub together: bool,
    /// Let the real fio or bonnie++ do the work
    #[arg(long)]
    pub real: bool,
    /// Scan: make a tree of so many files for it, instead of scanning what is there
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Recovery: make pools on this device instead of files; repeatable
    #[arg(long, value_name = "DEVICE")]
    pub spare: Vec<PathBuf>,
    /// What may be overwritten
    #[command(flatten)]
    pub permission: Permission,
}

/// A size in words.
pub fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "give a size: 512M, 8G".into())
}

impl Run {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let targets = self.permission.targets(&self.targets)?;
        let machine = Machine::describe(&targets);
        let plan = self.plan(session, &machine, &targets)?;
        let recorder = Recorder::create_in(&self.out, &plan, &targets, &super::as_json(&machine)?)?;
        perform(session, recorder).await
    }

    fn plan(&self, session: &Session, machine: &Machine, targets: &[Target]) -> Result<Plan, CliError> {
        let options = Options {
            quick: self.quick,
            repeats: self.repeats,
            size_bytes: self.size,
            seconds: self.seconds,
            together: self.together,
            real: self.real,
            memory_bytes: machine.memory_bytes,
            command: session.command_line().to_owned(),
        };
        Ok(match self.suite {
            SuiteName::Pools => suite::pools::plan(&options, targets.len()),
            SuiteName::Vm => suite::vm::plan(&options, targets.len()),
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

/// How this program scans the data sets that targets are: by itself, on the pool's devices.
fn pool_scans(machine: &Machine) -> Vec<PoolScan> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let scan = |place: &Place| {
        // A part of a data set can't be told from its rest on the devices.
        let is_whole = place.mount.as_ref().is_some_and(|mount| mount.point == place.path);
        let dataset = place.dataset.as_ref().filter(|_| is_whole)?;
        let arguments = PoolScan::arguments(dataset);
        Some(PoolScan { target: place.path.clone(), program: program.clone(), arguments })
    };
    machine.places.iter().filter_map(scan).collect()
}

/// Does what is left of a plan, and writes the report of what there is, also after an interrupt.
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
                shown.say("interrupted: the test files go first; interrupt once more to leave them");
            }
            done = &mut work => break done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())),
        }
    };
    shown.finish();
    let written = finish(session, &recorder)?;
    match done {
        Ok(()) => Ok(written),
        Err(LabError::Interrupted) => Err(CliError::Stopped(format!(
            "interrupted; what was measured is in {0}; go on with: cenote lab resume {0}",
            recorder.path().display()
        ))),
        Err(error) => Err(error.into()),
    }
}

/// Ends the program while others are at work in it: their threads can't be told to drop everything.
fn leave(folder: &Path) -> ! {
    eprintln!(
        "cenote: interrupted twice; test files are left in the targets (the next `cenote lab run` there names them); go on with: cenote lab \
         resume {}",
        folder.display()
    );
    std::process::exit(1)
}

/// Writes summary and report, and shows the essentials.
fn finish(session: &Session, recorder: &Recorder) -> Result<Outcome, CliError> {
    let summary = recorder.finish()?;
    let study = Study::read(recorder)?;
    super::report::write(&study, recorder)?;
    if session.json() {
        print_json(&summary)?;
    } else {
        print(super::show::essentials(&study))?;
        print(format!("report: {}\n", shown_path(&recorder.path().join(report::HTML))))?;
    }
    Ok(if summary.failures.is_empty() { Outcome::Done } else { Outcome::Failed })
}

fn shown_path(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}
