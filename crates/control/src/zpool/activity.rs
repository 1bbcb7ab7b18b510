//! Background work of a daemon: verbs that order it and wait for it.

use std::time::Duration;

use crate::error::{ControlError, Outcome};
use crate::session::Session;

pub mod condense;
pub mod ddtprune;
pub mod initialize;
mod passes;
pub mod prefetch;
pub mod resilver;
pub mod scans;
pub mod scrub;
pub mod trim;
pub mod wait;

/// Polling interval.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The named pools; with no names, all. Pools that the daemon can't open yet are reported, and fail.
async fn named_or_all(
    session: &Session,
    names: &[String],
    verb: &str,
) -> Result<(Vec<String>, Outcome), ControlError> {
    if !names.is_empty() {
        return Ok((names.to_vec(), Outcome::Done));
    }
    let mut outcome = Outcome::Done;
    for waiting in session.waiting(&[]) {
        let name = waiting.pool.name;
        let why = format!("cannot {verb} '{name}': pool is currently unavailable");
        outcome = outcome.and(session.caller().tell(&name, &ControlError::Refused(why)));
    }
    let all = match session.pools_to_change(&[]).await {
        // As in OpenZFS, a machine without pools is no error; disks named by the caller must have some.
        Err(ControlError::NotFound(why)) if session.disks().is_empty() => {
            session.caller().note(why);
            Vec::new()
        }
        found => found?,
    };
    Ok((all.iter().map(|pool| pool.name().to_owned()).collect(), outcome))
}
