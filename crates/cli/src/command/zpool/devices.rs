//! Command lines of `zpool add`, `attach`, `detach`.

use cenote_control::zpool::joining::add::{Accept, Add as Request};
use cenote_control::zpool::joining::attach;
use cenote_control::zpool::layout::parse;
use cenote_control::zpool::leaves::detach;
use cenote_shown::zpool::layout;
use clap::Args;

use super::DeviceNames;
use super::create::ashift_option;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool add`
#[derive(Debug, Args)]
#[command(after_help = "Later commands write to the new vdevs, too.\n\n\
    Examples:\n  \
    truncate -s 1G e f\n  \
    cenote zpool add tank mirror e f")]
pub struct Add {
    /// Same as the next three options together
    #[arg(short = 'f')]
    pub force: bool,
    /// Accept devices with contents, such as another pool or a file system
    #[arg(long)]
    pub allow_in_use: bool,
    /// Accept vdevs of different redundancy
    #[arg(long)]
    pub allow_replication_mismatch: bool,
    /// Accept vdevs with a different sector size
    #[arg(long)]
    pub allow_ashift_mismatch: bool,
    /// Show the layout and change nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// ashift=N [default: the pool's, if set]
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// How devices are named
    #[command(flatten)]
    pub names: DeviceNames,
    /// The pool
    pub pool: String,
    /// New vdevs, as in `zpool create`
    #[arg(required = true, value_name = "VDEV")]
    pub vdevs: Vec<String>,
}

/// `zpool attach`
#[derive(Debug, Args)]
#[command(
    after_help = "DEVICE is a single disk, which becomes a mirror, or a device of a mirror. The new device \
        is resilvered, with each block verified. If the command is interrupted, the new device is part of \
        the pool but incomplete; `cenote zpool resilver` completes it, as does OpenZFS at import.\n\n\
        DEVICE may also be a RAID-Z, such as raidz1-0. Its blocks are spread over the new device, too, and \
        new blocks use wider rows. This can't be undone. Blocks are moved without verification, so scrub \
        first; another scrub follows. The expansion waits while a device of the vdev is missing. If \
        interrupted, it resumes in the daemon, with the same command, or in OpenZFS at import.\n\n\
        The daemon works in the background: `cenote zpool status` shows its progress. Without a daemon, the \
        command ends when all is done.\n\n\
        Examples:\n  \
        truncate -s 1G e\n  \
        cenote zpool attach tank a e"
)]
pub struct Attach {
    /// Accept a device with contents, such as another pool or a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Copy in disk order, then verify by a scrub (not RAID-Z)
    #[arg(short = 's')]
    pub sequential: bool,
    /// Wait until the device is complete, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// Accepted for compatibility: the vdev's ashift applies
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// The pool
    pub pool: String,
    /// Device of the pool: path, last path component or guid; or a RAID-Z
    pub device: String,
    /// New device
    pub new_device: String,
}

/// `zpool detach`
#[derive(Debug, Args)]
#[command(
    after_help = "The device's labels are cleared. A hot spare becomes available again. Detaching the new \
        device of a replacement cancels the replacement; detaching the old device completes it.\n\n\
        Example: cenote zpool detach tank b"
)]
pub struct Detach {
    /// The pool
    pub pool: String,
    /// Device of a mirror or a replacement: path, last path component or guid
    pub device: String,
}

impl Add {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request {
            pool: self.pool.clone(),
            layout: parse(&self.vdevs).map_err(CliError::Usage)?,
            ashift: ashift_option(&self.options)
                .map_err(|why| CliError::Refused(format!("cannot add to '{}': {why}", self.pool)))?,
            accept: Accept {
                in_use: self.force || self.allow_in_use,
                replication_mismatch: self.force || self.allow_replication_mismatch,
                ashift_mismatch: self.force || self.allow_ashift_mismatch,
            },
            dry_run: self.dry_run,
        };
        let answered = session.control().run(request).await?;
        if self.dry_run {
            let (pool, added) = (&self.pool, &answered.answer);
            session.show(
                || layout::added(pool, added, self.names.into()),
                || layout::json("zpool add", pool, &added.laid),
            )?;
        }
        Ok(answered.outcome)
    }
}

impl Attach {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Attach { force, sequential, wait, pool, device, new_device, .. } = self;
        let request = attach::Attach { pool, device, new_device, force, sequential, wait };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Detach {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = detach::Detach { pool: self.pool, device: self.device };
        Ok(session.control().run(request).await?.outcome)
    }
}
