//! Command line of `zpool split`.

use std::path::PathBuf;

use cenote_control::zfs::properties::settings::Setting;
use cenote_control::zpool::whole::split::Split as Request;
use cenote_shown::zpool::layout;
use clap::Args;

use super::DeviceNames;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool split`
#[derive(Debug, Args)]
#[command(
    after_help = "All top-level vdevs except logs must be mirrors. The new pool gets the last device of each \
        mirror, or the one given, and all datasets in their present state. Logs, caches and spares stay with \
        the old pool. Without -R, the new pool is left exported. If the command is interrupted, the old pool \
        still opens, with or without the devices.\n\n\
        Example: cenote zpool split tank attic"
)]
pub struct Split {
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// With -R, load the keys of encrypted datasets
    #[arg(short = 'l', requires = "altroot")]
    pub load_keys: bool,
    /// Show the new pool's layout and change nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Property of the new pool; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// Import the new pool into the daemon, mounted below this directory
    #[arg(short = 'R', value_name = "ROOT")]
    pub altroot: Option<PathBuf>,
    /// The pool
    pub pool: String,
    /// Name of the new pool
    pub new_pool: String,
    /// Devices of the new pool, one of each mirror: path, last path component or guid
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

impl Split {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let answered = session.control().run(self.request()?).await?;
        if self.dry_run {
            let (pool, devices, names) = (&self.new_pool, &answered.answer, self.names.into());
            session
                .show(|| layout::split(pool, devices, names), || layout::split_json(pool, devices, names))?;
        }
        Ok(answered.outcome)
    }

    fn request(&self) -> Result<Request, CliError> {
        Ok(Request {
            pool: self.pool.clone(),
            new_pool: self.new_pool.clone(),
            devices: self.devices.clone(),
            properties: Setting::parse_all(&self.options).map_err(CliError::Usage)?,
            altroot: self.altroot.clone(),
            load_keys: self.load_keys,
            dry_run: self.dry_run,
        })
    }
}
