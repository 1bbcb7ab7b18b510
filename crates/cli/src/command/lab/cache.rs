//! `cenote lab cache`: what a cache device (L2ARC) and a log device (SLOG) bring to a pool on a slow disk.
//!
//! Idea: Cenote's own engine on a pool of its own in the simulator: one disk with a moving head, flash for
//! the cache device and for the log. Clients as those of report 002 read blocks of a volume's size at random
//! from working sets that are smaller and larger than memory and than the cache device, and make durable
//! writes. What differs between two runs is the device in question.

mod pool;
mod report;
mod work;

use std::path::PathBuf;

use clap::Args;

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::session::{Progress, Session, print, print_json, unless_interrupted, watch};
use crate::streams::local;
use report::Study;
use work::{Case, Effort};

/// `cenote lab cache`
#[derive(Debug, Args)]
#[command(
    after_help = "One modelled disk (7200 turns, seeks as measured), flash of 80 us for the cache device and \
        of 30 us for the log, four clients that take 100 us between operations. Times are virtual.\n\n\
        Example: cenote lab cache --quick"
)]
pub struct Cache {
    /// A fifth of the operations
    #[arg(long)]
    pub quick: bool,
    /// Reads of a case, ten for each durable write [default: 40000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    pub operations: Option<u64>,
    /// Cases, by number, comma-separated [default: all thirteen]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=13))]
    pub case: Vec<u8>,
    /// Write the report into this new folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Cache {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let part = if self.quick { 5 } else { 1 };
        let effort = Effort { reads: self.operations.unwrap_or(READS / part) };
        let is_wanted = |number: usize| self.case.is_empty() || self.case.contains(&(number as u8 + 1));
        let numbered = Case::all().into_iter().enumerate();
        let cases: Vec<Case> = numbered.filter(|(n, _)| is_wanted(*n)).map(|(_, case)| case).collect();
        if let Some(out) = &self.out {
            std::fs::create_dir(local(out)).map_err(CliError::io(out.display().to_string()))?;
        }
        let interrupted = || "nothing was written".into();
        let study = unless_interrupted(study(session, &cases, effort), interrupted).await?;
        if let Some(out) = &self.out {
            let path = local(out).join("report.md");
            std::fs::write(path, study.text()).map_err(CliError::io(out.display().to_string()))?;
        }
        match session.json() {
            true => print_json(&study.json())?,
            false => print(study.text())?,
        }
        Ok(Outcome::Done)
    }
}

/// Reads of a case.
const READS: u64 = 40_000;

async fn study(session: &Session, cases: &[Case], effort: Effort) -> Result<Study, CliError> {
    let (mut study, line) = (Study::default(), Progress::text());
    let start = session.runtime().now();
    for (index, case) in cases.iter().enumerate() {
        // The simulator has a thread to itself.
        let case_of_run = *case;
        let run = session.runtime().blocking(move || pool::run(case_of_run, effort));
        let show = |_| {
            let elapsed = (session.runtime().now() - start).as_secs();
            line.message(format!("run {} of {}: {case}; {elapsed} s", index + 1, cases.len()));
        };
        let run = watch(session.runtime(), run, show).await.map_err(CliError::Refused)?;
        line.hide(|| say!("{case}: {}", run.line()));
        study.add(run);
    }
    line.finish();
    Ok(study)
}
