//! Command lines of `zpool replace`, `zpool evacuate`.

use cenote_control::zpool::joining::{evacuate, replace};
use clap::Args;

use super::create::ashift_option;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool replace`
#[derive(Debug, Args)]
#[command(
    after_help = "Resilvers NEW-DEVICE, verifying each block, then detaches DEVICE. DEVICE may be broken or \
        missing if other devices have its data. `zpool detach` of either device ends the replacement. If \
        interrupted, it resumes in the daemon, with `cenote zpool resilver`, or in OpenZFS at import.\n\n\
        With -s, allocated space is copied in disk order without verification, so that redundancy returns \
        sooner. A scrub follows and verifies everything.\n\n\
        If NEW-DEVICE is a hot spare of the pool, DEVICE stays. When DEVICE works again, detach the spare to \
        make it available again. Detach DEVICE to keep the spare for good. If DEVICE is replaced by another \
        device, the spare returns by itself.\n\n\
        The daemon works in the background: `cenote zpool status` shows its progress. Without a daemon, the \
        command ends when all is done.\n\n\
        Examples:\n  \
        truncate -s 1G e\n  \
        cenote zpool replace tank b e"
)]
pub struct Replace {
    /// Accept a device with contents, such as another pool or a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Copy in disk order, then verify by a scrub (only mirrors and dRAID)
    #[arg(short = 's')]
    pub sequential: bool,
    /// Wait for the end, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// ashift=N, which must not exceed the vdev's
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// The pool
    pub pool: String,
    /// Device of the pool: path, last path component or guid
    pub device: String,
    /// New device [default: another device at the same path]
    pub new_device: Option<String>,
}

/// `zpool evacuate`
#[derive(Debug, Args)]
#[command(
    after_help = "DEVICE is read first, in disk order; each block is verified, and unreadable blocks are \
        rebuilt from other devices. Only DEVICE's blocks are copied. DEVICE stays in use meanwhile, even if \
        it fails often, so the pool keeps its redundancy; new writes go to both devices. When NEW-DEVICE is \
        complete, DEVICE leaves the pool.\n\n\
        On disk, this is an OpenZFS replacement: `zpool detach` of either device ends it, and OpenZFS \
        resumes it at import.\n\n\
        Examples:\n  \
        truncate -s 1G e\n  \
        cenote zpool evacuate tank b e"
)]
pub struct Evacuate {
    /// Accept a device with contents, such as another pool or a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Wait for the end, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Device of the pool: path, last path component or guid
    pub device: String,
    /// New device
    pub new_device: String,
}

impl Evacuate {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Evacuate { force, wait, pool, device, new_device } = self;
        let request = evacuate::Evacuate { pool, device, new_device, force, wait };
        Ok(session.control().run(request).await?.outcome)
    }
}

impl Replace {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let ashift = ashift_option(&self.options).map_err(CliError::Usage)?;
        let Replace { force, sequential, wait, pool, device, new_device, .. } = self;
        let request = replace::Replace { pool, device, new_device, force, sequential, wait, ashift };
        Ok(session.control().run(request).await?.outcome)
    }
}
