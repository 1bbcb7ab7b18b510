//! `zpool checkpoint`: saves the state of the whole pool to rewind to.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_checkpoint`), `libzfs_pool.c` (`zpool_checkpoint`), including
//! the wording.

use cenote_control::refusal::cannot;
use cenote_engine::Engine;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool checkpoint`
#[derive(Debug, Args)]
#[command(
    after_help = "Data freed later stays allocated. The option --checkpoint opens the checkpoint; `zpool \
        import --rewind-to-checkpoint` rewinds to it permanently.\n\n\
        Examples: cenote zpool checkpoint tank\n          \
        cenote zpool checkpoint -d tank      no longer needed"
)]
pub struct Checkpoint {
    /// Discard the checkpoint and free the space that only it uses
    #[arg(short = 'd', long)]
    pub discard: bool,
    /// Accepted for compatibility: the checkpoint is discarded when the command ends
    #[arg(short = 'w', long, requires = "discard")]
    pub wait: bool,
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
                cenote_tasks::discard_checkpoint(engine).await.map_err(cannot(what))
            }
            false => {
                cenote_tasks::take_checkpoint(engine).await.map_err(cannot(format!("checkpoint '{pool}'")))
            }
        };
        session.change_pool(pool, work).await
    }
}
