//! Command line of `zfs clone`.

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zfs::tree::clone::Clone as Request;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs clone`
#[derive(Debug, Args)]
#[command(
    after_help = "With -r, every descendant with a snapshot of that name is cloned to the same relative path \
        below the new dataset, all in one txg; `zfs destroy -r` removes the clones again. A dataset without \
        that snapshot is skipped with its descendants.\n\n\
        Example: cenote zfs clone -r tank/home@monday tank/look"
)]
pub struct Clone {
    /// Create missing parents too; an existing dataset is no error
    #[arg(short = 'p')]
    pub parents: bool,
    /// Include snapshots of the same name in all descendants
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Leave the clones unmounted; new parents are mounted
    #[arg(short = 'u')]
    pub no_mount: bool,
    /// Property to set; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// DATASET@SNAPSHOT
    pub snapshot: String,
    /// New dataset
    pub name: String,
}

impl Clone {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Clone { parents, recursive, options, snapshot, name, no_mount } = self;
        let refused = |why| CliError::Refused(format!("cannot create '{name}': {why}"));
        let settings = Setting::parse_all(&options).map_err(refused)?;
        let request = Request { snapshot, name, parents, recursive, settings, no_mount };
        Ok(session.control().run(request).await?.outcome)
    }
}
