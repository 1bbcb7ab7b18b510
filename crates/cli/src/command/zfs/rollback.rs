//! Command lines of `zfs rollback`, `promote`.

use cenote_control::zfs::{points, tree};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs rollback`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs rollback -r tank/home@monday")]
pub struct Rollback {
    /// Destroy newer snapshots and bookmarks
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Destroy them and their clones
    #[arg(short = 'R')]
    pub with_clones: bool,
    /// Accepted for compatibility: file systems stay mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// DATASET@SNAPSHOT
    pub snapshot: String,
}

/// `zfs promote`
#[derive(Debug, Args)]
#[command(
    after_help = "The clone takes over the snapshots it depends on, and its origin becomes its clone.\n\n\
        Example: cenote zfs promote tank/look"
)]
pub struct Promote {
    /// The clone
    pub clone: String,
}

impl Rollback {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Rollback { recursive, with_clones, snapshot, force: _ } = self;
        let request = points::rollback::Rollback { snapshot, recursive, with_clones };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Promote {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = tree::promote::Promote { clone: self.clone };
        Ok(session.control().run(request).await?.outcome)
    }
}
