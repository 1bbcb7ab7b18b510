//! `scan`: lists every file of datasets and snapshots, straight from dnodes and directories.
//!
//! Idea: a list is a stream in a format of its own, as that of `zfs send` is. It goes from the threads that
//! render it to the caller's descriptor, millions of files in seconds. A summary is the answer.

mod output;
mod select;

use cenote_inspect::scan::{Column, Columns};
use serde::{Deserialize, Serialize};

pub use cenote_inspect::scan::summary::{AGE_STEPS_DAYS, SIZE_STEPS, Summary, Totals};

use crate::error::{ControlError, Outcome};
use crate::files::Target;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Folders below one another that a summary tells apart.
const MOST_LEVELS: u32 = 1 << 16;

/// What is listed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Pools, datasets or snapshots.
    pub targets: Vec<Target>,
    /// All datasets below, too.
    #[serde(default)]
    pub recursive: bool,
    /// The newest snapshot of each dataset instead of it.
    #[serde(default)]
    pub latest: bool,
    /// Snapshots whose names match one of these patterns instead.
    #[serde(default)]
    pub snapshots: Vec<String>,
    /// Columns by name; none: the usual ones.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The SHA-256 of each file's content, too.
    #[serde(default)]
    pub hash: bool,
    /// How it is written.
    pub format: Format,
    /// The name of the file that it goes to, which is the first that comes with the request; none: to
    /// standard output.
    #[serde(default)]
    pub output: Option<String>,
}

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Not at all: the answer has totals.
    Summary {
        /// Folders down to this depth have their own.
        depth: u32,
    },
    /// One row per file, tabs between columns.
    Tsv {
        /// What ends a row.
        separator: Separator,
        /// The first row has the columns' names.
        has_header: bool,
    },
    /// The columns and notation of the golden pools' manifests, sorted by path, with content hashes.
    Manifest,
    /// One JSON object per line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

/// Row terminators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Separator {
    /// A line feed.
    Newline,
    /// A NUL byte; paths are then not escaped.
    Nul,
    /// The ASCII file separator, 0x1C; paths are then not escaped.
    Fs,
}

/// What was listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Scanned {
    /// File systems and snapshots. None: nothing was written.
    pub datasets: usize,
    /// Totals, if those were asked for.
    pub summary: Option<Summary>,
}

impl Verb for Scan {
    const NAME: &'static str = "scan";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = Scanned;

    /// # Errors
    /// A dataset is not there or, if it was named itself, can't be opened; the output takes no more. What is
    /// damaged is told of.
    async fn carry_out(self, session: &Session) -> Result<Answered<Scanned>, ControlError> {
        let columns = self.columns()?; // reports a wrong name before disks are searched
        use_small_pages();
        let (mut targets, mut outcome) = (Vec::new(), Outcome::Done);
        for target in &self.targets {
            let (found, told) = select::targets(session, &self, target).await?;
            targets.extend(found);
            outcome = outcome.and(told);
        }
        if targets.is_empty() && outcome != Outcome::Done {
            return Ok(Answered { answer: Scanned::default(), outcome });
        }
        if targets.is_empty() {
            return Err(ControlError::NotFound(
                "no file system or snapshot matches; `cenote zfs list -t all` shows them".into(),
            ));
        }
        let datasets = targets.len();
        let (summary, written) = output::write(session, &self, columns, targets).await?;
        Ok(Answered { answer: Scanned { datasets, summary }, outcome: written.and(outcome) })
    }
}

impl Scan {
    /// The selected columns, with the hash if that is asked for.
    fn columns(&self) -> Result<Columns, ControlError> {
        let mut columns = match self.columns.is_empty() {
            true => Columns::default().0,
            false => self
                .columns
                .iter()
                .map(|name| name.parse().map_err(ControlError::Usage))
                .collect::<Result<Vec<_>, _>>()?,
        };
        if self.hash && !columns.contains(&Column::Sha256) {
            columns.push(Column::Sha256);
        }
        Ok(Columns(columns))
    }
}

/// A scan's memory is many small pieces. In huge pages it takes half as much again, and the kernel zeroes
/// each page first: a quarter of the run time in a virtual machine. On bare metal, a short scan is a few per
/// cent slower without huge pages.
fn use_small_pages() {
    // A kernel that does not know huge pages, or can't disable them, is fine too.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
