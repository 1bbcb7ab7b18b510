//! Command line of `zpool reguid`.

use cenote_control::zpool::whole::reguid::Reguid as Request;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool reguid`
#[derive(Debug, Args)]
#[command(after_help = "A copy of all devices of a pool has the pool's guid: give one of the two another \
    guid. All devices must be present.\n\n\
    Example: cenote zpool reguid tank")]
pub struct Reguid {
    /// New guid [default: a random one]
    #[arg(short = 'g', value_name = "GUID", allow_hyphen_values = true, value_parser = guid)]
    pub guid: Option<u64>,
    /// The pool
    pub pool: String,
}

/// A 64-bit number; a negative one wraps around, as in strtoull(3).
fn guid(typed: &str) -> Result<u64, std::num::ParseIntError> {
    match typed.strip_prefix('-') {
        Some(below) => below.parse().map(u64::wrapping_neg),
        None => typed.parse(),
    }
}

impl Reguid {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request { pool: self.pool, guid: self.guid };
        Ok(session.control().run(request).await?.outcome)
    }
}
