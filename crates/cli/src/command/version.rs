//! `zpool version`, `zfs version`: which program this is.

use clap::Args;
use serde_json::json;

use super::json::document;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `zpool version`, `zfs version`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zpool version -j")]
pub struct Version {}

impl Version {
    /// Runs the command.
    pub fn run(self, session: &Session, tool: &str) -> Result<Outcome, CliError> {
        let name = concat!("cenote ", env!("CARGO_PKG_VERSION"));
        match session.json() {
            false => print(format!("{name}\n"))?,
            true => {
                // Cenote has no kernel module.
                let versions = json!({"userland": name, "kernel": "-"});
                let versions = versions.as_object().cloned().unwrap_or_default();
                print_json(&document(&format!("{tool} version"), "zfs_version", versions))?;
            }
        }
        Ok(Outcome::Done)
    }
}
