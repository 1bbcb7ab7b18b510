//! Command lines of `zpool export`, `destroy`, `sync`, and `labelclear`, which is about devices.

use cenote_control::zpool::whole;
use cenote_device::OpenOptions;
use cenote_pool::PoolState;
use cenote_pool::label::{clear_labels, read_labels};
use clap::Args;
use serde_json::json;

use crate::outcome::{CliError, Outcome, Printed};
use crate::session::{Session, print, print_json};

/// `zpool export`
#[derive(Debug, Args)]
#[command(
    after_help = "The daemon unmounts the pool's file systems and closes it. Without a daemon, every command \
        exports the pools it changes, so this verb is only for a pool left in use by another machine or an \
        interrupted command.\n\n\
        Example: cenote zpool export tank"
)]
pub struct Export {
    /// Export a pool that another machine has not exported (make sure that it no longer uses the pool); in
    /// the daemon, disconnect clients of its volumes, and close a suspended pool: changes not yet on disk are
    /// lost
    #[arg(short = 'f')]
    pub force: bool,
    /// Export all pools found
    #[arg(short = 'a', conflicts_with = "pools")]
    pub all: bool,
    /// Pools
    #[arg(required_unless_present = "all")]
    pub pools: Vec<String>,
}

/// `zpool destroy`
#[derive(Debug, Args)]
#[command(
    after_help = "The labels stay, marked as destroyed: `zpool import -D` shows the pool until its devices \
        are reused.\n\n\
        Example: cenote zpool destroy tank"
)]
pub struct Destroy {
    /// Accept a pool that another machine has not exported; in the daemon, disconnect clients of its volumes
    #[arg(short = 'f')]
    pub force: bool,
    /// The pool
    pub pool: String,
}

/// `zpool sync`
#[derive(Debug, Args)]
#[command(
    after_help = "Writes the changes that the daemon holds in memory. Without a daemon, no changes wait \
        between commands, so this only shows that the pool can be written.\n\n\
        Example: cenote zpool sync tank"
)]
pub struct Sync {
    /// Accepted for compatibility: a txg is always written
    #[arg(short = 'f')]
    pub force: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool labelclear`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool labelclear -f /dev/sdx1")]
pub struct LabelClear {
    /// Accept a device whose pool is exported or seems to be in use
    #[arg(short = 'f')]
    pub force: bool,
    /// The device, file, or address of a remote disk (nbd://HOST/EXPORT)
    pub device: std::path::PathBuf,
}

impl Export {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = whole::export::Export { pools: self.pools, force: self.force };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Destroy {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = whole::destroy::Destroy { pool: self.pool, force: self.force };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Sync {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = whole::sync::Sync { pools: self.pools };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl LabelClear {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let place = session.caller().place(&self.device)?;
        let device = session.open_device(&place, OpenOptions::EXCLUSIVE).await?;
        let labels = read_labels(&*device).await;
        let config = labels.iter().find_map(|label| label.config.as_ref());
        if let (Some(config), false) = (config, self.force) {
            let state = PoolState::from(config.get_u64("state").unwrap_or(0));
            // The device is not in use: a spare or cache device is left over from its pool.
            if !matches!(state, PoolState::Destroyed | PoolState::Spare | PoolState::L2cache) {
                let (device, state) = (device.describe(), state.to_string().to_lowercase());
                return Err(CliError::Usage(format!(
                    "{device} belongs to a pool that is {state}; use '-f' to clear its labels anyway"
                )));
            }
        }
        match clear_labels(&*device).await? {
            0 => Err(CliError::NotFound(format!("{} has no pool label", device.describe()))),
            count => Ok(Outcome::Done.printed(match session.json() {
                true => print_json(&json!({"device": device.describe(), "labels_cleared": count})),
                false => print(format!("{count} labels cleared\n")),
            })),
        }
    }
}
