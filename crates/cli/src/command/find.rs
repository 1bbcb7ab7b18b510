//! `cenote find`: files by name, type, size, age, owner, of one dataset or a folder in it.

use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote find`
#[derive(Debug, Args)]
pub struct Find {
    /// Shell pattern that the name must match; repeatable (any of them)
    #[arg(long, value_name = "GLOB")]
    pub name: Vec<String>,
    /// Shell pattern that the whole path must match
    #[arg(long, value_name = "GLOB")]
    pub path: Option<String>,
    /// f file, d folder, l symbolic link, p fifo, s socket, b block device, c character device
    #[arg(long = "type", value_name = "LETTERS")]
    pub kind: Option<String>,
    /// At least (+), at most (-) or just this size: +1M, -4096
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// Changed within this time (-) or before (+): -2d, +1y; units s, m, h, d, w, y
    #[arg(long, value_name = "[+-]AGE", allow_hyphen_values = true)]
    pub mtime: Option<String>,
    /// Owner's number
    #[arg(long)]
    pub uid: Option<u64>,
    /// Group's number
    #[arg(long)]
    pub gid: Option<u64>,
    /// Born (its dnode last written) after this transaction group
    #[arg(long, value_name = "TXG")]
    pub newer_txg: Option<u64>,
    /// End each path with a NUL byte, unescaped
    #[arg(short = '0', long)]
    pub print0: bool,
    /// With type, mode, owner, size and time
    #[arg(short = 'l', long)]
    pub long: bool,
    /// POOL/DATASET[@SNAPSHOT][:/PATH]
    #[arg(required = true, value_name = "DATASET[:/PATH]")]
    pub targets: Vec<String>,
}

impl Find {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}
