//! Records the losses of one dataset's copy, and knows the losses of its earlier copies.
//!
//! Idea: a loss becomes a row of the report at once. Losses that may still be recovered (from an older tree
//! or a snapshot) are kept until the dataset is copied; a better row then replaces the first.
//!
//! Locking: tasks call concurrently. `told` is locked before the report, and held while a row is written, so
//! the row and the kept loss agree. `before` never changes.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use cenote_format::units::Txg;
use rustix::io::Errno;

use super::record::Report;
use super::report::{Fate, escaped, is_there_already};
use crate::copy::{Account, Loss, LossKind};
use crate::error::{InspectError, Result};

/// Most rows of a dataset about owners, times and so on: a copy by another user loses these for every file.
const MOST_UNDRESSED: u64 = 10_000;

/// Observes the copy of a dataset from one tree.
pub(super) struct Scribe {
    report: Report,
    dataset: String,
    before: Before,
    /// Whether an existing file is an earlier copy of the same file, rather than another file with its name.
    expects_copies: bool,
    told: Mutex<Told>,
}

/// Files that earlier runs left at the destination and that differ from this run's tree.
#[derive(Default)]
struct Before {
    /// The whole dataset.
    all: bool,
    /// These paths and everything below them, escaped.
    trees: HashSet<String>,
    /// Paths copied from older trees.
    older: HashMap<String, Txg>,
}

/// Losses kept until the dataset is copied.
#[derive(Default)]
pub(super) struct Told {
    /// Content missing at the destination, entirely or in part.
    pub losses: Vec<Loss>,
    /// Files that existed already.
    pub already_there: u64,
    /// Rows about metadata for which the report has no room.
    pub unlisted: u64,
    undressed: u64,
    failed: Option<InspectError>,
}

impl Scribe {
    /// For the copy of a dataset from the tree of `txg`.
    pub fn new(report: &Report, dataset: &str, txg: Txg) -> Scribe {
        let mut before = Before::default();
        for row in report.of_dataset(dataset) {
            if let Some(Fate::FromTxg(then)) = row.fate()
                && row.is_of_tree()
            {
                before.older.insert(row.path.clone(), then);
            }
            let is_older = |fate| match fate {
                Fate::FromTxg(then) => then < txg,
                fate => matches!(fate, Fate::Lost | Fate::Locked),
            };
            if row.fate().is_some_and(is_older) {
                match () {
                    () if row.is_of_dataset() => before.all = true,
                    () if row.is_of_tree() => _ = before.trees.insert(row.path),
                    () => {}
                }
            }
        }
        let expects_copies = report.is_resumed();
        let dataset = dataset.to_owned();
        Scribe { report: report.clone(), dataset, before, expects_copies, told: Mutex::default() }
    }

    /// For copying another copy's losses from older trees: existing files stay, unless incomplete.
    pub fn of_rest(report: &Report, dataset: &str) -> Scribe {
        Scribe {
            report: report.clone(),
            dataset: dataset.to_owned(),
            before: Before::default(),
            expects_copies: true,
            told: Mutex::default(),
        }
    }

    /// The txg of the tree from which an earlier run copied this path, if not the newest.
    pub fn older(&self, path: &[u8]) -> Option<Txg> {
        self.before.older.get(&escaped(path)).copied()
    }

    /// Takes the losses reported since the last call.
    ///
    /// # Errors
    /// The report can't be written.
    pub fn take(&self) -> Result<Told> {
        let mut told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        match told.failed.take() {
            Some(error) => Err(error),
            None => Ok(told),
        }
    }

    fn fate(&self, loss: &Loss, told: &mut Told) -> Option<Fate> {
        match &loss.kind {
            LossKind::Name(_) => Some(Fate::Renamed),
            LossKind::Node => Some(Fate::NotKept),
            _ if loss.is_content() => {
                told.losses.push(loss.clone());
                Some(Fate::Lost)
            }
            _ => {
                told.undressed += 1;
                if told.undressed > MOST_UNDRESSED {
                    told.unlisted += 1;
                    return None;
                }
                Some(Fate::NotKept)
            }
        }
    }
}

impl Account for Scribe {
    fn lost(&self, loss: Loss) -> Result<(), Errno> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if is_there_already(&loss) && self.expects_copies {
            told.already_there += 1;
            return Ok(());
        }
        let Some(fate) = self.fate(&loss, &mut told) else { return Ok(()) };
        if matches!(loss.kind, LossKind::File | LossKind::Entries) && self.older(&loss.path).is_some() {
            // It exists in an older tree's version, and the report says so.
            return Ok(());
        }
        self.report.put(self.report.row(&self.dataset, &loss, fate)).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            told.failed.get_or_insert(InspectError::io(self.report.path().display().to_string())(error));
            errno
        })
    }

    fn lacking(&self, path: &[u8]) -> Option<u64> {
        let path = escaped(path);
        if let Some(bytes) = self.report.lacking(&self.dataset, &path) {
            return Some(bytes);
        }
        let mut above = Some(&path[..]);
        let mut is_below_one = self.before.all;
        while let Some(tree) = above.filter(|_| !is_below_one && !self.before.trees.is_empty()) {
            is_below_one = self.before.trees.contains(if tree.is_empty() { "/" } else { tree });
            above = tree.rsplit_once('/').map(|(above, _)| above);
        }
        is_below_one.then_some(0)
    }

    fn whole(&self, path: &[u8]) {
        self.report.made_good(&self.dataset, &escaped(path));
    }
}
