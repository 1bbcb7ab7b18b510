//! `cenote lab report`: a result's report, written anew.

use std::path::PathBuf;

use cenote_lab::report;
use cenote_lab::result::ResultFolder;
use clap::Args;

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
        let folder = ResultFolder::open(&self.result)?;
        write(&folder)?;
        for name in [report::MARKDOWN, report::HTML] {
            print(format!("{}\n", folder.path().join(name).display()))?;
        }
        Ok(Outcome::Done)
    }
}

/// Writes the report of a result beside it.
pub fn write(folder: &ResultFolder) -> Result<(), CliError> {
    let document = report::of_result(folder, &[], &commands(folder), report::build)?;
    Ok(report::write(&document, folder.path())?)
}

/// What repeats a result.
pub fn commands(folder: &ResultFolder) -> Vec<String> {
    vec![folder.plan().options.command.clone()]
}
