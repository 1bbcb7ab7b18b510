//! `zfs destroy`: datasets with what depends on them, snapshots in ranges, bookmarks.
//!
//! Idea: what goes with a dataset is a list in which everything comes after what depends on it: children, clones of its snapshots, the
//! snapshots, itself. The list is made and judged first, then worked off; neighbours in it that are snapshots go in one transaction group.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_destroy`), `libzfs_iter.c` (`zfs_iter_dependents`), whose words these are.

pub(super) mod dependents;
mod snapshots;

use cenote_dataset::dsl::InUse;
use cenote_dataset::engine::Engine;
use cenote_dataset::{Dataset, DatasetError, DatasetKind, Mos};
use clap::Args;

use super::pool_of;
use super::refusal::cannot;
use crate::outcome::{CliError, Outcome};
use crate::render::nice_bytes;
use crate::session::{Progress, Session, dataset, interrupted, print};

/// `zfs destroy`
#[derive(Debug, Args)]
#[command(
    after_help = "TARGET is a dataset, DATASET#BOOKMARK, or DATASET@SNAPSHOTS: names and ranges FIRST%LAST, comma-separated; an end that is left \
    out is the oldest or newest.\n\nExample: cenote zfs destroy -nv tank/home@monday%friday"
)]
pub struct Destroy {
    /// Everything below too; of snapshots, those of the same name below
    #[arg(short = 'r')]
    pub recursive: bool,
    /// The same, and clones, wherever they are
    #[arg(short = 'R')]
    pub with_clones: bool,
    /// Say what would be destroyed and destroy nothing
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Say what is destroyed, and how much that frees
    #[arg(short = 'v')]
    pub verbose: bool,
    /// The same for programs
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Accepted for habit: nothing is ever mounted
    #[arg(short = 'f')]
    pub force: bool,
    /// Snapshots that are held or have clones go when those are gone (`-d`)
    #[arg(long)]
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
            let work = async |engine: &Engine| engine.destroy_bookmark(&self.target).await.map_err(refused);
            return session.change_pool(pool, work).await;
        }
        if self.dry_run {
            let mos = session.open_pool_without_asking(pool).await?;
            self.plan(&mos).await?;
            return Ok(Outcome::Done);
        }
        session
            .change_pool(pool, async |engine| {
                let plan = self.plan(&engine.mos().await?).await?;
                let outcome = self.carry_out(engine, plan).await?;
                self.free(engine).await.map(|()| outcome)
            })
            .await
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

    /// What goes, in an order in which it can; says so if it is to.
    async fn plan(&self, mos: &Mos) -> Result<Vec<Dataset>, CliError> {
        match self.target.split_once('@') {
            Some((path, spec)) => self.plan_snapshots(&dataset(mos, path).await?, spec).await,
            None => self.plan_dataset(dataset(mos, &self.target).await?).await,
        }
    }

    async fn plan_dataset(&self, head: Dataset) -> Result<Vec<Dataset>, CliError> {
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
        for dataset in &plan {
            self.tell(dataset)?;
        }
        plan.retain(|dataset| dataset.name().contains(['/', '@']));
        Ok(plan)
    }

    /// Says that something goes.
    fn tell(&self, dataset: &Dataset) -> Result<(), CliError> {
        let name = dataset.name();
        match (self.parsable, self.verbose, self.dry_run) {
            (true, ..) => print(format!("destroy\t{name}\n")),
            (false, true, true) => print(format!("would destroy {name}\n")),
            (false, true, false) => print(format!("will destroy {name}\n")),
            (false, false, _) => Ok(()),
        }
    }

    /// Waits until what was destroyed is free: nobody goes on with it when this program ends.
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
                    let why = format!("interrupted; {name} is destroyed, its last {left} are freed when the pool is next changed");
                    return Err(CliError::Stopped(why));
                }
                done = engine.sync_all() => done?,
            }
            progress.set(total.saturating_sub(engine.mos().await?.freeing_bytes().await?));
        }
        progress.finish();
        Ok(())
    }

    /// Works the plan off. With `-r` what can't be destroyed does not keep the rest.
    async fn carry_out(&self, engine: &Engine, plan: Vec<Dataset>) -> Result<Outcome, CliError> {
        let mut outcome = Outcome::Done;
        let mut plan = plan.into_iter().peekable();
        while let Some(first) = plan.next() {
            let name = first.name().to_owned();
            let done = if first.kind().await? == DatasetKind::Snapshot {
                let mut names = vec![name.clone()];
                while let Some(next) = plan.next_if(Dataset::is_snapshot) {
                    names.push(next.name().to_owned());
                }
                let in_use = if self.defer { InUse::Defer } else { InUse::Refuse };
                let what = if names.len() == 1 { format!("snapshot {name}") } else { "snapshots".into() };
                engine.destroy_snapshots(&names, in_use).await.map_err(cannot(format!("destroy {what}")))
            } else {
                engine.destroy_dataset(&name).await.map_err(cannot(format!("destroy '{name}'")))
            };
            match done {
                Err(error) if self.is_recursive() => outcome = outcome.and(error.tell(&name)),
                done => done?,
            }
        }
        Ok(outcome)
    }
}
