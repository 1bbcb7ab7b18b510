//! `zfs holds`: the holds that keep a snapshot from being destroyed.

use cenote_dataset::Dataset;

use serde_json::{Map, Value, json};

use super::Holds;
use crate::command::json::document;
use crate::outcome::{CliError, Outcome, Say};
use crate::render::{Align, Table, escape_terminal, short_time};
use crate::session::{Session, dataset, print, print_json};

impl Holds {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let header = [("NAME", Align::Left), ("TAG", Align::Left), ("TIMESTAMP", Align::Left)];
        let mut table = Table::new(header);
        let mut documents = Map::new();
        let mut outcome = Outcome::Done;
        for name in &self.snapshots {
            let snapshots = match self.snapshots_of(session, name).await {
                Ok(snapshots) => snapshots,
                Err(error) if self.snapshots.len() > 1 => {
                    outcome = outcome.and(error.tell(name));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for snapshot in snapshots {
                let holds = snapshot.holds().await?;
                if session.json() {
                    let holds: Map<String, Value> =
                        holds.iter().map(|(tag, seconds)| (tag.clone(), json!(seconds))).collect();
                    documents
                        .insert(snapshot.name().into(), json!({"name": snapshot.name(), "holds": holds}));
                    continue;
                }
                for (tag, seconds) in holds {
                    let time = match self.parsable {
                        true => seconds.to_string(),
                        false => short_time(seconds.cast_signed()),
                    };
                    let tag = escape_terminal(tag.as_bytes());
                    table.row([snapshot.name().to_owned(), tag, time]);
                }
            }
        }
        if session.json() {
            print_json(&document("zfs holds", "datasets", documents))?;
            return Ok(outcome);
        }
        print(table.text(self.script))?;
        Ok(outcome)
    }

    /// The named snapshot and, with `-r`, those of the same name below.
    async fn snapshots_of(&self, session: &Session, name: &str) -> Result<Vec<Dataset>, CliError> {
        let Some((path, snapshot)) = name.split_once('@') else {
            return Err(CliError::Usage(format!("'{name}' is not a snapshot; use DATASET@SNAPSHOT")));
        };
        let pool = path.split('/').next().unwrap_or_default();
        let mos = session.open_pool_without_asking(pool).await?;
        if !self.recursive {
            return Ok(vec![dataset(&mos, name).await?]);
        }
        let mut snapshots = Vec::new();
        for head in dataset(&mos, path).await?.descendants().await? {
            snapshots.extend(head.snapshot(snapshot).await?);
        }
        if snapshots.is_empty() {
            return Err(CliError::NotFound(format!(
                "no dataset at or below '{path}' has a snapshot '{snapshot}'"
            )));
        }
        Ok(snapshots)
    }
}
