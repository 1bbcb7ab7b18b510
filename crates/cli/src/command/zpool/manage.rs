//! `zpool export`, `destroy`, `sync` and `labelclear`: who has a pool, and which devices belong to one.

use cenote_device::{Device, FileDevice, OpenOptions};
use cenote_pool::label::{clear_labels, read_labels};
use cenote_pool::{PoolError, PoolState};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// `zpool export`
#[derive(Debug, Args)]
#[command(
    after_help = "Every command leaves the pools that it changed exported. This is for a pool that another machine, or a command that was \
    interrupted, left in use.\n\nExample: cenote zpool export -f tank"
)]
pub struct Export {
    /// Take over a pool that another machine has not exported. Make sure that it does not use it any more
    #[arg(short = 'f')]
    pub force: bool,
    /// Every pool found
    #[arg(short = 'a', conflicts_with = "pools")]
    pub all: bool,
    /// Pools
    #[arg(required_unless_present = "all")]
    pub pools: Vec<String>,
}

/// `zpool destroy`
#[derive(Debug, Args)]
#[command(
    after_help = "The labels stay and say so: `zpool import -D` shows the pool until its devices are used for something else.\n\n\
    Example: cenote zpool destroy tank"
)]
pub struct Destroy {
    /// Also one that another machine has not exported
    #[arg(short = 'f')]
    pub force: bool,
    /// The pool
    pub pool: String,
}

/// `zpool sync`
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing waits in memory between commands: this writes one transaction group, and so shows that the pool takes changes.\n\n\
    Example: cenote zpool sync tank"
)]
pub struct Sync {
    /// Accepted for habit: a group is written even if nothing has changed
    #[arg(short = 'f')]
    pub force: bool,
    /// Pools [default: all]
    pub pools: Vec<String>,
}

/// `zpool labelclear`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool labelclear -f /dev/sdx1")]
pub struct LabelClear {
    /// Also a device whose pool is exported or seems to be in use
    #[arg(short = 'f')]
    pub force: bool,
    /// The device or file
    pub device: std::path::PathBuf,
}

impl Export {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::Done;
        for found in session.pools_to_change(&self.pools).await? {
            let exported = async {
                if !self.force {
                    session.check_unused(&found)?;
                }
                session.change_found(&found, PoolState::Exported, async |_| Ok(())).await
            };
            outcome = outcome.and(exported.await.unwrap_or_else(|error| error.tell(found.name())));
        }
        Ok(outcome)
    }
}

impl Destroy {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let found = session.find_pool(&self.pool).await?;
        if !self.force {
            session.check_unused(&found)?;
        }
        session.change_found(&found, PoolState::Destroyed, async |_| Ok(())).await
    }
}

impl Sync {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        for found in session.pools_to_change(&self.pools).await? {
            session.change_unused(&found, async |engine| Ok(engine.sync_all().await?)).await?;
        }
        Ok(Outcome::Done)
    }
}

impl LabelClear {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let device = FileDevice::open(&self.device, OpenOptions::EXCLUSIVE, session.runtime());
        let device = device.map_err(PoolError::from)?;
        let labels = read_labels(&device).await;
        let config = labels.iter().find_map(|label| label.config.as_ref());
        if let (Some(config), false) = (config, self.force) {
            let state = PoolState::from(config.get_u64("state").unwrap_or(0));
            if state != PoolState::Destroyed {
                let (device, state) = (device.describe(), state.to_string().to_lowercase());
                return Err(CliError::Usage(format!(
                    "{device} belongs to a pool that is {state}; use '-f' to clear its labels all the same"
                )));
            }
        }
        match clear_labels(&device).await? {
            0 => Err(CliError::NotFound(format!("{} has no label of a pool", device.describe()))),
            count => print(format!("{count} labels cleared\n")).map(|()| Outcome::Done),
        }
    }
}
