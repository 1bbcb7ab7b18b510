//! Command lines of `zpool initialize`, `zpool trim`.

use cenote_control::zpool::work::{initialize, trim};
use clap::Args;

use crate::command::not_yet;
use crate::outcome::{CliError, Outcome};
use crate::render::parse_bytes;
use crate::session::Session;

/// `zpool initialize`
#[derive(Debug, Args)]
#[command(
    after_help = "Free space is written once, so that storage which allocates at the first write does so \
        now. The daemon does it in the background: `cenote zpool status -i` shows how far it is. Without a \
        daemon the command ends when all is done. If it is interrupted, the daemon goes on, and so does \
        OpenZFS at import. Not while a RAID-Z is being expanded.\n\n\
        Example: cenote zpool initialize tank /img/b"
)]
pub struct Initialize {
    /// Stop for good
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "uninit", "wait"])]
    pub cancel: bool,
    /// Suspend; the same command without options goes on
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["uninit", "wait"])]
    pub suspend: bool,
    /// Forget that the devices were initialized
    #[arg(short = 'u', long = "uninit", conflicts_with = "wait")]
    pub uninit: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w', long = "wait")]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, the last component of it, or guid [default: all]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

/// `zpool trim`
#[derive(Debug, Args)]
#[command(
    after_help = "Devices are told what is free, so that they may forget it: SSDs, thin storage, and image \
        files, in which it becomes holes. The daemon does it in the background: `cenote zpool status -t` \
        shows how far it is. Without a daemon the command ends when all is done. If it is interrupted, the \
        daemon goes on, and so does OpenZFS at import. Not while a RAID-Z is being expanded.\n\n\
        Example: cenote zpool trim -r 100M tank"
)]
pub struct Trim {
    /// Stop for good
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "wait", "rate"])]
    pub cancel: bool,
    /// Suspend; the same command without options goes on
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["wait", "rate"])]
    pub suspend: bool,
    /// Not supported
    #[arg(short = 'd', long = "secure", hide = true)]
    pub secure: bool,
    /// At most so many bytes a second
    #[arg(short = 'r', long = "rate", value_name = "RATE")]
    pub rate: Option<String>,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w', long = "wait")]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, the last component of it, or guid [default: all]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

impl Initialize {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let order = match () {
            () if self.cancel => initialize::Order::Cancel,
            () if self.suspend => initialize::Order::Suspend,
            () if self.uninit => initialize::Order::Forget,
            () => initialize::Order::Start,
        };
        let Initialize { pool, devices, wait, .. } = self;
        let request = initialize::Initialize { pool, devices, order, wait };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Trim {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.secure {
            let instead = "Import the pool with OpenZFS and trim its devices there";
            return Err(not_yet::option("zpool trim -d", instead));
        }
        let rate_bytes = match &self.rate {
            None => 0,
            Some(text) => parse_bytes(text).ok_or_else(|| {
                CliError::Usage(format!("invalid value for rate '{text}': bad numeric value"))
            })?,
        };
        let order = match () {
            () if self.cancel => trim::Order::Cancel,
            () if self.suspend => trim::Order::Suspend,
            () => trim::Order::Start,
        };
        let Trim { pool, devices, wait, .. } = self;
        let request = trim::Trim { pool, devices, order, rate_bytes, wait };
        Ok(session.control().run(request).await?.outcome)
    }
}
