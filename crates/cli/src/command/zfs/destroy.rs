//! `zfs destroy`: datasets with their dependents, snapshots in ranges, bookmarks.
//!
//! Idea: the plan is a list in which everything follows its dependents: children, clones of the snapshots,
//! the snapshots, the dataset. The whole list is made and checked before anything is destroyed; adjacent
//! snapshots in it go in one transaction group.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_destroy`), `libzfs_iter.c` (`zfs_iter_dependents`), including the
//! wording.

pub(super) mod dependents;
mod report;
mod snapshots;

use cenote_dataset::{Dataset, DatasetKind, Mos};
use cenote_engine::Engine;
use cenote_object::DatasetError;
use cenote_tasks::InUse;
use clap::Args;

use super::pool_of;
use super::refusal::cannot;
use crate::outcome::{CliError, Outcome, Say};
use crate::render::nice_bytes;
use crate::session::{Progress, Session, dataset, interrupted};
use report::Report;

/// `zfs destroy`
#[derive(Debug, Args)]
#[command(
    after_help = "TARGET is a dataset, DATASET#BOOKMARK, or DATASET@SNAPSHOTS: comma-separated names and \
        ranges FIRST%LAST. A range without an end extends to the oldest or newest snapshot.\n\n\
        Example: cenote zfs destroy -nv tank/home@monday%friday"
)]
pub struct Destroy {
    /// Destroy everything below too; for snapshots, those of the same name below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Like -r, and destroy clones, wherever they are
    #[arg(short = 'R')]
    pub with_clones: bool,
    /// Say what would be destroyed and destroy nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Say what is destroyed, and how much that frees
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Say it in a form for scripts
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Accepted for compatibility: as with OpenZFS on Linux, what is in use stays mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// Destroy held or cloned snapshots once their holds and clones are gone
    #[arg(short = 'd', long)]
    pub defer: bool,
    /// What to destroy
    pub target: String,
}

impl Destroy {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let pool = pool_of(&self.target);
        if self.target.contains('#') {
            self.check_bookmark_options()?;
            let refused = |error| match error {
                DatasetError::NoDataset { .. } => {
                    CliError::Refused(format!("bookmark '{}' does not exist.", self.target))
                }
                error => cannot("destroy bookmark")(error),
            };
            let work = async |engine: &Engine| {
                cenote_tasks::destroy_bookmark(engine, &self.target).await.map_err(refused)
            };
            return session.change_pool(pool, work).await;
        }
        if self.dry_run {
            let mos = session.open_pool_without_asking(pool).await?;
            let (_, report) = self.plan(&mos).await?;
            report.print(session, &self)?;
            return Ok(Outcome::Done);
        }
        session
            .change_pool(pool, async |engine| {
                let (plan, report) = self.plan(&engine.mos().await?).await?;
                report.print(session, &self)?;
                let outcome = self.carry_out(session, engine, plan).await?;
                self.free(engine).await.map(|()| outcome)
            })
            .await
    }

    /// What would be destroyed.
    pub(super) async fn datasets(&self, mos: &Mos) -> Result<Vec<Dataset>, CliError> {
        Ok(self.plan(mos).await?.0)
    }

    fn check_bookmark_options(&self) -> Result<(), CliError> {
        let is_given =
            [("dryrun", self.dry_run), ("defer destroy", self.defer), ("recursive", self.is_recursive())];
        match is_given.into_iter().find(|(_, given)| *given) {
            Some((word, _)) => Err(CliError::Usage(format!("{word} is not supported with bookmark"))),
            None => Ok(()),
        }
    }

    fn is_recursive(&self) -> bool {
        self.recursive || self.with_clones
    }

    /// What to destroy, in a valid order, and what to print about it.
    async fn plan(&self, mos: &Mos) -> Result<(Vec<Dataset>, Report), CliError> {
        let mut report = Report::default();
        let plan = match self.target.split_once('@') {
            Some((path, spec)) => self.plan_snapshots(&dataset(mos, path).await?, spec, &mut report).await?,
            None => self.plan_dataset(dataset(mos, &self.target).await?, &mut report).await?,
        };
        Ok((plan, report))
    }

    async fn plan_dataset(&self, head: Dataset, report: &mut Report) -> Result<Vec<Dataset>, CliError> {
        let name = head.name();
        if self.defer {
            let why = "operation not applicable to datasets of this type";
            return Err(CliError::Refused(format!("cannot open '{name}': {why}")));
        }
        let is_root = !name.contains('/');
        if is_root && !self.is_recursive() {
            return Err(CliError::Refused(format!(
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
        plan.iter().for_each(|dataset| report.destroys(dataset));
        plan.retain(|dataset| dataset.name().contains(['/', '@']));
        Ok(plan)
    }

    /// Waits until the destroyed data is freed: no other process continues that after this program ends.
    async fn free(&self, engine: &Engine) -> Result<(), CliError> {
        let total = engine.mos().await?.freeing_bytes().await?;
        let progress = Progress::bytes(total, false);
        progress.message("freeing");
        while engine.is_freeing() {
            tokio::select! {
                biased;
                () = interrupted() => {
                    let left = nice_bytes(engine.mos().await?.freeing_bytes().await?);
                    let name = &self.target;
                    let why = format!(
                        "interrupted; {name} is destroyed, its last {left} are freed when the pool is next \
                         changed"
                    );
                    return Err(CliError::Stopped(why));
                }
                done = engine.sync_all() => done?,
            }
            progress.set(total.saturating_sub(engine.mos().await?.freeing_bytes().await?));
        }
        progress.finish();
        Ok(())
    }

    /// Carries out the plan. With `-r`, a failure does not stop the rest.
    async fn carry_out(
        &self,
        session: &Session,
        engine: &Engine,
        plan: Vec<Dataset>,
    ) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::Done;
        let mut plan = plan.into_iter().peekable();
        while let Some(first) = plan.next() {
            let name = first.name().to_owned();
            let done = if first.kind().await? == DatasetKind::Snapshot {
                let mut all = vec![first];
                all.extend(std::iter::from_fn(|| plan.next_if(Dataset::is_snapshot)));
                let in_use = if self.defer { InUse::Defer } else { InUse::Refuse };
                let what = if all.len() == 1 { format!("snapshot {name}") } else { "snapshots".into() };
                session
                    .destroy_snapshots(engine, &all, in_use)
                    .await
                    .map_err(cannot(format!("destroy {what}")))
            } else {
                let destroy = async || {
                    let done = cenote_tasks::destroy_dataset(engine, &name).await;
                    done.map_err(cannot(format!("destroy '{name}'")))
                };
                session.with_unmounted(&name, destroy).await
            };
            match done {
                Err(error) if self.is_recursive() => outcome = outcome.and(error.tell(&name)),
                done => done?,
            }
        }
        Ok(outcome)
    }
}
