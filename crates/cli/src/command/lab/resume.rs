//! `cenote lab resume`: continues an interrupted study.

use std::path::PathBuf;

use cenote_lab::result::Recorder;
use clap::Args;

use super::failed;
use super::{Permission, run};
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote lab resume`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote lab resume pools-20261122T101500Z")]
pub struct Resume {
    /// The result's folder
    pub result: PathBuf,
    /// Targets that may be overwritten
    #[command(flatten)]
    pub permission: Permission,
}

impl Resume {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let recorder = Recorder::resume(&self.result).map_err(failed)?;
        let words: Vec<_> =
            recorder.targets().iter().map(|t| format!("{}={}", t.name, t.path.display())).collect();
        self.permission.targets(&words)?;
        if !recorder.is_complete() {
            super::check(recorder.plan(), recorder.targets(), recorder.machine())?;
        }
        run::perform(session, recorder).await
    }
}
