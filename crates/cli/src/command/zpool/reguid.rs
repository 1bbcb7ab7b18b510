//! `zpool reguid`.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_reguid`), including the wording.

use cenote_control::refusal::cannot;
use cenote_engine::Engine;
use cenote_format::units::Guid;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool reguid`
#[derive(Debug, Args)]
#[command(after_help = "A copy of all devices of a pool is the same pool, by its guid: give one of the two \
        another. All devices have to be there.\n\n\
        Example: cenote zpool reguid tank")]
pub struct Reguid {
    /// The new guid [default: a random one]
    #[arg(short = 'g', value_name = "GUID", allow_hyphen_values = true, value_parser = guid)]
    pub guid: Option<u64>,
    /// The pool
    pub pool: String,
}

/// A number of 64 bits; as with strtoull(3), one below 0 counts from the end.
fn guid(typed: &str) -> Result<u64, std::num::ParseIntError> {
    match typed.strip_prefix('-') {
        Some(below) => below.parse().map(u64::wrapping_neg),
        None => typed.parse(),
    }
}

impl Reguid {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let what = format!("reguid '{}'", self.pool);
        let refused = |why: &str| CliError::Refused(format!("cannot {what}: {why}"));
        if self.guid == Some(0) {
            return Err(refused("0 is no guid"));
        }
        if let Some(guid) = self.guid.map(Guid) {
            let open = session.pools().is_some_and(|pools| pools.by_guid(guid).is_some());
            // Without a daemon, pools are those on the disks.
            let found = !open && session.pools().is_none() && {
                let discovery = session.discover().await;
                discovery.pools.iter().any(|pool| pool.guid() == guid)
            };
            if open || found {
                return Err(refused("a pool with that guid exists already"));
            }
        }
        let work = async |engine: &Engine| {
            cenote_tasks::change_guid(engine, self.guid.map(Guid)).await.map_err(cannot(&what))
        };
        let outcome = session.change_pool(&self.pool, work).await?;
        if let Some((pool, pools)) = session.held_by_name(&self.pool).zip(session.pools()) {
            pool.post(&pools.events, "sysevent.fs.zfs.pool_reguid");
        }
        Ok(outcome)
    }
}
