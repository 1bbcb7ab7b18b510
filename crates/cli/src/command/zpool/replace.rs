//! Command lines of `zpool replace`, `zpool evacuate`.

use cenote_control::zpool::joining::{evacuate, replace};
use clap::Args;

use super::create::ashift_option;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool replace`
#[derive(Debug, Args)]
#[command(
    after_help = "NEW-DEVICE is brought all that DEVICE holds (resilvered), each block verified; then DEVICE \
        leaves the pool. DEVICE need not work, or be there, if others have what it holds. The daemon does it \
        in the background, otherwise it is done before the command ends; `zpool detach` of either ends it. \
        If it is interrupted, `cenote zpool resilver` goes on, and so does OpenZFS at import.\n\n\
        With -s what is in use is copied in the order of the disk, without a look at blocks, so that the \
        pool is redundant again sooner; a scrub follows, which verifies everything.\n\n\
        If NEW-DEVICE is a hot spare of the pool, DEVICE stays: once it works again, `zpool detach` of the \
        spare makes that available; `zpool detach` of DEVICE makes the spare stay for good; and when DEVICE \
        has been replaced by another one, the spare goes by itself.\n\n\
        Example: cenote zpool replace tank /img/b /img/e"
)]
pub struct Replace {
    /// Accept a device that holds something: another pool, a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Copy in the order of the disk, and verify afterwards by a scrub (only mirrors and dRAID)
    #[arg(short = 's')]
    pub sequential: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// ashift=N: accepted if it is no larger than that of the vdev
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// The pool
    pub pool: String,
    /// A device of the pool: its path, the last component of it, or its guid
    pub device: String,
    /// What takes its place [default: another device at the same path]
    pub new_device: Option<String>,
}

/// `zpool evacuate`
#[derive(Debug, Args)]
#[command(
    after_help = "For a device that still works, but not for long. NEW-DEVICE is brought what DEVICE holds, \
        and nothing else: DEVICE is read first, in the order of the disk, each block is verified, and what \
        DEVICE can't read is put together from the others. DEVICE stays in use meanwhile, even if it fails \
        often, so that the pool is as redundant as before; what others write goes to both. When NEW-DEVICE \
        has everything, DEVICE leaves the pool. On the disks it is OpenZFS's replacement: `zpool detach` of \
        either device ends it, and OpenZFS goes on with it at import.\n\n\
        Example: cenote zpool evacuate tank /img/b /img/e"
)]
pub struct Evacuate {
    /// Accept a device that holds something: another pool, a file system
    #[arg(short = 'f')]
    pub force: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w')]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// A device of the pool: its path, the last component of it, or its guid
    pub device: String,
    /// What takes its place
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
