//! `scan`: lists every file of datasets and snapshots, straight from dnodes and directories.
//!
//! Idea: a list is a stream in its own format, as in `zfs send`. It goes from the rendering threads to the
//! caller's descriptor, millions of files in seconds. The answer is a summary.

mod output;
mod select;

use cenote_inspect::scan::{Column, Columns};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cenote_inspect::scan::summary::{AGE_STEPS_DAYS, SIZE_STEPS, Summary, Totals};

use crate::error::{ControlError, Outcome};
use crate::files::Target;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Maximum depth of folders in a summary.
const MOST_LEVELS: u32 = 1 << 16;

/// List every file of datasets and snapshots, straight from the disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scan {
    /// Pools, datasets or snapshots.
    pub targets: Vec<Target>,
    /// Include all descendants.
    #[serde(default)]
    pub recursive: bool,
    /// The newest snapshot of each dataset instead.
    #[serde(default)]
    pub latest: bool,
    /// Snapshots that match one of these patterns instead.
    #[serde(default)]
    pub snapshots: Vec<String>,
    /// Columns by name; empty: the usual ones.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Include the SHA-256 of each file's content.
    #[serde(default)]
    pub hash: bool,
    /// Output format.
    pub format: Format,
    /// The output file's name; the file is the request's first. None: standard output.
    #[serde(default)]
    pub output: Option<String>,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Totals in the answer only.
    Summary {
        /// Depth of folders with their own totals.
        depth: u32,
    },
    /// One row per file, columns separated by tabs.
    Tsv {
        /// Row terminator.
        separator: Separator,
        /// A header row with column names.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Separator {
    /// Line feed.
    Newline,
    /// A NUL byte; paths are then not escaped.
    Nul,
    /// The ASCII file separator, 0x1C; paths are then not escaped.
    Fs,
}

/// The result of a scan.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Scanned {
    /// File systems and snapshots. None: nothing was written.
    pub datasets: usize,
    /// Totals, if requested.
    pub summary: Option<Summary>,
}

impl Verb for Scan {
    const NAME: &'static str = "scan";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = Scanned;

    /// # Errors
    /// A dataset is missing or, if named itself, can't be opened; the output takes no more. Damage is
    /// reported.
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

/// A scan's memory is many small pieces. Huge pages increase it by half, and the kernel zeroes each first: a
/// quarter of the run time in a virtual machine. On bare metal, a short scan is a few per cent slower without
/// them.
fn use_small_pages() {
    // Ignore kernels without huge pages, or that can't disable them.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
