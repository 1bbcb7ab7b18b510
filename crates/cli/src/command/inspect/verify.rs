//! `cenote verify`: reads every copy and parity column, names damaged blocks, and checks space accounting.

use cenote_control::inspect::verify::Verify as Request;
use cenote_shown::inspect::verify;
use clap::Args;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::Session;
use crate::streams::streams;

/// `cenote verify`
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 all is well, 3 blocks are damaged, devices are missing or out of \
    date, or the allocated space differs from the space maps.\n\n\
    Example: cenote verify tank")]
pub struct Verify {
    /// Check only metadata
    #[arg(long)]
    pub metadata: bool,
    /// Don't compare the tree with the space maps
    #[arg(long)]
    pub no_space: bool,
    /// List each damaged block with its location on the devices, not only each file
    #[arg(short, long)]
    pub verbose: bool,
    /// Show at most this many findings (all are counted)
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub most: usize,
    /// Show progress even if standard error is not a terminal
    #[arg(long)]
    pub progress: bool,
    /// Pool
    pub pool: String,
}

impl Verify {
    /// Runs the command. Ctrl-C ends it with a report of the blocks checked so far.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.progress {
            streams().show_progress(true);
        }
        let (metadata, no_space) = (self.metadata, self.no_space);
        let most_findings = self.most as u64;
        let request = Request { pool: self.pool, metadata, no_space, most_findings };
        let answered = session.control().run(request).await?;
        let report = &answered.answer;
        Ok(answered.outcome.printed(session.show(|| verify::text(report, self.verbose), || report)))
    }
}
