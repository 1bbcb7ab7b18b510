//! Command line of `cenote ha`: pools that move among machines.

use cenote_control::running::ha::{Fence, Moving, Status, Switch};
use cenote_shown::running::ha;
use clap::{Args, Subcommand};

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote ha` and its verbs.
#[derive(Debug, Subcommand)]
#[command(after_help = "Needs a daemon with `--ha`. Examples:\n  cenote ha status\n  cenote ha switch tank")]
pub enum HaCommand {
    /// Show pools that move among machines, and the machines that have them
    Status(HaStatus),
    /// Have a pool here; or let it go, if it is here
    Switch(HaSwitch),
    /// Take a pool from a machine that does not let it go
    Fence(HaFence),
}

/// `cenote ha status`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote ha status")]
pub struct HaStatus {
    /// No header, tabs between columns
    #[arg(short = 'H', long)]
    pub script: bool,
    /// Pools [default: all that move]
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
}

/// `cenote ha switch`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote ha switch tank")]
pub struct HaSwitch {
    /// Pool
    pub pool: String,
    /// Machine [default: this one, or any other if the pool is here]
    pub to: Option<String>,
}

/// `cenote ha fence`
#[derive(Debug, Args)]
#[command(after_help = "Writes of that machine that it has not flushed are lost.\n\n\
    Example: cenote ha fence tank")]
pub struct HaFence {
    /// Pool
    pub pool: String,
}

impl HaCommand {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let control = session.control();
        let shown =
            |all: Vec<Moving>, script| session.show(|| ha::table(&all).text(script), || ha::json(&all));
        match self {
            HaCommand::Status(HaStatus { script, pools }) => {
                shown(control.run(Status { pools }).await?.answer, script)?;
            }
            HaCommand::Switch(HaSwitch { pool, to }) => {
                shown(vec![control.run(Switch { pool, to }).await?.answer], false)?;
            }
            HaCommand::Fence(HaFence { pool }) => {
                shown(vec![control.run(Fence { pool }).await?.answer], false)?;
            }
        }
        Ok(Outcome::Done)
    }
}
