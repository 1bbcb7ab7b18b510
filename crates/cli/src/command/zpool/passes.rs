//! Command lines of `zpool initialize`, `zpool trim`.

use cenote_control::text::parse_bytes;
use cenote_control::zpool::activity::{initialize, trim};
use clap::Args;

use crate::command::not_yet;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool initialize`
#[derive(Debug, Args)]
#[command(
    after_help = "Writes to all free space once, so that storage that allocates at the first write does so \
        now. Not possible while a RAID-Z expands.\n\n\
        The daemon works in the background: `cenote zpool status -i` shows its progress. Without a daemon, \
        the command ends when all is done. If interrupted, the pass resumes in the daemon, or in OpenZFS at \
        import.\n\n\
        -z writes zeros, which thin storage without trim can give up; otherwise a pattern is written that is \
        not zero. A resumed pass writes what it wrote before.\n\n\
        Example: cenote zpool initialize tank"
)]
pub struct Initialize {
    /// Cancel the pass
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "uninit", "wait"])]
    pub cancel: bool,
    /// Suspend; the same command without options resumes
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["uninit", "wait"])]
    pub suspend: bool,
    /// Forget that the devices were initialized
    #[arg(short = 'u', long = "uninit", conflicts_with = "wait")]
    pub uninit: bool,
    /// Wait for the end, as without a daemon
    #[arg(short = 'w', long = "wait")]
    pub wait: bool,
    /// Write zeros
    #[arg(short = 'z', long = "zero", conflicts_with_all = ["cancel", "suspend", "uninit"])]
    pub zero: bool,
    /// All pools
    #[arg(short = 'a', long = "all")]
    pub all: bool,
    /// The pool
    #[arg(required_unless_present = "all")]
    pub pool: Option<String>,
    /// Devices: path, last path component or guid [default: all]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

/// `zpool trim`
#[derive(Debug, Args)]
#[command(
    after_help = "Discards free space: SSDs and thin storage can reuse it, and image files get holes. Not \
        possible while a RAID-Z expands.\n\n\
        The daemon works in the background: `cenote zpool status -t` shows its progress. Without a daemon, \
        the command ends when all is done. If interrupted, the pass resumes in the daemon, or in OpenZFS at \
        import.\n\n\
        Example: cenote zpool trim -r 100M tank"
)]
pub struct Trim {
    /// Cancel the pass
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["suspend", "wait", "rate"])]
    pub cancel: bool,
    /// Suspend; the same command without options resumes
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["wait", "rate"])]
    pub suspend: bool,
    /// Not supported
    #[arg(short = 'd', long = "secure", hide = true)]
    pub secure: bool,
    /// Limit in bytes per second
    #[arg(short = 'r', long = "rate", value_name = "RATE")]
    pub rate: Option<String>,
    /// Wait for the end, as without a daemon
    #[arg(short = 'w', long = "wait")]
    pub wait: bool,
    /// All pools
    #[arg(short = 'a', long = "all")]
    pub all: bool,
    /// The pool
    #[arg(required_unless_present = "all")]
    pub pool: Option<String>,
    /// Devices: path, last path component or guid [default: all]
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
        let Initialize { all, pool, devices, wait, zero, .. } = self;
        if all && pool.is_some() {
            return Err(CliError::Usage("-a cannot be combined with individual pools or vdevs".into()));
        }
        let request = initialize::Initialize { pool, devices, order, wait, zero };
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
        let Trim { all, pool, devices, wait, .. } = self;
        if all && pool.is_some() {
            return Err(CliError::Usage("-a cannot be combined with individual zpools or vdevs".into()));
        }
        let request = trim::Trim { pool, devices, order, rate_bytes, wait };
        Ok(session.control().run(request).await?.outcome)
    }
}
