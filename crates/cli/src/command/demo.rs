//! `cenote demo`: one command that shows the point, on a small pool inside the program.

use std::path::PathBuf;

use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep the pool's images in this folder afterwards
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

impl Demo {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}
