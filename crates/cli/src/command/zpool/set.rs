//! Command line of `zpool set`.

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zpool::properties::set::Set as Request;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool set`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    cenote zpool set comment='the attic' tank\n  \
    cenote zpool set feature@zstd_compress=enabled tank")]
pub struct Set {
    /// Property: comment, compatibility, bootfs, ashift, autoexpand, autotrim, failmode..., feature@NAME, or
    /// a user property with a colon in its name
    #[arg(value_name = "PROPERTY=VALUE")]
    pub option: String,
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

impl Set {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let setting = Setting::parse(&self.option).map_err(CliError::Usage)?;
        let request = Request { setting, pools: self.pools };
        Ok(session.control().run(request).await?.outcome)
    }
}
