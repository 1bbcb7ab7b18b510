//! Rescue: everything that can still be read from a damaged pool, copied out, and a list of what can't.
//!
//! Idea: a pool is not one tree but many: each uberblock of the ring is the root of the pool as it was a few seconds earlier,
//! and what was overwritten since is little. So whatever the newest tree can't give is looked for in the older ones,
//! part by part: the pool as a whole, then each dataset, then each folder or file that was lost.
//!
//! ```text
//!   plan    names of all datasets      newest tree; what hangs below a damaged name, from older ones
//!           each dataset               the newest tree in which it opens
//!   run     copy it (`copy`)           losses: damaged folders, files, ranges
//!           folders and files lost     the same path in older trees ------> recovered "from txg N"
//!           ranges lost                zeros in the copy; a snapshot that has the file whole is named
//! ```
//!
//! A file of which ranges are lost stays as the newest tree has it: mixing it with older content would make a file that never
//! was. Who wants the older one finds its name in the report.
//!
//! Invariants: nothing of the pool is written; nothing at the destination is replaced, so a rescue that was interrupted can be
//! taken up again: files appear there only when they are whole.
//!
//! Memory: what the copy takes, one block cache for all trees, and the losses of one dataset (of things about files, not their
//! content, the first 10,000).

mod again;
mod dataset;
mod plan;
mod report;
mod trees;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cenote_dataset::{ImportOptions, Txg};
use cenote_fs::{FsError, OpenFile, Volume};
use cenote_pool::FoundPool;
use cenote_runtime::Runtime;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::copy::{
    Copied, Copier, CopyOptions, CopySource, Folder, Loss, LossKind, Name, Reason, VolumeSink,
};
use crate::error::{InspectError, Result};
use again::Again;
pub use plan::{Planned, State};
pub use report::{Fate, Report, Row};
use trees::Trees;

/// Rows of a dataset about owners, times and the like: who copies as another user loses the same of every file.
const MOST_UNDRESSED: u64 = 10_000;

/// What to rescue.
#[derive(Debug, Clone)]
pub struct RescueOptions {
    /// How the pool is opened: keys, cache.
    pub import: ImportOptions,
    /// Snapshots too.
    pub snapshots: bool,
    /// Only these datasets and what is below them; all if empty.
    pub datasets: Vec<String>,
    /// How many older transaction groups to try.
    pub back: usize,
    /// Restore owners, modes, times and so on.
    pub metadata: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// What was copied.
    pub copied: Copied,
    /// Datasets that could not be opened at all.
    pub datasets_lost: u64,
    /// Datasets that an older transaction group gave: what was written to them since is lost.
    pub datasets_older: u64,
    /// Datasets whose keys were not given.
    pub datasets_locked: u64,
    /// Files, folders and ranges lost for good.
    pub lost: u64,
    /// Files and folders that an older transaction group gave.
    pub recovered: u64,
    /// Files that were at the destination already.
    pub already_there: u64,
    /// Things about files (owners, times, ...) that the destination could not take.
    pub undressed: u64,
}

impl Summary {
    /// Something is missing or older than the pool's newest state.
    pub fn is_damaged(&self) -> bool {
        self.lost + self.recovered + self.datasets_lost + self.datasets_older > 0
    }
}

/// A rescue of one pool.
pub struct Rescue {
    runtime: Runtime,
    trees: Trees,
    options: RescueOptions,
    copier: Copier,
    inbox: Arc<Inbox>,
}

/// Where copies tell their losses, until the dataset is done.
#[derive(Default)]
struct Inbox(Mutex<Told>);

#[derive(Default)]
struct Told {
    losses: Vec<Loss>,
    /// Things about files that the destination could not take, the first [`MOST_UNDRESSED`] of which are among the losses.
    undressed: u64,
}

impl Inbox {
    fn put(&self, loss: Loss) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !loss.is_content() {
            told.undressed += 1;
            if told.undressed > MOST_UNDRESSED {
                return;
            }
        }
        told.losses.push(loss);
    }

    fn take(&self) -> Told {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Rescue {
    /// Prepares a rescue; nothing is read yet.
    pub fn new(runtime: &Runtime, found: &FoundPool, options: RescueOptions) -> Rescue {
        let inbox = Arc::new(Inbox::default());
        let copier = copier(runtime, &inbox, options.metadata);
        let trees = Trees::new(runtime, found, &options);
        Rescue { runtime: runtime.clone(), trees, options, copier, inbox }
    }

    /// What is copied so far: for progress, while [`Rescue::run`] is under way.
    pub fn counters(&self) -> Copier {
        self.copier.clone()
    }

    /// Finds all datasets and the newest tree in which each opens.
    ///
    /// # Errors
    /// No tree of the pool opens at all.
    pub async fn plan(&mut self) -> Result<Vec<Planned>> {
        plan::plan(&mut self.trees, &self.options).await
    }

    /// Copies what was planned to `destination`, and writes the report there. `on_dataset` hears which dataset is next.
    ///
    /// # Errors
    /// The destination or the report can't be written at all.
    pub async fn run(
        &mut self,
        plan: &[Planned],
        destination: &Path,
        report: &mut Report,
        mut on_dataset: impl FnMut(&Planned),
    ) -> Result<Summary> {
        let root = Folder::open(destination)
            .map_err(|errno| InspectError::io(destination.display().to_string())(errno.into()))?;
        // All folders first: those of the datasets above may not be writable any more once they are dressed.
        for planned in plan.iter().filter(|planned| matches!(planned.state, State::Opens { .. })) {
            dataset::folder_of(&root, &planned.name).map_err(|errno| failed(&planned.name, errno))?;
        }
        let mut summary = Summary::default();
        for planned in plan {
            on_dataset(planned);
            self.rescue_one(planned, &root, report, &mut summary).await?;
        }
        summary.copied = self.copier.copied();
        report.finish()?;
        Ok(summary)
    }

    async fn rescue_one(
        &mut self,
        planned: &Planned,
        root: &Folder,
        report: &mut Report,
        summary: &mut Summary,
    ) -> Result<()> {
        let txg = match &planned.state {
            State::Locked(why) => {
                summary.datasets_locked += 1;
                return report.add(&Row::of_dataset(planned, Fate::Locked, why.clone()));
            }
            State::Lost(why) => {
                summary.datasets_lost += 1;
                return report.add(&Row::of_dataset(planned, Fate::Lost, why.clone()));
            }
            State::Opens { txg, .. } => *txg,
        };
        if let Some(why) = &planned.newest_failed {
            summary.datasets_older += 1;
            report.add(&Row::of_dataset(planned, Fate::FromTxg(txg), why.clone()))?;
        }
        let Some(dataset) = planned.dataset() else { return Ok(()) };
        dataset::copy(&self.copier, dataset, root, &planned.name).await;
        let Told { losses, undressed } = self.inbox.take();
        summary.undressed += undressed;
        let mut again = Again::new(&planned.name, txg, root);
        for loss in losses {
            self.settle(&mut again, dataset, loss, report, summary).await?;
        }
        Ok(())
    }

    /// Decides what becomes of a loss, after a second chance where there is one.
    async fn settle(
        &mut self,
        again: &mut Again<'_>,
        dataset: &dataset::Opened,
        loss: Loss,
        report: &mut Report,
        summary: &mut Summary,
    ) -> Result<()> {
        if is_there_already(&loss) {
            summary.already_there += 1;
            return Ok(());
        }
        if !loss.is_content() {
            return report.add(&Row::of_loss(again.name, &loss, Fate::NotKept, None));
        }
        let is_damage = loss.is_damage();
        if is_damage && matches!(loss.kind, LossKind::File | LossKind::Entries) {
            let from =
                again.copy_from_older(&mut self.trees, &self.runtime, self.options.metadata, &loss).await;
            if let Some(txg) = from {
                summary.recovered += 1;
                return report.add(&Row::of_loss(again.name, &loss, Fate::FromTxg(txg), None));
            }
        }
        let elsewhere = match (is_damage, dataset) {
            (true, dataset::Opened::Filesystem { dataset, .. }) => {
                again.in_snapshot(dataset, &loss.path).await
            }
            _ => None,
        };
        summary.lost += 1;
        report.add(&Row::of_loss(again.name, &loss, Fate::Lost, elsewhere))
    }
}

/// A copier that leaves zeros where content can't be read, replaces nothing and tells its losses to `inbox`.
fn copier(runtime: &Runtime, inbox: &Arc<Inbox>, metadata: bool) -> Copier {
    let options = CopyOptions { replace: false, metadata, partial: true };
    let inbox = inbox.clone();
    Copier::new(runtime, options, move |loss| inbox.put(loss))
}

/// The file is at the destination: an earlier rescue, or an older tree's copy of the same folder, made it.
fn is_there_already(loss: &Loss) -> bool {
    matches!((&loss.kind, &loss.reason), (LossKind::File, Reason::System(Errno::EXIST)))
}

fn failed(name: &str, errno: Errno) -> InspectError {
    InspectError::io(format!("the folder of {name}"))(errno.into())
}
