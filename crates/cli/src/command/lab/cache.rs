//! `cenote lab cache`: see [`cenote_study::cache`].

use std::path::PathBuf;

use cenote_study::cache::{Case, Request};
use clap::Args;

use super::study;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote lab cache`
#[derive(Debug, Args)]
#[command(
    after_help = "Models one disk (7200 turns per minute, seeks as measured), flash of 80 us for the cache \
        device and of 30 us for the log, and four clients that pause for 100 us between operations. Times \
        are virtual.\n\n\
        Example: cenote lab cache --quick"
)]
pub struct Cache {
    /// Run a fifth of the operations
    #[arg(long)]
    pub quick: bool,
    /// Reads per case, ten for each durable write [default: 40000]
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

/// Reads of a case.
const READS: u64 = 40_000;

impl Cache {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let part = if self.quick { 5 } else { 1 };
        let operations = self.operations.unwrap_or(READS / part);
        let is_wanted = |number: u8| self.case.is_empty() || self.case.contains(&number);
        let numbered = (1..).zip(Case::all()).filter(|(number, _)| is_wanted(*number));
        let cases = numbered.map(|(_, case)| case).collect();
        study::run(session, Request { cases, operations }, self.out).await
    }
}
