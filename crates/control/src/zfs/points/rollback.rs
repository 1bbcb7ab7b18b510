//! `zfs rollback`: returns a dataset to the state of a snapshot.

use cenote_dataset::{Bookmark, Dataset, Mos};
use cenote_engine::Engine;
use cenote_tasks::InUse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::head_of;
use crate::zfs::tree::dependents;

/// Newer snapshots and bookmarks named in a refusal.
const MOST_NAMED: usize = 32;

/// Return a dataset to the state of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rollback {
    /// `DATASET@SNAPSHOT`.
    pub snapshot: String,
    /// Destroy newer snapshots and bookmarks.
    #[serde(default)]
    pub recursive: bool,
    /// Destroy them and their clones.
    #[serde(default)]
    pub with_clones: bool,
}

/// Snapshots and bookmarks newer than the rollback target.
struct Newer {
    /// Newest first.
    snapshots: Vec<Dataset>,
    marks: Vec<Bookmark>,
}

impl Verb for Rollback {
    const NAME: &'static str = "zfs rollback";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let (mos, name) = (session.pool_to_ask(&self.snapshot).await?, head_of(&self.snapshot));
        let mut permissions = Permissions::to(format!("rollback '{name}'"));
        let head = dataset(&mos, name).await?;
        permissions.need(&head, &["rollback"]);
        let (gone, has_marks) = self.destroys(&mos, name).await?;
        permissions.destroy(&gone);
        if has_marks {
            permissions.need(&head, &["destroy"]);
        }
        Ok(permissions)
    }

    /// # Errors
    /// Newer snapshots, bookmarks or clones that may not be destroyed.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let name = &self.snapshot;
        let Some((path, _)) = name.split_once('@') else {
            let text = format!("'{name}' is not a snapshot; use DATASET@SNAPSHOT");
            return Err(ControlError::Usage(text));
        };
        let done = session.change_pool(pool_of(name), async |engine| {
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
                    done.map_err(|error| ControlError::Refused(error.to_string()))?
                }
                None => roll_back().await,
            }
        });
        Ok(done.await?.into())
    }
}

impl Rollback {
    /// The datasets to destroy, and whether bookmarks go, too.
    async fn destroys(&self, mos: &Mos, path: &str) -> Result<(Vec<Dataset>, bool), ControlError> {
        let newer = self.newer(mos, path).await?;
        let mut gone = self.check(&newer).await?;
        gone.extend(newer.snapshots);
        Ok((gone, !newer.marks.is_empty()))
    }

    async fn newer(&self, mos: &Mos, path: &str) -> Result<Newer, ControlError> {
        let (to, head) = (dataset(mos, &self.snapshot).await?, dataset(mos, path).await?);
        let mut snapshots = head.snapshots().await?;
        snapshots.retain(|snapshot| snapshot.creation_txg() > to.creation_txg());
        snapshots.reverse();
        let mut marks = head.bookmarks().await?;
        marks.retain(|mark| mark.phys.creation_txg > to.creation_txg());
        Ok(Newer { snapshots, marks })
    }

    /// Refuses to destroy anything not covered by -r or -R; returns dependents of newer snapshots.
    async fn check(&self, newer: &Newer) -> Result<Vec<Dataset>, ControlError> {
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
                false => Err(ControlError::Refused(format!(
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
        Err(ControlError::Refused(format!(
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
) -> Result<(), ControlError> {
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
