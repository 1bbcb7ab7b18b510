//! `cenote lab ...`: measure storage, keep the evidence, compare, advise, report.

pub mod advise;
pub mod compare;
pub mod job;
mod live;
pub mod report;
pub mod resume;
pub mod run;
pub mod show;

use std::path::{Path, PathBuf};

use cenote_lab::LabError;
use cenote_lab::machine::Machine;
use cenote_lab::target::{self, Target};
use clap::Subcommand;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// Commands of the lab.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Do a study: measure folders, files or devices, and write the report
    Run(run::Run),
    /// Go on with a study that was interrupted
    Resume(resume::Resume),
    /// Run a fio job file on a folder, file or device
    Job(job::JobRun),
    /// Show the essentials of results
    Show(show::Show),
    /// Compare results, or targets within one
    Compare(compare::Compare),
    /// Write a result's report anew
    Report(report::Rewrite),
    /// Say what should be done about pools, and why; or watch them
    Advise(advise::Advise),
}

impl Lab {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        match self {
            Lab::Run(run) => run.run(session).await,
            Lab::Resume(resume) => resume.run(session).await,
            Lab::Job(job) => job.run(session).await,
            Lab::Show(show) => show.run(session),
            Lab::Compare(compare) => compare.run(session),
            Lab::Report(report) => report.run(),
            Lab::Advise(advise) => advise.run(session).await,
        }
    }
}

/// What may be overwritten: said twice, once that it may, once what.
#[derive(Debug, Clone, clap::Args)]
pub struct Permission {
    /// Targets that hold something may be overwritten, if they are named again by --yes-destroy
    #[arg(long, requires = "yes_destroy")]
    pub overwrite: bool,
    /// What may be overwritten: a file or device; repeatable
    #[arg(long, value_name = "PATH", requires = "overwrite")]
    pub yes_destroy: Vec<PathBuf>,
}

impl Permission {
    fn allows(&self, path: &Path) -> bool {
        let same = |other: &PathBuf| other.canonicalize().ok() == path.canonicalize().ok();
        self.overwrite && self.yes_destroy.iter().any(same)
    }

    /// The targets that these words name: `PATH` or `NAME=PATH`.
    pub fn targets(&self, words: &[String]) -> Result<Vec<Target>, CliError> {
        let mut targets: Vec<Target> = Vec::new();
        for word in words {
            let (name, path) = match word.split_once('=') {
                Some((name, path)) if !name.contains('/') => (name.to_owned(), Path::new(path)),
                _ => (word.trim_end_matches('/').to_owned(), Path::new(word)),
            };
            let name = if name.is_empty() { "/".to_owned() } else { name };
            if targets.iter().any(|other| other.name == name) {
                return Err(CliError::Usage(format!("{name}: twice; give targets names: NAME=PATH")));
            }
            for left in target::leftovers(path) {
                eprintln!("cenote: {}: left by a run that was killed; it can be removed", left.display());
            }
            targets.push(Target::find(&name, path, self.allows(path))?);
        }
        Ok(targets)
    }
}

/// The machine as it is kept with a result.
fn as_json(machine: &Machine) -> Result<serde_json::Value, CliError> {
    serde_json::to_value(machine)
        .map_err(|error| CliError::Refused(format!("the machine can't be described: {error}")))
}

impl From<LabError> for CliError {
    fn from(error: LabError) -> CliError {
        match error {
            LabError::JobFile { .. } => CliError::Usage(error.to_string()),
            LabError::Interrupted => CliError::Stopped(error.to_string()),
            _ => CliError::Refused(error.to_string()),
        }
    }
}
