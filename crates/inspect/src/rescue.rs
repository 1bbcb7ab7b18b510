//! Rescue: copies out everything readable from a damaged pool, and lists the rest.
//!
//! Idea: each uberblock in the ring is the root of the pool as it was a few seconds earlier, and little was
//! overwritten since. So parts missing from the newest tree are looked up in older ones: first the pool as a
//! whole, then each dataset, then each lost folder or file.
//!
//! ```text
//!   plan    names of all datasets      newest tree; datasets below a damaged name, from older ones
//!           each dataset               the newest tree in which it opens
//!   run     copy it (`copy`)           losses: damaged folders, files, ranges
//!           folders and files lost     the same path in older trees ------> recovered "from txg N"
//!           ranges lost                zeros in the copy; a snapshot with the complete file is named
//! ```
//!
//! A file with lost ranges stays as in the newest tree: mixed with older content it would become a file that
//! never existed. The report names a snapshot with the complete older version.
//!
//! Invariants: the pool is never written. An existing file at the destination is replaced only if the report
//! calls it incomplete or outdated, by one complete and newest. A file appears when its copy is finished,
//! after its row in the report if ranges are lost ([`record`]). So an interrupted rescue can be resumed, and
//! a loss stays in the report until the file is read completely.
//!
//! Memory: that of the copy, one block cache for all trees, and the rows of the report (rows about metadata
//! are limited to the first 10,000 of each dataset and run).
//!
//! Locking: a rescue owns its state. The copy's tasks report to a [`Scribe`], which takes its own lock before
//! the report's ([`record`]).

mod again;
mod dataset;
mod names;
mod options;
mod plan;
mod record;
mod report;
mod scribe;
mod trees;

use std::path::Path;
use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_pool::FoundPool;
use cenote_runtime::Runtime;
use rustix::io::Errno;

use crate::copy::{Copied, Copier, CopyOptions, Folder, Loss, LossKind};
use crate::error::{InspectError, Result};
use again::Again;

pub use options::RescueOptions;
pub use plan::{DatasetState, Planned};
pub use record::{Missing, Report};
use report::{Fate, Row};
use scribe::Scribe;
use trees::Trees;

/// The result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Counts of this run's copies.
    pub copied: Copied,
    /// Files that existed at the destination already.
    pub already_there: u64,
    /// Counts of losses at the destination after this run and earlier ones.
    pub missing: Missing,
}

impl Summary {
    /// Whether something is missing, or older than the pool's newest state.
    pub fn is_damaged(&self) -> bool {
        let missing = self.missing;
        let older = missing.recovered + missing.datasets_older + missing.datasets_inferred;
        missing.lost + missing.datasets_lost + older > 0
    }
}

/// A rescue of one pool.
pub struct Rescue {
    trees: Trees,
    options: RescueOptions,
    copier: Copier,
}

impl Rescue {
    /// Prepares a rescue; nothing is read yet.
    pub fn new(runtime: &Runtime, found: &FoundPool, options: RescueOptions) -> Rescue {
        let how = CopyOptions { replace: false, metadata: options.metadata, partial: true, stand_ins: true };
        let copier = Copier::new(runtime, how, |_| {});
        let trees = Trees::new(runtime, found, &options);
        Rescue { trees, options, copier }
    }

    /// Counters for progress, while [`Rescue::run`] is running.
    pub fn counters(&self) -> Copier {
        self.copier.clone()
    }

    /// Finds all datasets and the newest tree in which each opens.
    ///
    /// # Errors
    /// No tree of the pool opens at all.
    #[boxed]
    pub async fn plan(&mut self) -> Result<Vec<Planned>> {
        plan::plan(&mut self.trees, &self.options).await
    }

    /// Copies the plan to `destination`, and writes the report there. `on_dataset` is called with the next
    /// dataset.
    ///
    /// # Errors
    /// The destination or the report can't be written at all.
    pub async fn run(
        &mut self,
        plan: &[Planned],
        destination: &Path,
        report: &Report,
        mut on_dataset: impl FnMut(&Planned),
    ) -> Result<Summary> {
        let root = Folder::open(destination)
            .map_err(|errno| InspectError::io(destination.display().to_string())(errno.into()))?;
        // Create all folders first: parents may become read-only once their metadata is set.
        for planned in plan.iter().filter(|planned| matches!(planned.state, DatasetState::Opens { .. })) {
            dataset::folder_of(&root, &planned.name).map_err(|errno| failed(&planned.name, errno))?;
        }
        let mut summary = Summary::default();
        let mut unlisted = 0;
        for planned in plan {
            on_dataset(planned);
            let told = self.rescue_one(planned, &root, report).await?;
            summary.already_there += told.already_there;
            unlisted += told.unlisted;
        }
        summary.copied = self.copier.copied();
        summary.missing = report.finish()?;
        summary.missing.undressed += unlisted;
        Ok(summary)
    }

    async fn rescue_one(
        &mut self,
        planned: &Planned,
        root: &Folder,
        report: &Report,
    ) -> Result<scribe::Told> {
        let name = &planned.name;
        let whole = |fate, why: &String| report.add(Row::of_dataset(name, fate, why.clone()));
        let (txg, dataset) = match (&planned.state, planned.dataset()) {
            (DatasetState::Locked(why), _) => return whole(Fate::Locked, why).map(|()| Default::default()),
            (DatasetState::Lost(why), _) => return whole(Fate::Lost, why).map(|()| Default::default()),
            (DatasetState::Opens { .. }, None) => return Ok(Default::default()),
            (DatasetState::Opens { txg, .. }, Some(dataset)) => (*txg, dataset),
        };
        let scribe = Arc::new(Scribe::new(report, name, txg));
        if let Some(why) = &planned.newest_failed
            && !report.has_newer(name, txg)
        {
            whole(Fate::FromTxg(txg), why)?;
        }
        if let Some(why) = &planned.inferred {
            whole(Fate::Inferred, why)?;
        }
        dataset::copy(&self.copier.telling(scribe.clone()), dataset, root, name).await;
        let mut told = scribe.take()?;
        let mut again = Again::new(name, txg, root, report);
        for loss in std::mem::take(&mut told.losses).iter().filter(|loss| loss.is_damage()) {
            if let Some(better) = self.second_chance(&mut again, &scribe, dataset, loss).await? {
                report.add(better)?;
            }
        }
        if planned.newest_failed.is_none() {
            report.made_good(name, "");
        }
        Ok(told)
    }

    /// Looks for lost data in older trees and snapshots; returns a better row for the report.
    async fn second_chance(
        &mut self,
        again: &mut Again<'_>,
        scribe: &Scribe,
        dataset: &dataset::Opened,
        loss: &Loss,
    ) -> Result<Option<Row>> {
        let is_of_tree = matches!(loss.kind, LossKind::File | LossKind::Entries);
        let before = scribe.older(&loss.path).filter(|_| is_of_tree);
        if is_of_tree
            && let Some(txg) = again.copy_from_older(&mut self.trees, &self.copier, &loss.path).await?
        {
            // The copy of an earlier run was left unchanged.
            let txg = before.map_or(txg, |before| before.min(txg));
            return Ok(Some(again.report.row(again.name, loss, Fate::FromTxg(txg))));
        }
        if before.is_some() {
            return Ok(None);
        }
        let dataset::Opened::Filesystem { dataset, .. } = dataset else { return Ok(None) };
        let snapshot = again.in_snapshot(dataset, &loss.path).await;
        Ok(snapshot.map(|snapshot| again.report.row(again.name, loss, Fate::Lost).in_snapshot(&snapshot)))
    }
}

fn failed(name: &str, errno: Errno) -> InspectError {
    InspectError::io(format!("the folder of {name}"))(errno.into())
}
