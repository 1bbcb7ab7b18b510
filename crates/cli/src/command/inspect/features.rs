//! `cenote features`: feature flags that Cenote knows, or those of a pool.

use cenote_control::inspect::features::Features as Request;
use cenote_shown::inspect::features;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote features`
#[derive(Debug, Args)]
#[command(after_help = "NEEDED TO: a program without an active feature of a pool can't read it, or can \
    read but not write it. OPENZFS: the first version on Linux that has it. USES, TXG: the number of its \
    users in the pool, such as datasets, and the txg in which it was enabled.\n\n\
    Example: cenote features tank")]
pub struct Features {
    /// Show guids, dependencies and descriptions too
    #[arg(short, long)]
    pub verbose: bool,
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Pool [default: none]
    pub pool: Option<String>,
}

impl Features {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let known = session.control().run(Request { pool: self.pool }).await?.answer;
        session.show(|| features::text(&known, self.verbose, self.script), || &known)?;
        Ok(Outcome::Done)
    }
}
