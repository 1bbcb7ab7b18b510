//! `cenote lab ...`: measure storage, keep the evidence, compare, advise, report.

pub mod advise;
pub mod arc;
pub mod cache;
pub mod compare;
pub mod job;
mod live;
pub mod report;
pub mod resume;
pub mod run;
pub mod show;
mod study;

use std::path::{Path, PathBuf};

use cenote_lab::analysis::{Setting, shared_devices};
use cenote_lab::machine::Machine;
use cenote_lab::suite::Plan;
use cenote_lab::target::{self, Target};
use cenote_lab::{LabError, preflight};
use clap::Subcommand;

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// Commands of the lab.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    cenote lab run pools --quick nvme=/tank/bench hdd=/srv/bench\n  \
    cenote lab advise tank")]
pub enum Lab {
    /// Run a study: measure folders, files or devices, and write the report
    Run(run::Run),
    /// Compare cache policies on metadata in the simulator, by the tests of the ARC patches of 2014
    Arc(arc::Arc),
    /// Show the benefit of cache and log devices in the simulator: working sets, durable writes
    Cache(cache::Cache),
    /// Resume an interrupted study
    Resume(resume::Resume),
    /// Run a fio job file on a folder, file or device
    Job(job::JobRun),
    /// Summarise results
    Show(show::Show),
    /// Compare results, or the targets within one
    Compare(compare::Compare),
    /// Rewrite a result's report
    Report(report::Rewrite),
    /// Recommend changes to pools, with reasons; or watch pools
    Advise(advise::Advise),
}

impl Lab {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        match self {
            Lab::Run(run) => run.run(session).await,
            Lab::Arc(arc) => arc.run(session).await,
            Lab::Cache(cache) => cache.run(session).await,
            Lab::Resume(resume) => resume.run(session).await,
            Lab::Job(job) => job.run(session).await,
            Lab::Show(show) => show.run(session),
            Lab::Compare(compare) => compare.run(session),
            Lab::Report(report) => report.run(),
            Lab::Advise(advise) => advise.run(session).await,
        }
    }
}

/// Targets that may be overwritten, confirmed twice: that any may be, and each by name.
#[derive(Debug, Clone, clap::Args)]
pub struct Permission {
    /// Allow targets with data to be overwritten; each must also be named by --yes-destroy
    #[arg(long, requires = "yes_destroy")]
    pub overwrite: bool,
    /// A file or device that may be overwritten; repeatable
    #[arg(long, value_name = "PATH", requires = "overwrite")]
    pub yes_destroy: Vec<PathBuf>,
}

impl Permission {
    fn allows(&self, path: &Path) -> bool {
        let same = |other: &PathBuf| other.canonicalize().ok() == path.canonicalize().ok();
        self.overwrite && self.yes_destroy.iter().any(same)
    }

    /// Parses targets: `PATH` or `NAME=PATH`.
    pub fn targets(&self, words: &[String]) -> Result<Vec<Target>, CliError> {
        let mut targets: Vec<Target> = Vec::new();
        for word in words {
            let (name, path) = match word.split_once('=') {
                Some((name, path)) if !name.contains('/') => (name.to_owned(), Path::new(path)),
                _ => (word.trim_end_matches('/').to_owned(), Path::new(word)),
            };
            let name = if name.is_empty() { "/".to_owned() } else { name };
            if targets.iter().any(|other| other.name == name) {
                return Err(CliError::Usage(format!("{name}: given twice; name the targets: NAME=PATH")));
            }
            for left in target::leftovers(path) {
                say!("{}: left behind by a run that was killed; it can be removed", left.display());
            }
            targets.push(Target::find(&name, path, self.allows(path)).map_err(failed)?);
        }
        Ok(targets)
    }
}

/// Checks a plan before anything is written: refuses an unworkable one, and warns about conditions that
/// weaken its results.
fn check(plan: &Plan, targets: &[Target], machine: &serde_json::Value) -> Result<(), CliError> {
    preflight::check(plan, targets).map_err(failed)?;
    for finding in shared_devices(&Setting::from_machine(machine)) {
        say!("{}", finding.sentence);
    }
    Ok(())
}

/// The machine's description as stored with a result.
fn as_json(machine: &Machine) -> Result<serde_json::Value, CliError> {
    serde_json::to_value(machine)
        .map_err(|error| CliError::Refused(format!("the machine can't be described: {error}")))
}

/// Converts a failure in the lab to a command's error.
fn failed(error: LabError) -> CliError {
    match error {
        LabError::JobFile { .. } | LabError::Misused(_) => CliError::Usage(error.to_string()),
        LabError::Interrupted => CliError::Stopped(error.to_string()),
        _ => CliError::Refused(error.to_string()),
    }
}
