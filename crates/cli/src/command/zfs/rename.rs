//! Command line of `zfs rename`.

use cenote_control::zfs::tree::rename::Rename as Request;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs rename`
#[derive(Debug, Args)]
#[command(
    after_help = "A dataset is renamed with all its descendants. A snapshot stays in its dataset; its new \
        name may be only the part after the '@'.\n\n\
        Example: cenote zfs rename -r tank/home@monday @week-12"
)]
pub struct Rename {
    /// Create missing parents too
    #[arg(short = 'p', conflicts_with_all = ["recursive", "no_remount"])]
    pub parents: bool,
    /// Include snapshots of the same name in all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Leave file systems mounted where they are
    #[arg(short = 'u')]
    pub no_remount: bool,
    /// Accepted for compatibility: as with OpenZFS on Linux, busy file systems stay mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// Dataset or snapshot
    pub from: String,
    /// New name
    pub to: String,
}

impl Rename {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let to = self.full_name();
        let Rename { parents, recursive, no_remount, from, .. } = self;
        let request = Request { from, to, parents, recursive, no_remount };
        Ok(session.control().run(request).await?.outcome)
    }

    /// The new name; a snapshot's may lack the dataset, which is added.
    fn full_name(&self) -> String {
        match (self.from.split_once('@'), self.to.strip_prefix('@')) {
            (Some((path, _)), Some(own)) => format!("{path}@{own}"),
            (Some((path, _)), None) if !self.to.contains('@') => format!("{path}@{}", self.to),
            _ => self.to.clone(),
        }
    }
}
