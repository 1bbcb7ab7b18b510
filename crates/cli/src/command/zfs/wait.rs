//! Command line of `zfs wait`.

use cenote_control::zfs::wait::{Activity, Wait as Request};
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs wait`
#[derive(Debug, Args)]
#[command(after_help = "Open files count until they are closed. Needs a daemon (`cenote serve`) that holds \
    the pool.\n\n\
    Example: cenote zfs wait -t deleteq tank/home")]
pub struct Wait {
    /// Activities to wait for, comma-separated: deleteq [default: all]
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',', value_parser = activity)]
    pub activities: Vec<Activity>,
    /// The file system
    pub filesystem: String,
}

/// Reads an activity; an unknown one is refused in OpenZFS's words.
fn activity(typed: &str) -> Result<Activity, String> {
    let found = Activity::ALL.into_iter().find(|activity| activity.name() == typed);
    found.ok_or_else(|| format!("invalid activity '{typed}'; known: deleteq"))
}

impl Wait {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Wait { activities, filesystem } = self;
        let answered = session.control().run(Request { filesystem, activities }).await?;
        Ok(answered.outcome)
    }
}
