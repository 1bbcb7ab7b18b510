//! `cenote volume`: copies a zvol, or a snapshot of one, to a file or device.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote volume` and its verbs.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Copy a volume's content out, holes kept
    Cp(VolumeCp),
}

/// `cenote volume cp`
#[derive(Debug, Args)]
pub struct VolumeCp {
    /// Replace a file that exists
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Fill unreadable blocks with zeros, go on, and list them
    #[arg(long)]
    pub partial: bool,
    /// POOL/VOLUME[@SNAPSHOT]
    pub volume: String,
    /// A file (sparse where the volume has holes) or a block device; `-` for standard output
    pub destination: PathBuf,
}

impl VolumeCommand {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}
