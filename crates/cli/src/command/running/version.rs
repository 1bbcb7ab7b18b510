//! `zpool version`, `zfs version`: name and version of this program.

use cenote_control::Verb;
use cenote_control::running::version::Version as Answer;
use cenote_shown::running::version;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zpool version`, `zfs version`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool version -j")]
pub struct Version {}

impl Version {
    /// Runs the command, which is a request of one of the two tools.
    pub async fn run<V: Verb<Answer = Answer>>(
        self,
        session: &Session,
        request: V,
    ) -> Result<Outcome, CliError> {
        let answer = session.control().run(request).await?.answer;
        session.show(|| version::text(&answer), || version::json(&answer, V::NAME))?;
        Ok(Outcome::Done)
    }
}
