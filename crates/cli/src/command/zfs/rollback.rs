//! `zfs rollback`, `promote`: change a dataset's current state, or the owner of its snapshots.

use cenote_dataset::{Bookmark, Dataset, Mos};
use cenote_engine::Engine;
use cenote_tasks::InUse;
use clap::Args;

use super::destroy::dependents;
use super::pool_of;
use super::refusal::cannot;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, dataset};

/// How many newer snapshots and bookmarks a refusal names.
const MOST_NAMED: usize = 32;

/// `zfs rollback`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote zfs rollback -r tank/home@monday")]
pub struct Rollback {
    /// Destroy newer snapshots and bookmarks
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Destroy them and their clones
    #[arg(short = 'R')]
    pub with_clones: bool,
    /// Accepted for compatibility: nothing is ever mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// DATASET@SNAPSHOT
    pub snapshot: String,
}

/// `zfs promote`
#[derive(Debug, Args)]
#[command(
    after_help = "The clone becomes the owner of the snapshots it depends on, and its origin becomes its \
        clone.\n\n\
        Example: cenote zfs promote tank/home-test"
)]
pub struct Promote {
    /// The clone
    pub clone: String,
}

/// Snapshots and bookmarks newer than the rollback target.
struct Newer {
    /// Newest first.
    snapshots: Vec<Dataset>,
    marks: Vec<Bookmark>,
}

impl Rollback {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let name = &self.snapshot;
        let Some((path, _)) = name.split_once('@') else {
            return Err(CliError::Usage(format!("'{name}' is not a snapshot; use DATASET@SNAPSHOT")));
        };
        session
            .change_pool(pool_of(name), async |engine| {
                let newer = self.newer(&engine.mos().await?, path).await?;
                let clones = self.check(&newer).await?;
                destroy(session, engine, clones, newer).await?;
                let roll_back = async || {
                    cenote_tasks::rollback(engine, name).await.map_err(cannot(format!("rollback '{path}'")))
                };
                match session.held_by_name(pool_of(name)) {
                    Some(pool) => {
                        let mos = engine.mos().await?;
                        let (head, to) = (dataset(&mos, path).await?, dataset(&mos, name).await?);
                        let done = pool.mounts.replace_tree(&head, &to, roll_back).await;
                        done.map_err(|error| CliError::Refused(error.to_string()))?
                    }
                    None => roll_back().await,
                }
            })
            .await
    }

    /// What would be destroyed, and whether bookmarks would be.
    pub(super) async fn destroys(&self, mos: &Mos, path: &str) -> Result<(Vec<Dataset>, bool), CliError> {
        let newer = self.newer(mos, path).await?;
        let mut gone = self.check(&newer).await?;
        gone.extend(newer.snapshots);
        Ok((gone, !newer.marks.is_empty()))
    }

    async fn newer(&self, mos: &Mos, path: &str) -> Result<Newer, CliError> {
        let (to, head) = (dataset(mos, &self.snapshot).await?, dataset(mos, path).await?);
        let mut snapshots = head.snapshots().await?;
        snapshots.retain(|snapshot| snapshot.creation_txg() > to.creation_txg());
        snapshots.reverse();
        let mut marks = head.bookmarks().await?;
        marks.retain(|mark| mark.phys.creation_txg > to.creation_txg());
        Ok(Newer { snapshots, marks })
    }

    /// Refuses to destroy anything not covered by -r or -R; returns what depends on newer snapshots.
    async fn check(&self, newer: &Newer) -> Result<Vec<Dataset>, CliError> {
        let mut clones: Vec<Dataset> = Vec::new();
        for snapshot in &newer.snapshots {
            for dependent in dependents::of(snapshot).await? {
                if clones.iter().chain(&newer.snapshots).all(|other| other.id() != dependent.id()) {
                    clones.push(dependent);
                }
            }
        }
        if self.with_clones {
            return Ok(clones);
        }
        let name = &self.snapshot;
        if self.recursive {
            let names: Vec<&str> = clones.iter().map(Dataset::name).collect();
            return match names.is_empty() {
                true => Ok(clones),
                false => Err(CliError::Refused(format!(
                    "cannot rollback to '{name}': clones of previous snapshots exist\n\
                     use '-R' to force deletion of the following clones and dependents:\n{}",
                    names.join("\n")
                ))),
            };
        }
        let snapshots = newer.snapshots.iter().rev().map(Dataset::name);
        let mut names: Vec<&str> =
            snapshots.chain(newer.marks.iter().map(|mark| mark.name.as_str())).collect();
        if names.is_empty() {
            return Ok(clones);
        }
        let limited =
            if names.len() > MOST_NAMED { "\nOutput limited to 32 snapshots/bookmarks" } else { "" };
        names.truncate(MOST_NAMED);
        Err(CliError::Refused(format!(
            "cannot rollback to '{name}': more recent snapshots or bookmarks exist\n\
             use '-r' to force deletion of the following snapshots and bookmarks:\n{}{limited}",
            names.join("\n")
        )))
    }
}

async fn destroy(
    session: &Session,
    engine: &Engine,
    clones: Vec<Dataset>,
    newer: Newer,
) -> Result<(), CliError> {
    for dependent in clones {
        let name = dependent.name().to_owned();
        let gone = match dependent.is_snapshot() {
            true => session.destroy_snapshots(engine, &[dependent], InUse::Refuse).await,
            false => {
                let destroy = async || Ok(cenote_tasks::destroy_dataset(engine, &name).await);
                session.with_unmounted(&name, destroy).await?
            }
        };
        gone.map_err(cannot(format!("destroy '{name}'")))?;
    }
    if !newer.snapshots.is_empty() {
        session
            .destroy_snapshots(engine, &newer.snapshots, InUse::Refuse)
            .await
            .map_err(cannot("destroy snapshots"))?;
    }
    for mark in newer.marks {
        cenote_tasks::destroy_bookmark(engine, &mark.name).await.map_err(cannot("destroy bookmark"))?;
    }
    Ok(())
}

impl Promote {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let name = &self.clone;
        session
            .change_pool(pool_of(name), async |engine| {
                dataset(&engine.mos().await?, name).await?;
                cenote_tasks::promote(engine, name).await.map_err(cannot(format!("promote '{name}'")))
            })
            .await
    }
}
