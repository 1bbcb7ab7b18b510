//! Command lines of `zpool scrub`, `zpool resilver`.

use cenote_control::zpool::work::resilver;
use cenote_control::zpool::work::scrub::{self, Order};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool scrub`
#[derive(Debug, Args)]
#[command(after_help = "Every copy and parity column of every block is read and verified; what is wrong is \
        written again. The daemon does it in the background, gently while others work: `cenote zpool status` \
        shows how far it is. Without a daemon the command ends when all is done. If it is interrupted, the \
        same command goes on where it was, and so does OpenZFS.\n\n\
        With -e only the blocks that `cenote zpool status -v` names are read. What is whole again, or gone, \
        is no error any more. Paused, `zpool scrub -e` goes on. Needs the feature head_errlog.\n\n\
        Exit status: 3 if blocks could not be repaired (without a daemon, or with -w).\n\n\
        Example: cenote zpool scrub tank")]
pub struct Scrub {
    /// Pause; `zpool scrub` goes on
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait"])]
    pub pause: bool,
    /// Stop for good
    #[arg(short = 's', conflicts_with = "wait")]
    pub stop: bool,
    /// Wait until it is done
    #[arg(short = 'w')]
    pub wait: bool,
    /// Only what was born after the last complete scrub
    #[arg(short = 'C', conflicts_with_all = ["pause", "stop", "errors"])]
    pub since_last: bool,
    /// Only the blocks in the error log: what is mended leaves it
    #[arg(short = 'e', conflicts_with_all = ["pause", "stop"])]
    pub errors: bool,
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

/// `zpool resilver`
#[derive(Debug, Args)]
#[command(
    after_help = "Devices that were away while others wrote, or that joined a mirror, lack blocks, and the \
        pool knows which. They are put together from the other devices, verified, and written: in the daemon \
        in the background, otherwise before the command ends. With nothing to bring, nothing is written.\n\n\
        Example: cenote zpool resilver tank"
)]
pub struct Resilver {
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

impl Scrub {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let order = match () {
            () if self.pause => Order::Pause,
            () if self.stop => Order::Stop,
            () if self.errors => Order::StartErrors,
            () if self.since_last => Order::StartSinceLast,
            () => Order::Start,
        };
        let request = scrub::Scrub { pools: self.pools, order, wait: self.wait };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Resilver {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = resilver::Resilver { pools: self.pools };
        Ok(session.control().run(request).await?.outcome)
    }
}
