//! `zpool checkpoint`: the state of a whole pool, kept to go back to.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_checkpoint`), `libzfs_pool.c` (`zpool_checkpoint`), whose words these are.

use cenote_dataset::engine::Engine;
use clap::Args;

use crate::command::zfs::refusal::cannot;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool checkpoint`
#[derive(Debug, Args)]
#[command(
    after_help = "What is freed from then on stays allocated. Look at the checkpoint with the option --checkpoint; `zpool import \
    --rewind-to-checkpoint` goes back to it for good.\n\n\
    Examples: cenote zpool checkpoint tank\n          cenote zpool checkpoint -d tank      no longer needed"
)]
pub struct Checkpoint {
    /// Give the checkpoint up, and with it the space that only it has
    #[arg(short = 'd', long)]
    pub discard: bool,
    /// Accepted for habit: a checkpoint is discarded when the command ends
    #[arg(short = 'w', long, requires = "discard")]
    pub wait: bool,
    /// The common option, without its short name
    #[arg(long, value_name = "DIR|FILE|DEVICE")]
    pub disks: Vec<std::path::PathBuf>,
    /// The pool
    pub pool: String,
}

impl Checkpoint {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let pool = &self.pool;
        let work = async |engine: &Engine| match self.discard {
            true => {
                let what = format!("discard checkpoint in '{pool}'");
                engine.discard_checkpoint().await.map_err(cannot(what))
            }
            false => engine.take_checkpoint().await.map_err(cannot(format!("checkpoint '{pool}'"))),
        };
        session.change_pool(pool, work).await
    }
}
