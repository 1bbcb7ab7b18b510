//! `zpool resilver`: brings devices what they lack.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_resilver`).

use cenote_engine::Engine;
use clap::Args;

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool resilver`
#[derive(Debug, Args)]
#[command(
    after_help = "Devices that were away while others wrote, or that joined a mirror, lack blocks, and the \
        pool knows which. They are put together from the other devices, verified, and written. The command \
        ends when that is done; `cenote zpool status` then shows it. With nothing to bring, nothing is \
        written.\n\n\
        Example: cenote zpool resilver tank"
)]
pub struct Resilver {
    /// Pools
    #[arg(required = true)]
    pub pools: Vec<String>,
}

impl Resilver {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        session.change_each(&self.pools, |pool| pool.as_str(), async |engine, _| bring(engine).await).await
    }
}

/// Brings all devices that are in use what they lack; tells which could not be.
pub async fn bring(engine: &Engine) -> Result<Outcome, CliError> {
    let done = cenote_tasks::resilver(engine, |_| {}).await?;
    let health = engine.pool().status();
    let mut names = Vec::new();
    health.root.walk(&mut |vdev| names.extend(done.incomplete.contains(&vdev.guid).then_some(&vdev.name)));
    for name in &names {
        say!("{name} could not be brought all that it lacks: see `cenote zpool status`");
    }
    Ok(if names.is_empty() { Outcome::Done } else { Outcome::Failed })
}
