//! Command line of `zfs rename`.

use cenote_control::zfs::tree::rename::Rename as Request;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs rename`
#[derive(Debug, Args)]
#[command(
    after_help = "A dataset is renamed with everything below it. A snapshot stays in its dataset; its new \
        name may be given as the part after the '@' alone.\n\n\
        Example: cenote zfs rename -r tank/home@monday @week-12"
)]
pub struct Rename {
    /// Create missing parents too
    #[arg(short = 'p', conflicts_with_all = ["recursive", "no_remount"])]
    pub parents: bool,
    /// Include the snapshots of that name of everything below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// What is mounted stays mounted where it is
    #[arg(short = 'u')]
    pub no_remount: bool,
    /// Accepted for compatibility: as with OpenZFS on Linux, what is in use stays mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// The dataset or snapshot
    pub from: String,
    /// Its new name
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
