//! Command line of `zfs snapshot`.

use cenote_control::zfs::points::snapshot::Snapshot as Request;
use cenote_control::zfs::properties::settings::Setting;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs snapshot`
#[derive(Debug, Args)]
#[command(after_help = "All snapshots are of the same moment; if one can't be taken, none is.\n\n\
    Example: cenote zfs snapshot -r tank/home@monday")]
pub struct Snapshot {
    /// Include all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// User property, with a colon in its name; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// DATASET@SNAPSHOT, all in one pool
    #[arg(required = true)]
    pub snapshots: Vec<String>,
}

impl Snapshot {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let usage = |why: String| CliError::Usage(format!("cannot create snapshots: {why}"));
        let settings = Setting::parse_all(&self.options).map_err(usage)?;
        let request = Request { snapshots: self.snapshots, recursive: self.recursive, settings };
        Ok(session.control().run(request).await?.outcome)
    }
}
