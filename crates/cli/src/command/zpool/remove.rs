//! Command line of `zpool remove`.

use cenote_control::zpool::leaves::remove::{Estimated, Order, Remove as Request};
use clap::Args;

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::render::nice_number;
use crate::session::{Session, print};

/// `zpool remove`
#[derive(Debug, Args)]
#[command(
    after_help = "DEVICE is a hot spare that is not in use, a cache device, a log, or a disk or mirror \
        that holds data: a device, or a mirror by its name. A device of a mirror is removed by `zpool \
        detach`.\n\n\
        What a vdev holds is copied to the others; then its devices leave, and the pool keeps a table of \
        where its blocks are. All vdevs must have the same sector size, and none may be a RAID-Z or dRAID. \
        The daemon does it in the background: `cenote zpool status` shows how far it is. Without a daemon \
        the command ends when it is done; if it is interrupted, the same command goes on, and so does \
        OpenZFS at import. Copies are not verified: scrub first.\n\n\
        Example: cenote zpool remove tank /img/s mirror-1"
)]
pub struct Remove {
    /// Change nothing: print the memory that the table will take
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// With -n: exact numbers
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Stop the removal in progress: the vdev stays
    #[arg(short = 's')]
    pub stop: bool,
    /// Wait until it is done, as without a daemon
    #[arg(short = 'w', conflicts_with = "stop")]
    pub wait: bool,
    /// The pool
    pub pool: String,
    /// Devices: path, the last component of it, or guid
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
