//! `zpool version`, `zfs version`: name and version of this program.

use cenote_control::Verb;
use cenote_control::running::version::Version as Answer;
use clap::Args;
use serde_json::json;

use crate::command::json::document;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

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
        let name = format!("cenote {}", session.control().run(request).await?.answer.cenote);
        match session.json() {
            false => print(format!("{name}\n"))?,
            true => {
                // Cenote has no kernel module.
                let versions = json!({"userland": name, "kernel": "-"});
                let versions = versions.as_object().cloned().unwrap_or_default();
                print_json(&document(V::NAME, "zfs_version", versions))?;
            }
        }
        Ok(Outcome::Done)
    }
}
