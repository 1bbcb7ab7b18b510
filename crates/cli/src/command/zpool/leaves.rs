//! Command lines of `zpool offline`, `online`, `clear`, `reopen`.

use cenote_control::zpool::leaves::{clear, offline, online, reopen};
use clap::Args;

use crate::command::not_yet;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

const POWER: &str = "Switch the slot's power with the tools of its enclosure";

/// Devices of a pool.
#[derive(Debug, Args)]
pub struct Which {
    /// Not supported
    #[arg(long, hide = true)]
    pub power: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, last path component or guid
    #[arg(required = true, value_name = "DEVICE")]
    pub devices: Vec<String>,
}

/// `zpool offline`
#[derive(Debug, Args)]
#[command(
    after_help = "The device is neither read nor written until `zpool online`. Refused if no other device \
        has all its data.\n\n\
        Example: cenote zpool offline tank b"
)]
pub struct Offline {
    /// Mark the device as faulted instead; `zpool clear` brings it back
    #[arg(short = 'f', conflicts_with = "temporary")]
    pub fault: bool,
    /// Only until the pool is exported; needs the daemon
    #[arg(short = 't')]
    pub temporary: bool,
    /// Which devices
    #[command(flatten)]
    pub which: Which,
}

/// `zpool online`
#[derive(Debug, Args)]
#[command(after_help = "The devices are resilvered: by the daemon in the background, otherwise before the \
    command ends.\n\n\
    With -e, the vdev of each device grows to the size that its devices now have, if all of them work and \
    the smallest has grown by at least a metaslab. `zpool list -o expandsize` shows the gain. With \
    autoexpand=on, the daemon does this by itself.\n\n\
    Example: cenote zpool online tank b")]
pub struct Online {
    /// Use the space by which the device has grown
    #[arg(short = 'e')]
    pub expand: bool,
    /// Which devices
    #[command(flatten)]
    pub which: Which,
}

/// `zpool clear`
#[derive(Debug, Args)]
#[command(
    after_help = "Error counts return to 0. Faulted devices come back and are resilvered. A suspended pool \
        retries with the devices that are back.\n\n\
        Example: cenote zpool clear tank"
)]
pub struct Clear {
    /// Not supported
    #[arg(long, hide = true)]
    pub power: bool,
    /// The pool
    pub pool: String,
    /// Device: path, last path component or guid [default: all]
    pub device: Option<String>,
}

/// `zpool reopen`
#[derive(Debug, Args)]
#[command(
    after_help = "Missing devices that are found again are resilvered. A device without its labels, or with \
        those of another device, is taken out of use, unless no other device has its data.\n\n\
        Example: cenote zpool reopen tank"
)]
pub struct Reopen {
    /// Leave missing blocks to a later resilver
    #[arg(short = 'n')]
    pub no_resilver: bool,
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

impl Offline {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.which.power {
            return Err(not_yet::option("zpool offline --power", POWER));
        }
        let how = match () {
            () if self.fault => offline::How::Faulted,
            () if self.temporary => offline::How::Temporarily,
            () => offline::How::Offline,
        };
        let Which { pool, devices, .. } = self.which;
        Ok(session.control().run(offline::Offline { pool, devices, how }).await?.outcome)
    }
}

impl Online {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.which.power {
            return Err(not_yet::option("zpool online --power", POWER));
        }
        let Which { pool, devices, .. } = self.which;
        Ok(session.control().run(online::Online { pool, devices, expand: self.expand }).await?.outcome)
    }
}

impl Clear {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.power {
            return Err(not_yet::option("zpool clear --power", POWER));
        }
        let request = clear::Clear { pool: self.pool, device: self.device };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Reopen {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = reopen::Reopen { pools: self.pools, no_resilver: self.no_resilver };
        Ok(session.control().run(request).await?.outcome)
    }
}
