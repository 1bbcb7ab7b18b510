//! `cenote lab job`: a fio job file, run as a study of its own.

use std::path::PathBuf;

use cenote_lab::job::Jobs;
use cenote_lab::machine::Machine;
use cenote_lab::result::Recorder;
use cenote_lab::suite::{self, Options};
use clap::Args;

use super::failed;
use super::{Permission, run};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote lab job`
#[derive(Debug, Args)]
#[command(after_help = "Unknown options are reported with their lines.\n\n\
    Example: cenote lab job oltp.fio /tank/bench")]
pub struct JobRun {
    /// The job file
    pub file: PathBuf,
    /// Targets to measure: PATH or NAME=PATH
    #[arg(required = true)]
    pub targets: Vec<String>,
    /// Create the result's folder here
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Number of repeats
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = run::at_least_one::<u32>)]
    pub repeats: u32,
    /// Measure all targets at once instead of in turn
    #[arg(long)]
    pub together: bool,
    /// Run the real fio instead of the built-in engine
    #[arg(long)]
    pub real: bool,
    /// Targets that may be overwritten
    #[command(flatten)]
    pub permission: Permission,
}

impl JobRun {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let shown = self.file.display().to_string();
        let text = std::fs::read_to_string(&self.file).map_err(CliError::io(&shown))?;
        let jobs = Jobs::parse(&text, &shown).map_err(failed)?;
        let targets = self.permission.targets(&self.targets)?;
        let machine = Machine::describe(&targets);
        let options = Options {
            repeats: Some(self.repeats),
            together: self.together,
            real: self.real,
            memory_bytes: machine.memory_bytes,
            command: session.command_line().to_owned(),
            ..Options::default()
        };
        let name =
            self.file.file_stem().map_or_else(|| "job".into(), |stem| stem.to_string_lossy().into_owned());
        let plan = suite::of_jobs(&name, jobs, &options);
        let machine = super::as_json(&machine)?;
        super::check(&plan, &targets, &machine)?;
        let recorder = Recorder::create_in(&self.out, &plan, &targets, &machine).map_err(failed)?;
        run::perform(session, recorder).await
    }
}
