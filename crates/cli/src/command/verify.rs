//! `cenote verify`: reads every copy and parity column, names what is damaged, and checks space.

use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// Only metadata
    #[arg(long)]
    pub metadata: bool,
    /// Don't compare the tree with the space maps
    #[arg(long)]
    pub no_space: bool,
    /// Show at most this many findings (all are counted)
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub most: usize,
    /// Progress even if standard error is no terminal
    #[arg(long)]
    pub progress: bool,
    /// Pool
    pub pool: String,
}

impl Verify {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}
