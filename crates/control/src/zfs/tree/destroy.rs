//! `zfs destroy`: datasets with their dependents, snapshots in ranges, bookmarks.
//!
//! Idea: the plan is a list in which everything follows its dependents: children, clones of the snapshots,
//! the snapshots, the dataset. The whole list is checked before anything is destroyed; adjacent snapshots go
//! in one txg.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_destroy`), `libzfs_iter.c` (`zfs_iter_dependents`), including the
//! wording.

use std::collections::HashSet;

use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_dataset::{Dataset, DatasetKind, Mos};
use cenote_engine::Engine;
use cenote_format::units::DatasetId;
use cenote_object::DatasetError;
use cenote_tasks::InUse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dependents;
use super::ranges::{meant_by, runs};
use crate::caller::Progress;
use crate::error::{ControlError, Outcome};
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::text::nice_bytes;
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::head_of;

/// Destroy datasets, snapshots or bookmarks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Destroy {
    /// A dataset, `DATASET#BOOKMARK`, or `DATASET@SNAPSHOTS`: comma-separated names and ranges `FIRST%LAST`.
    /// An open range extends to the oldest or newest snapshot.
    pub target: String,
    /// Include everything below; for snapshots, those of the same name below.
    #[serde(default)]
    pub recursive: bool,
    /// The same, and clones anywhere.
    #[serde(default)]
    pub with_clones: bool,
    /// Defer held or cloned snapshots until holds and clones are gone.
    #[serde(default)]
    pub defer: bool,
    /// Report only; destroy nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Compute the space that destroying snapshots frees, which takes time.
    #[serde(default)]
    pub measure: bool,
}

/// The plan, or its result; empty for a bookmark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Planned {
    /// Datasets and snapshots, dependents first; without the snapshots' clones.
    pub names: Vec<String>,
    /// Bytes freed by destroying snapshots: 0 unless measured. None: not snapshots.
    pub reclaim_bytes: Option<u64>,
    /// Clones of the snapshots, and their dependents.
    pub clones: Vec<String>,
}

/// The target of an unfinished receive, if the name is that of its temporary head: a clone that nobody sees.
fn unfinished_receive(name: &str) -> Option<&str> {
    name.strip_suffix(RECV_CLONE_NAME)?.strip_suffix('/')
}

impl Verb for Destroy {
    const NAME: &'static str = "zfs destroy";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = Planned;

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let (mos, target) = (session.pool_to_ask(&self.target).await?, &self.target);
        let mut permissions = Permissions::to(match target.contains('@') {
            true => "destroy snapshots".into(),
            false => format!("destroy '{target}'"),
        });
        match target.contains('#') {
            true => permissions.need(&dataset(&mos, head_of(target)).await?, &["destroy"]),
            false => permissions.destroy(&self.plan(&mos).await?.0),
        }
        Ok(permissions)
    }

    /// # Errors
    /// The target is missing, has dependents, or is in use.
    async fn carry_out(self, session: &Session) -> Result<Answered<Planned>, ControlError> {
        let pool = pool_of(&self.target);
        if self.target.contains('#') {
            let outcome = self.destroy_bookmark(session).await?;
            return Ok(Answered { answer: Planned::default(), outcome });
        }
        if self.dry_run {
            let mos = session.open_pool_without_asking(pool).await?;
            return Ok(self.plan(&mos).await?.1.into());
        }
        let mut planned = Planned::default();
        let outcome = session.change_pool(pool, async |engine| {
            let plan = self.plan(&engine.mos().await?).await?;
            planned = plan.1;
            let outcome = self.destroy(session, engine, plan.0).await?;
            self.free(session, engine).await.map(|()| outcome)
        });
        let outcome = outcome.await?;
        Ok(Answered { answer: planned, outcome })
    }
}

impl Destroy {
    async fn destroy_bookmark(&self, session: &Session) -> Result<Outcome, ControlError> {
        let is_given =
            [("dryrun", self.dry_run), ("defer destroy", self.defer), ("recursive", self.is_recursive())];
        if let Some((word, _)) = is_given.into_iter().find(|(_, given)| *given) {
            return Err(ControlError::Usage(format!("{word} is not supported with bookmark")));
        }
        let refused = |error| match error {
            DatasetError::NoDataset { .. } => {
                ControlError::Refused(format!("bookmark '{}' does not exist.", self.target))
            }
            error => cannot("destroy bookmark")(error),
        };
        let work = async |engine: &Engine| {
            cenote_tasks::destroy_bookmark(engine, &self.target).await.map_err(refused)
        };
        session.change_pool(pool_of(&self.target), work).await
    }

    fn is_recursive(&self) -> bool {
        self.recursive || self.with_clones
    }

    /// The datasets to destroy, in a valid order, and the report.
    async fn plan(&self, mos: &Mos) -> Result<(Vec<Dataset>, Planned), ControlError> {
        let mut planned = Planned::default();
        let plan = match self.target.split_once('@') {
            Some((path, spec)) => self.plan_snapshots(&dataset(mos, path).await?, spec, &mut planned).await?,
            None => self.plan_dataset(dataset(mos, &self.target).await?, &mut planned).await?,
        };
        Ok((plan, planned))
    }

    async fn plan_dataset(&self, head: Dataset, planned: &mut Planned) -> Result<Vec<Dataset>, ControlError> {
        let name = head.name();
        if self.defer {
            let why = "operation not applicable to datasets of this type";
            return Err(ControlError::Refused(format!("cannot open '{name}': {why}")));
        }
        let is_root = !name.contains('/');
        if is_root && !self.is_recursive() {
            return Err(ControlError::Refused(format!(
                "cannot destroy '{name}': operation does not apply to pools\n\
                 use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
                 use 'zpool destroy {name}' to destroy the pool itself"
            )));
        }
        let mut plan = dependents::of(&head).await?;
        if !self.with_clones {
            dependents::refuse(&head, &plan, self.recursive).await?;
        }
        plan.push(head);
        planned.names.extend(plan.iter().map(|dataset| dataset.name().to_owned()));
        planned.names.retain(|name| unfinished_receive(name).is_none());
        plan.retain(|dataset| dataset.name().contains(['/', '@']));
        Ok(plan)
    }

    /// The selected snapshots, preceded by their clones if those go too.
    async fn plan_snapshots(
        &self,
        head: &Dataset,
        spec: &str,
        planned: &mut Planned,
    ) -> Result<Vec<Dataset>, ControlError> {
        let heads = if self.is_recursive() { head.descendants().await? } else { vec![head.clone()] };
        let (mut meant, mut reclaimed) = (Vec::new(), 0u64);
        for head in &heads {
            let all = head.snapshots().await?;
            let is_meant = meant_by(spec, &all);
            for (snapshot, _) in all.iter().zip(&is_meant).filter(|(_, meant)| **meant) {
                if !self.with_clones && !self.defer {
                    dependents::refuse(snapshot, &dependents::of(snapshot).await?, self.recursive).await?;
                }
                planned.names.push(snapshot.name().into());
                meant.push(snapshot.clone());
            }
            for run in runs(&is_meant).into_iter().filter(|_| self.measure) {
                reclaimed += all[run.start].reclaimable_through(&all[run.end - 1]).await?;
            }
        }
        if meant.is_empty() {
            let why = "could not find any snapshots to destroy; check snapshot names.";
            return Err(ControlError::Refused(why.into()));
        }
        planned.reclaim_bytes = Some(reclaimed);
        match self.with_clones {
            true => self.with_dependents(meant, planned).await,
            false => Ok(meant),
        }
    }

    /// Clones and their dependents, before the snapshots.
    async fn with_dependents(
        &self,
        snapshots: Vec<Dataset>,
        planned: &mut Planned,
    ) -> Result<Vec<Dataset>, ControlError> {
        let mut plan: Vec<Dataset> = Vec::new();
        let meant: HashSet<DatasetId> = snapshots.iter().map(Dataset::id).collect();
        let mut met = HashSet::new();
        for snapshot in snapshots {
            // A clone may have some of the other snapshots, which must go before it.
            for dependent in dependents::of(&snapshot).await? {
                if met.insert(dependent.id()) {
                    if !meant.contains(&dependent.id()) && unfinished_receive(dependent.name()).is_none() {
                        planned.clones.push(dependent.name().into());
                    }
                    plan.push(dependent);
                }
            }
            if met.insert(snapshot.id()) {
                plan.push(snapshot);
            }
        }
        Ok(plan)
    }

    /// Waits until the data is freed: after this program ends, no other process continues.
    async fn free(&self, session: &Session, engine: &Engine) -> Result<(), ControlError> {
        let (caller, total_bytes) = (session.caller(), engine.mos().await?.freeing_bytes().await?);
        while engine.frees().is_pending() {
            let left_bytes = engine.mos().await?.freeing_bytes().await?;
            let done_bytes = total_bytes.saturating_sub(left_bytes);
            caller.console.progress(Some(Progress { what: "freeing", done_bytes, total_bytes }));
            tokio::select! {
                biased;
                () = caller.interrupted() => {
                    let left = nice_bytes(engine.mos().await?.freeing_bytes().await?);
                    let name = &self.target;
                    caller.console.progress(None);
                    let why = format!(
                        "interrupted; {name} is destroyed, its last {left} are freed when the pool is next \
                         changed"
                    );
                    return Err(ControlError::Stopped(why));
                }
                done = engine.sync_all() => done?,
            }
        }
        caller.console.progress(None);
        Ok(())
    }

    /// Destroys the planned datasets. With `-r`, a failure does not stop the rest.
    async fn destroy(
        &self,
        session: &Session,
        engine: &Engine,
        plan: Vec<Dataset>,
    ) -> Result<Outcome, ControlError> {
        let mut outcome = Outcome::Done;
        let mut plan = plan.into_iter().peekable();
        while let Some(first) = plan.next() {
            let name = first.name().to_owned();
            let done = if first.kind().await? == DatasetKind::Snapshot {
                let mut all = vec![first];
                all.extend(std::iter::from_fn(|| plan.next_if(Dataset::is_snapshot)));
                let in_use = if self.defer { InUse::Defer } else { InUse::Refuse };
                let what = if all.len() == 1 { format!("snapshot {name}") } else { "snapshots".into() };
                session.destroy_snapshots(engine, &all, in_use).await.map_err(|error| match &error {
                    // Programs look for the snapshot that is in the way.
                    DatasetError::Busy { name, .. } if name.contains('@') => {
                        cannot(format!("destroy snapshot {name}"))(error.clone())
                    }
                    _ => cannot(format!("destroy {what}"))(error),
                })
            } else {
                let destroy = async || {
                    let done = match unfinished_receive(&name) {
                        Some(target) => cenote_tasks::abort_receive(engine, target).await.map(drop),
                        None => cenote_tasks::destroy_dataset(engine, &name).await,
                    };
                    done.map_err(cannot(format!("destroy '{name}'")))
                };
                session.with_unmounted(&name, destroy).await
            };
            match done {
                Err(error) if self.is_recursive() => {
                    outcome = outcome.and(session.caller().tell(&name, &error))
                }
                done => done?,
            }
        }
        Ok(outcome)
    }
}
