//! Command line of `zpool checkpoint`.

use cenote_control::zpool::whole::checkpoint::Checkpoint as Request;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool checkpoint`
#[derive(Debug, Args)]
#[command(
    after_help = "Blocks freed later stay allocated. --checkpoint opens the checkpoint; `zpool import \
        --rewind-to-checkpoint` rewinds to it permanently.\n\n\
        Examples:\n  \
        cenote zpool checkpoint tank\n  \
        cenote zpool checkpoint -d tank  # discard it"
)]
pub struct Checkpoint {
    /// Discard the checkpoint and free the space that only it uses
    #[arg(short = 'd', long)]
    pub discard: bool,
    /// Accepted for compatibility: the command always waits
    #[arg(short = 'w', long, requires = "discard")]
    pub wait: bool,
    /// The pool
    pub pool: String,
}

impl Checkpoint {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request { pool: self.pool, discard: self.discard };
        Ok(session.control().run(request).await?.outcome)
    }
}
