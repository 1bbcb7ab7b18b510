//! `cenote zpool`: what `zpool` shows, from the disks alone.

use clap::{Args, Subcommand};

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote zpool` and its verbs.
#[derive(Debug, Subcommand)]
pub enum Zpool {
    /// Find pools among the disks, or look whether one opens
    Import(Import),
    /// State of pools and their devices, and why
    Status(Status),
    /// Size, allocated and free space, fragmentation
    List(List),
    /// Properties and features
    Get(Get),
    /// Commands that have been run on the pool
    History(History),
    /// The pool's persistent error log and the events that its labels and history tell
    Events(Events),
}

/// `zpool import`
#[derive(Debug, Args)]
pub struct Import {
    /// Also show destroyed pools
    #[arg(short = 'D')]
    pub destroyed: bool,
    /// Options as for `zpool import`; only `readonly=on` is possible, and always on
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Open although another system seems to use the pool (reading does no harm)
    #[arg(short = 'f')]
    pub force: bool,
    /// Open with log devices missing
    #[arg(short = 'm')]
    pub missing_log: bool,
    /// Accepted for habit: nothing is ever mounted
    #[arg(short = 'N')]
    pub no_mount: bool,
    /// Look at the pool as of this transaction group, as `--txg`
    #[arg(short = 'T', value_name = "TXG")]
    pub rewind_txg: Option<u64>,
    /// Every pool found
    #[arg(short = 'a')]
    pub all: bool,
    /// Name or guid of the pool to open; without one, all that are found are listed
    pub pool: Option<String>,
}

/// `zpool status`
#[derive(Debug, Args)]
pub struct Status {
    /// List the files with known errors
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// JSON, as `--json`
    #[arg(short = 'j')]
    pub json: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool list`
#[derive(Debug, Args)]
pub struct List {
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Each device too
    #[arg(short = 'v')]
    pub verbose: bool,
    /// JSON, as `--json`
    #[arg(short = 'j')]
    pub json: bool,
    /// Columns, comma-separated
    #[arg(
        short = 'o',
        value_name = "COLUMNS",
        default_value = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot"
    )]
    pub columns: String,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool get`
#[derive(Debug, Args)]
pub struct Get {
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// JSON, as `--json`
    #[arg(short = 'j')]
    pub json: bool,
    /// Columns among name, property, value, source
    #[arg(short = 'o', value_name = "COLUMNS", default_value = "name,property,value,source")]
    pub columns: String,
    /// Properties, comma-separated, or `all`
    pub properties: String,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool history`
#[derive(Debug, Args)]
pub struct History {
    /// Internal events too
    #[arg(short = 'i')]
    pub internal: bool,
    /// User, host and zone of each command
    #[arg(short = 'l')]
    pub long: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool events`
#[derive(Debug, Args)]
pub struct Events {
    /// All fields of each
    #[arg(short = 'v')]
    pub verbose: bool,
    /// No header, tabs between columns
    #[arg(short = 'H')]
    pub script: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

impl Zpool {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}
