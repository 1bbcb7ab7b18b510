//! `cenote cp`: copies files and trees out of a pool and says what it could not copy.

use std::path::PathBuf;

use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote cp`
#[derive(Debug, Args)]
pub struct Cp {
    /// Folders with all that is in them
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Replace files that exist at the destination
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Contents only: no owners, modes, times, xattrs, ACLs
    #[arg(long)]
    pub no_metadata: bool,
    /// Go on after files that can't be read: copy what can, and list what can't
    #[arg(long)]
    pub partial: bool,
    /// Sources, each POOL/DATASET[@SNAPSHOT]:/PATH, then a folder (or, for one file, a name) of this system
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DESTINATION")]
    pub paths: Vec<PathBuf>,
}

impl Cp {
    /// Runs the command.
    pub async fn run(self, _session: &Session) -> Result<Outcome, CliError> {
        Err(CliError::Usage("not written yet".into()))
    }
}
