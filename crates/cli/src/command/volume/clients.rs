//! Command line and output of `cenote volume clients`.

use std::fmt::Write as _;

use cenote_control::volume::clients::{Client, Clients as Request};
use clap::Args;
use serde_json::{Map, json};

use crate::command::json::document;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `cenote volume clients`
#[derive(Debug, Args)]
#[command(after_help = "`zpool export -f` disconnects them.\n\n\
    Example: cenote volume clients tank")]
pub struct VolumeClients {
    /// No header, tabs between columns
    #[arg(short = 'H', long)]
    pub script: bool,
    /// Only of these pools
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
}

impl VolumeClients {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let answered = session.control().run(Request { pools: self.pools }).await?;
        let mut rows: Vec<_> =
            answered.answer.into_iter().map(|Client { volume, who }| (volume, who)).collect();
        if session.json() {
            let mut volumes = Map::new();
            for (volume, who) in rows {
                let entry = volumes.entry(volume).or_insert_with(|| json!({ "clients": [] }));
                if let Some(clients) = entry["clients"].as_array_mut() {
                    clients.push(who.into());
                }
            }
            print_json(&document("volume clients", "volumes", volumes))?;
            return Ok(Outcome::Done);
        }
        let width = rows.iter().map(|(volume, _)| volume.len()).chain(["VOLUME".len()]).max().unwrap_or(0);
        let mut text = String::new();
        if !self.script {
            rows.insert(0, ("VOLUME".into(), "CLIENT".into()));
        }
        for (volume, who) in rows {
            // Writing to a string can't fail.
            let _ = match self.script {
                true => writeln!(text, "{volume}\t{who}"),
                false => writeln!(text, "{volume:<width$}  {who}"),
            };
        }
        print(text)?;
        Ok(Outcome::Done)
    }
}
