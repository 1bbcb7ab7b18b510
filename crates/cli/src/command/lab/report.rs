//! `cenote lab report`: a result's report, written anew.

use std::path::PathBuf;

use cenote_lab::advice::{Facts, review};
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
    let document = of_result(folder, report::build)?;
    Ok(report::write(&document, folder.path())?)
}

/// A document of such a shape about a result, with advice about the pools that its targets are on.
pub fn of_result(
    folder: &ResultFolder,
    shape: fn(&report::Material<'_>) -> report::Document,
) -> Result<report::Document, CliError> {
    let advice = review(&Facts::of_result(folder)?).advice;
    let commands = [folder.plan().options.command.clone()];
    Ok(report::of_result(folder, &advice, &commands, shape)?)
}
