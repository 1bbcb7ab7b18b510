//! `cenote lab report`: writes a result's report again.

use std::path::PathBuf;

use cenote_lab::analysis::report::{self, Study};
use cenote_lab::result::ResultFolder;
use clap::Args;

use super::failed;
use crate::outcome::{CliError, Outcome};
use crate::session::print;

/// `cenote lab report`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote lab report pools-20261122T101500Z")]
pub struct Rewrite {
    /// The result's folder
    pub result: PathBuf,
}

impl Rewrite {
    /// Runs the command.
    pub fn run(self) -> Result<Outcome, CliError> {
        let folder = ResultFolder::open(&self.result).map_err(failed)?;
        write(&Study::read(&folder).map_err(failed)?, &folder)?;
        for name in [report::MARKDOWN, report::HTML] {
            print(format!("{}\n", folder.path().join(name).display()))?;
        }
        Ok(Outcome::Done)
    }
}

/// Writes a result's report into its folder.
pub fn write(study: &Study<'_>, folder: &ResultFolder) -> Result<(), CliError> {
    report::write(&study.document(report::build), folder.path()).map_err(failed)
}
