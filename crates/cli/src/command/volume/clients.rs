//! `cenote volume clients`: who uses the volumes that the daemon serves.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Map, json};

use crate::command::json::document;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `cenote volume clients`
#[derive(Debug, Args)]
#[command(after_help = "`zpool export -f` sends them away.\n\nExample: cenote volume clients tank")]
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
        let Some(open) = session.pools() else {
            let why = "no daemon runs (`cenote serve`), so nothing is served";
            return Err(CliError::Refused(format!("cannot show clients: {why}")));
        };
        if let Some(name) = self.pools.iter().find(|name| open.get(name).is_none()) {
            return Err(CliError::NotFound(format!("cannot open '{name}': no such pool")));
        }
        let mut rows = Vec::new();
        for pool in open.all() {
            if self.pools.is_empty() || self.pools.contains(&pool.name) {
                rows.extend(pool.clients.list().into_iter().map(|client| (client.volume, client.who)));
            }
        }
        rows.sort();
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
