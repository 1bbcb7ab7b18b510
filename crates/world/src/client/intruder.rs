//! The other host: it tries to import the pool that this one has.
//!
//! Idea: it is a daemon of its own on a machine of its own, with the same disks. Its import must be refused,
//! with force and without, at any moment of this host's life, and change nothing: the oracle looks at the
//! pool as ever.

use std::time::Duration;

use cenote_control::Outcome;
use cenote_control::zpool::whole::import::{Import, Purpose};

use super::Stage;
use crate::hosts;
use crate::machine::daemon::Daemon;
use crate::machine::kernel::Kernel;
use crate::machine::{Machine, POOL};
use crate::oracle::Violation;

/// Between two attempts, at most.
const PAUSE: Duration = Duration::from_secs(20);

/// Tries to import the pool until clients stop. `host` has it.
///
/// # Errors
/// It succeeds.
pub async fn run(stage: &Stage, machine: &Machine, host: u64) -> Result<(), Violation> {
    let mut rng = stage.runtime.rng();
    while !stage.is_over() {
        stage.think(&mut rng, PAUSE).await;
        if stage.daemon.pools.get(POOL).is_none() || stage.is_over() {
            continue;
        }
        let force = rng.chance(0.7);
        stage.note(&format!("the other host imports the pool; force: {force}"));
        let other = stage.runtime.another_machine();
        stage.bay.lend(&other);
        let kernel = Kernel::new(&other, false);
        let daemon =
            Daemon::start(&other, machine, hosts::other(host), kernel, &[]).await.map_err(Violation)?;
        let (pool, purpose) = (Some(POOL.to_owned()), Purpose::Open);
        let import = Import { pool, purpose, force, load_keys: true, ..Import::default() };
        let (done, said) = daemon.run(import).await;
        if daemon.pools.get(POOL).is_some() {
            return Err(Violation(format!("two hosts have the pool; force: {force}; {said}")));
        }
        match done {
            Ok(answered) if answered.outcome == Outcome::Done => {
                return Err(Violation(format!(
                    "the other host's import did nothing, and says it succeeded: {said}"
                )));
            }
            Ok(_) => stage.note(&format!("the other host: {said}")),
            Err(error) => stage.note(&format!("the other host: {error} {said}")),
        }
    }
    Ok(())
}
