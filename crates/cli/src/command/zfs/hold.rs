//! `zfs hold`, `release`, `bookmark`.

use cenote_dataset::Mos;
use clap::Args;

use super::pool_of;
use super::refusal::cannot;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset};

/// `zfs hold`
#[derive(Debug, Args)]
#[command(
    after_help = "A held snapshot can't be destroyed.\n\nExample: cenote zfs hold -r keep tank/home@monday"
)]
pub struct Hold {
    /// The snapshots to hold
    #[command(flatten)]
    pub tagged: Tagged,
}

/// `zfs release`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs release -r keep tank/home@monday")]
pub struct Release {
    /// The snapshots to release
    #[command(flatten)]
    pub tagged: Tagged,
}

/// Snapshots and the tag of their hold.
#[derive(Debug, Args)]
pub struct Tagged {
    /// Include the snapshots of the same name of everything below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Tag of the hold
    pub tag: String,
    /// Snapshots
    #[arg(required = true)]
    pub snapshots: Vec<String>,
}

/// `zfs bookmark`
#[derive(Debug, Args)]
#[command(after_help = "Either name may omit the dataset.\n\n\
    Example: cenote zfs bookmark tank/home@monday '#monday'")]
pub struct Bookmark {
    /// The snapshot or bookmark to bookmark
    pub source: String,
    /// The new bookmark, DATASET#NAME
    pub bookmark: String,
}

impl Hold {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Tagged { recursive, tag, snapshots: names } = self.tagged;
        if tag.starts_with('.') {
            return Err(CliError::Usage("tag may not start with '.'".into()));
        }
        session
            .change_together(&names, pool_of, async |engine, names| {
                let mos = engine.mos().await?;
                let mut all = Vec::new();
                for name in names {
                    all.extend(snapshots(&mos, name, recursive).await?);
                }
                let held = cenote_tasks::hold_snapshots(engine, &all, &tag).await;
                held.map_err(cannot(format!("hold snapshot '{}'", names[0])))
            })
            .await
    }
}

impl Release {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let Tagged { recursive, tag, snapshots: names } = self.tagged;
        session
            .change_together(&names, pool_of, async |engine, names| {
                let what = format!("release hold from snapshot '{}'", names[0]);
                let mos = engine.mos().await?;
                let mut all = Vec::new();
                for name in names {
                    let mut meant = snapshots(&mos, name, recursive).await?;
                    if recursive {
                        meant = held(&mos, meant, &tag).await?;
                        if meant.is_empty() {
                            let why = format!("cannot {what}: no such tag on this dataset");
                            return Err(CliError::Refused(why));
                        }
                    }
                    all.extend(meant);
                }
                cenote_tasks::release_snapshots(engine, &all, &tag).await.map_err(cannot(&what))
            })
            .await
    }
}

/// The named snapshot and, if `recursive`, those of the same name below.
async fn snapshots(mos: &Mos, name: &str, recursive: bool) -> Result<Vec<String>, CliError> {
    let Some((path, own)) = name.split_once('@') else {
        return Err(CliError::Usage(format!("'{name}' is not a snapshot")));
    };
    if !recursive {
        dataset(mos, name).await?;
        return Ok(vec![name.to_owned()]);
    }
    let mut names = Vec::new();
    for head in dataset(mos, path).await?.descendants().await? {
        names.extend(head.snapshot(own).await?.map(|snapshot| snapshot.name().to_owned()));
    }
    match names.is_empty() {
        true => Err(CliError::NotFound(format!("no dataset at or below '{path}' has a snapshot '{own}'"))),
        false => Ok(names),
    }
}

/// Those that have a hold with this tag.
async fn held(mos: &Mos, names: Vec<String>, tag: &str) -> Result<Vec<String>, CliError> {
    let mut held = Vec::new();
    for name in names {
        if dataset(mos, &name).await?.holds().await?.iter().any(|(other, _)| other == tag) {
            held.push(name);
        }
    }
    Ok(held)
}

impl Bookmark {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (source, mark) = self.full_names().map_err(CliError::Usage)?;
        if pool_of(&source) != pool_of(&mark) {
            let why = "bookmark is in a different pool";
            return Err(CliError::Refused(format!("cannot create bookmark '{mark}': {why}")));
        }
        session
            .change_pool(pool_of(&mark), async |engine| {
                let made = cenote_tasks::bookmark(engine, &source, &mark).await;
                made.map_err(cannot(format!("create bookmark '{mark}'")))
            })
            .await
    }

    /// Source and bookmark with their datasets.
    pub(super) fn full_names(&self) -> Result<(String, String), String> {
        let (source, mark) = (&self.source, &self.bookmark);
        let Some(of_source) = source.find(['@', '#']) else {
            return Err(format!("invalid source name '{source}': must contain a '@' or '#'"));
        };
        let Some(of_mark) = mark.find('#') else {
            return Err(format!("invalid bookmark name '{mark}': must contain a '#'"));
        };
        match (of_source, of_mark) {
            (0, 0) => Err("either source or bookmark must be specified as full dataset paths".into()),
            (0, at) => Ok((format!("{}{source}", &mark[..at]), mark.clone())),
            (at, 0) => Ok((source.clone(), format!("{}{mark}", &source[..at]))),
            _ => Ok((source.clone(), mark.clone())),
        }
    }
}
