//! Results: one folder per run of a suite, which holds all the evidence and is never overwritten.
//!
//! ```text
//! pools-20261122T024126Z/
//!   plan.json                 what is to be done, on which targets, by which version
//!   machine.json              what it is done on
//!   runs/0001-randread-4k-tank-1/
//!     measurement.json        figures and notes; what could not be sampled; lengths and digests of the files beside it
//!     series.parquet          what was sampled (rows: see `rows`)
//!     seconds.parquet         the streams, second by second
//!     histograms.parquet      latencies of the streams, histograms that were sampled
//!   failures.json             tests that gave no measurement, and why
//!   series.parquet, seconds.parquet, histograms.parquet    the same of all runs, made at the end
//!   summary.json              the figures, with median and interval: what other programs read ([`Summary`])
//! ```
//!
//! Idea: a run becomes visible by one rename of its folder, whole and on disk, so that whatever interrupts the work leaves complete
//! runs only, and a [`Recorder`] that resumes knows from the folder alone what is done.
//! Invariants: one writer at a time (a lock on `plan.json`); runs are never changed once there; only what is derived from them (the
//! merged tables, the summary) is made anew. What is read back equals what was written, bit for bit; damage is found by digest.

mod failure;
mod file;
mod record;
mod rows;
mod run;
mod summary;
mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use failure::Failure;
pub use record::Recorder;
pub use run::Run;
pub(crate) use summary::Figures;
pub use summary::{FigureSummary, Summary, TestSummary, summarise};

use crate::suite::Plan;
use crate::target::Target;
use crate::{LabError, Result};

/// The version of what is in a result folder. It changes when a reader of the former would misread it.
pub const SCHEMA: &str = "cenote-lab/1";

/// What is to be done, and on what: `plan.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Head {
    schema: String,
    /// Version of the program that began it.
    cenote: String,
    /// Nanoseconds since 1970, UTC.
    created_unix_ns: u64,
    targets: Vec<Target>,
    plan: Plan,
}

/// A result folder, open for reading.
#[derive(Debug)]
pub struct ResultFolder {
    path: PathBuf,
    head: Head,
    machine: Value,
    runs: Vec<run::Entry>,
}

impl ResultFolder {
    /// Opens the result at `path`: complete, interrupted, or still being written.
    ///
    /// # Errors
    /// There is none, or it is damaged or of another version; the text names the file.
    pub fn open(path: &Path) -> Result<ResultFolder> {
        let plan = path.join("plan.json");
        if !plan.is_file() {
            return Err(bad(path, "not a result: there is no plan.json in it"));
        }
        let head: Value = file::read_json(&plan)?;
        let schema = head.get("schema").and_then(Value::as_str).unwrap_or("none");
        if schema != SCHEMA {
            return Err(bad(&plan, format!("its schema is {schema:?}, this program reads {SCHEMA:?}")));
        }
        let head = serde_json::from_value(head).map_err(|e| bad(&plan, e.to_string()))?;
        let machine = file::read_json(&path.join("machine.json"))?;
        let runs = run::list(&path.join("runs"))?;
        Ok(ResultFolder { path: path.to_owned(), head, machine, runs })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, as results are told apart by: that of the folder.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| "result".into(), |name| name.to_string_lossy().into_owned())
    }

    /// What is to be done.
    pub fn plan(&self) -> &Plan {
        &self.head.plan
    }

    /// On what.
    pub fn targets(&self) -> &[Target] {
        &self.head.targets
    }

    /// What it is done on, as described when it began.
    pub fn machine(&self) -> &Value {
        &self.machine
    }

    /// When it began: nanoseconds since 1970, UTC.
    pub fn created_unix_ns(&self) -> u64 {
        self.head.created_unix_ns
    }

    /// How many runs are there.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs there will be in the end.
    pub fn planned(&self) -> usize {
        self.head.plan.tests.len() * self.head.targets.len() * self.head.plan.repeats as usize
    }

    /// Whether all that was planned is there.
    pub fn is_complete(&self) -> bool {
        let repeats = 1..=self.head.plan.repeats;
        let all = |target: &Target| {
            self.head.plan.tests.iter().all(|t| repeats.clone().all(|n| self.done(&t.name, &target.name, n)))
        };
        self.head.targets.iter().all(all)
    }

    /// Whether this run is there.
    pub fn done(&self, test: &str, target: &str, repeat: u32) -> bool {
        self.runs.iter().any(|run| run.is(test, target, repeat))
    }

    /// All runs, in the order in which they were done, read one after the other: a run may be large.
    pub fn runs(&self) -> impl Iterator<Item = Result<Run>> + '_ {
        self.runs.iter().map(run::Entry::read)
    }

    /// Tests that were tried and failed, and have not been done since.
    ///
    /// # Errors
    /// They can't be read.
    pub fn failures(&self) -> Result<Vec<Failure>> {
        let mut failures = failure::read(&self.path)?;
        failures.retain(|f| !self.done(&f.test, &f.target, f.repeat));
        Ok(failures)
    }

    /// The summary, made anew from the runs.
    ///
    /// # Errors
    /// A run can't be read.
    pub fn summary(&self) -> Result<Summary> {
        Summary::of(self, self.runs())
    }

    /// The summary of runs of this result that were read already.
    ///
    /// # Errors
    /// What failed can't be read.
    pub fn summary_of(&self, runs: &[Run]) -> Result<Summary> {
        Summary::of(self, runs.iter().map(Ok))
    }
}

/// Something is wrong with what is at `path`.
fn bad(path: &Path, what: impl Into<String>) -> LabError {
    LabError::Result { path: path.to_owned(), what: what.into() }
}
