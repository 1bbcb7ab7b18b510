//! Command line of `zpool condense`.

use cenote_control::zpool::activity::condense::{Condense as Request, Kind, Order};
use clap::{Args, ValueEnum};

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// `zpool condense`
#[derive(Debug, Args)]
#[command(
    after_help = "Changes of free space are logged first and reach the space maps bit by bit. This writes \
        them all in one txg, so that the next import has less to read.\n\n\
        Example: cenote zpool condense -t log_spacemap tank"
)]
pub struct Condense {
    /// Metadata to condense [default: all]
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub kind: Option<Type>,
    /// Accepted: nothing is left to cancel between two commands
    #[arg(short = 'c', long = "cancel", conflicts_with = "wait")]
    pub cancel: bool,
    /// Accepted: the command ends when all is done
    #[arg(short = 'w', long = "wait")]
    pub wait: bool,
    /// All pools
    #[arg(short = 'a', long = "all")]
    pub all: bool,
    /// List the known types
    #[arg(long = "types")]
    pub types: bool,
    /// Pools
    #[arg(required_unless_present_any = ["all", "types"])]
    pub pools: Vec<String>,
}

/// A kind of metadata.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Type {
    /// The log of space maps
    #[value(name = "log_spacemap")]
    LogSpacemap,
}

impl Condense {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.types {
            return print("log_spacemap\n").map(|()| Outcome::Done);
        }
        let kind = self.kind.map(|Type::LogSpacemap| Kind::LogSpacemap);
        let order = if self.cancel { Order::Cancel } else { Order::Start };
        let request = Request { pools: self.pools, kind, order };
        Ok(session.control().run(request).await?.outcome)
    }
}
