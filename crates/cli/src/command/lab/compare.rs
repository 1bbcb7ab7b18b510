//! `cenote lab compare`: which result is faster, by how much, and whether the data support it.

use std::path::PathBuf;

use cenote_lab::analysis::{Setting, Source, compare_results, report};
use cenote_lab::result::ResultFolder;
use cenote_shown::lab::compare::{Compared, document};
use clap::Args;

use super::failed;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print_bytes, print_json};

/// `cenote lab compare`
#[derive(Debug, Args)]
#[command(after_help = "Compares the targets of one result. Of several results, compares targets of the \
    same name, or all targets if no names match.\n\n\
    Example: cenote lab compare pools-20261122T101500Z pools-20261129T101500Z")]
pub struct Compare {
    /// Folders of results
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// Compare all figures, not only throughput and the 99th percentile
    #[arg(long)]
    pub all: bool,
}

impl Compare {
    /// Runs the command.
    pub fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (mut comparisons, findings) = compare_results(&sources(&self.results)?).map_err(failed)?;
        if !self.all {
            comparisons.retain(|c| {
                [".iops", ".bandwidth", ".p99", ".rate", ".time"].iter().any(|end| c.figure.ends_with(end))
            });
        }
        let compared = Compared { comparisons: &comparisons, findings: &findings };
        if session.json() {
            print_json(&compared)?;
        } else {
            print_bytes(report::text(&document(&compared), super::show::style()))?;
        }
        Ok(Outcome::Done)
    }
}

/// The contribution of each result to the comparison.
fn sources(results: &[PathBuf]) -> Result<Vec<Source>, CliError> {
    let source = |path: &PathBuf| {
        let folder = ResultFolder::open(path).map_err(failed)?;
        let setting = Setting::from_machine(folder.machine());
        let plan = folder.plan().clone();
        Ok(Source { name: folder.name(), figures: folder.summary().map_err(failed)?.figures, setting, plan })
    };
    results.iter().map(source).collect()
}
