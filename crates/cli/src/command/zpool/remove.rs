//! Command line of `zpool remove`.

use cenote_control::text::nice_number;
use cenote_control::zpool::leaves::remove::{Estimated, Order, Remove as Request};
use clap::Args;

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// `zpool remove`
#[derive(Debug, Args)]
#[command(
    after_help = "DEVICE is a hot spare that is not in use, a cache device, a log, or a disk or mirror with \
        data; a mirror is given by its name. To take a device out of a mirror, use `zpool detach`.\n\n\
        Data is copied to the other vdevs; then the devices leave, and the pool keeps a table of the new \
        addresses. All vdevs must have the same sector size, and none may be RAID-Z or dRAID. Copies are not \
        verified, so scrub first.\n\n\
        The daemon works in the background: `cenote zpool status` shows its progress. Without a daemon, the \
        command ends when all is done. If interrupted, the removal resumes in the daemon, with the same \
        command, or in OpenZFS at import.\n\n\
        Example: cenote zpool remove tank mirror-1"
)]
pub struct Remove {
    /// Print the memory that the table would take; change nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// With -n, print exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Cancel the removal in progress; the vdev stays
    #[arg(short = 's')]
    pub stop: bool,
    /// Wait for the end, as without a daemon
    #[arg(short = 'w', conflicts_with = "stop")]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, last path component or guid; mirrors by name
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
}

impl Remove {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let order = match () {
            () if self.stop && self.dry_run => {
                say!("stop request ignored");
                return Ok(Outcome::Done);
            }
            () if self.stop && !self.devices.is_empty() => {
                return Err(CliError::Usage("too many arguments".into()));
            }
            () if self.stop => Order::Stop,
            () if self.dry_run => Order::Estimate,
            () => Order::Remove,
        };
        let Remove { parsable, wait, pool, devices, .. } = self;
        let answered = session.control().run(Request { pool, devices, order, wait }).await?;
        let line = |Estimated { device, memory_bytes }: &Estimated| match parsable {
            true => format!("{device} {memory_bytes}\n"),
            false => {
                let bytes = nice_number(*memory_bytes);
                format!("Memory that will be used after removing {device}: {bytes}\n")
            }
        };
        print(answered.answer.iter().map(line).collect::<String>())?;
        Ok(answered.outcome)
    }
}
