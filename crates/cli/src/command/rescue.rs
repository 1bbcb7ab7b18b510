//! `cenote rescue`: copies out everything that can still be read, with a list of what can't.

use std::path::PathBuf;

use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote rescue`
#[derive(Debug, Args)]
pub struct Rescue {
    /// Snapshots too, each into a folder of its own
    #[arg(long)]
    pub snapshots: bool,
    /// Only these datasets and all below them; repeatable [default: the whole pool]
    #[arg(long, value_name = "DATASET")]
    pub dataset: Vec<String>,
    /// How many older transaction groups to try where the newest tree is broken
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub back: usize,
    /// Only say what could be read
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Pool
    pub pool: String,
    /// An empty or new folder
    pub destination: PathBuf,
}

impl Rescue {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}
