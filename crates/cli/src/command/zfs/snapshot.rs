//! `zfs snapshot`: snapshots of several datasets at the same moment.

use std::collections::HashSet;

use cenote_dataset::Mos;
use cenote_object::DatasetError;
use clap::Args;

use super::refusal::cannot;
use super::{pool_of, settings};
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset};

/// `zfs snapshot`
#[derive(Debug, Args)]
#[command(after_help = "All snapshots show the same moment; if one can't be taken, none is.\n\n\
    Example: cenote zfs snapshot -r tank/home@monday")]
pub struct Snapshot {
    /// Include everything below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// A user property, with a colon in its name; repeatable
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// DATASET@SNAPSHOT, all in one pool
    #[arg(required = true)]
    pub snapshots: Vec<String>,
}

impl Snapshot {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let usage = |why: String| CliError::Usage(format!("cannot create snapshots: {why}"));
        let settings = settings::parse(&self.options, None).map_err(usage)?;
        let pool = pool_of(&self.snapshots[0]);
        if self.snapshots.iter().any(|name| pool_of(name) != pool) {
            return Err(usage("they must be in one pool".into()));
        }
        session
            .change_pool(pool, async |engine| {
                let names = self.names(&engine.mos().await?).await?;
                cenote_tasks::snapshot_with(engine, &names, settings)
                    .await
                    .map_err(|error| refused(error, &names))
            })
            .await
    }

    /// All snapshots to take.
    pub(super) async fn names(&self, mos: &Mos) -> Result<Vec<String>, CliError> {
        let mut names = Vec::new();
        for typed in &self.snapshots {
            let Some((path, own)) = typed.split_once('@') else {
                return Err(CliError::Usage(format!("'{typed}' is not a snapshot; use DATASET@SNAPSHOT")));
            };
            let head = dataset(mos, path).await?;
            let heads = if self.recursive { head.descendants().await? } else { vec![head] };
            names.extend(heads.iter().map(|head| format!("{}@{own}", head.name())));
        }
        // What is named twice is taken once.
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names)
    }
}

/// Names the snapshot that could not be taken, if one is to blame, and says that none was taken, if several
/// were asked for.
fn refused(error: DatasetError, names: &[String]) -> CliError {
    let what = match (&error, names) {
        (DatasetError::DatasetExists { name }, _) => format!("create snapshot '{name}'"),
        (_, [one]) => format!("create snapshot '{one}'"),
        _ => "create snapshots".into(),
    };
    match (cannot(what)(error), names) {
        (CliError::Refused(why), [_, _, ..]) => CliError::Refused(why + "\nno snapshots were created"),
        (error, _) => error,
    }
}
