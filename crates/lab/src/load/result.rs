//! Results: one folder per run of a suite. It holds all the evidence and is never overwritten.
//!
//! ```text
//! pools-20261122T024126Z/
//!   plan.json                 the plan: tests, targets, program version
//!   machine.json              the machine
//!   runs/0001-randread-4k-tank-1/
//!     measurement.json        figures and notes; sources not sampled; lengths and digests of the other files
//!     series.parquet          samples (rows: see `rows`)
//!     seconds.parquet         the streams, second by second
//!     histograms.parquet      latencies of the streams, sampled histograms
//!   failures.json             tests without a measurement, and why
//!   .reserve                  during recording: space reserved for it on a full disk
//!   series.parquet, seconds.parquet, histograms.parquet    the same for all runs, merged at the end
//!   summary.json              figures with median and interval, for other programs ([`Summary`])
//! ```
//!
//! A run appears by one rename of its folder, complete and on disk, so a [`Recorder`] that resumes can tell
//! from the folder which runs are done. Invariants: one writer at a time (a lock on `plan.json`); runs never
//! change; only derived files (the merged tables, the summary) are rewritten. Data read back equal those
//! written, bit for bit; damage is detected by digest.

mod failure;
mod file;
mod record;
mod reserve;
mod rows;
mod run;
mod summary;
pub mod table;
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

use crate::load::suite::Plan;
use crate::load::target::Target;
use crate::{LabError, Result};

/// Version of the result format. It changes when old readers would misread a result.
pub const SCHEMA: &str = "cenote-lab/1";

/// Plan and its targets: `plan.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Head {
    schema: String,
    /// Version of the program that started it.
    cenote: String,
    /// Nanoseconds since 1970, UTC.
    created_unix_ns: u64,
    targets: Vec<Target>,
    plan: Plan,
}

/// A result, open for reading.
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
    /// Absent, damaged, or of another version; the text names the file.
    pub fn open(path: &Path) -> Result<ResultFolder> {
        let plan = path.join("plan.json");
        if !plan.is_file() {
            return Err(bad(path, "not a result: it has no plan.json"));
        }
        let head: Value = file::read_json(&plan)?;
        let schema = head.get("schema").and_then(Value::as_str).unwrap_or("none");
        if schema != SCHEMA {
            return Err(bad(&plan, format!("its schema is {schema:?}, but this program reads {SCHEMA:?}")));
        }
        let head = serde_json::from_value(head).map_err(|e| bad(&plan, e.to_string()))?;
        let machine = file::read_json(&path.join("machine.json"))?;
        let runs = run::list(&path.join("runs"))?;
        Ok(ResultFolder { path: path.to_owned(), head, machine, runs })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the folder.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| "result".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Executed plan.
    pub fn plan(&self) -> &Plan {
        &self.head.plan
    }

    /// All targets.
    pub fn targets(&self) -> &[Target] {
        &self.head.targets
    }

    /// Description of the machine at the start.
    pub fn machine(&self) -> &Value {
        &self.machine
    }

    /// Start: nanoseconds since 1970, UTC.
    pub fn created_unix_ns(&self) -> u64 {
        self.head.created_unix_ns
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether it has no runs.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of planned runs.
    pub fn planned(&self) -> usize {
        self.head.plan.tests.len() * self.head.targets.len() * self.head.plan.repeats as usize
    }

    /// Whether it has all planned runs.
    pub fn is_complete(&self) -> bool {
        let repeats = 1..=self.head.plan.repeats;
        let all = |target: &Target| {
            self.head.plan.tests.iter().all(|t| repeats.clone().all(|n| self.done(&t.name, &target.name, n)))
        };
        self.head.targets.iter().all(all)
    }

    /// Whether it has this run.
    pub fn done(&self, test: &str, target: &str, repeat: u32) -> bool {
        self.runs.iter().any(|run| run.is(test, target, repeat))
    }

    /// All runs in the order of execution, read one at a time, because a run may be large.
    pub fn runs(&self) -> impl Iterator<Item = Result<Run>> + '_ {
        self.runs.iter().map(run::Entry::read)
    }

    /// Tests that failed and have not succeeded since.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn failures(&self) -> Result<Vec<Failure>> {
        let mut failures = failure::read(&self.path)?;
        failures.retain(|f| !self.done(&f.test, &f.target, f.repeat));
        Ok(failures)
    }

    /// Computes the summary from the runs.
    ///
    /// # Errors
    /// A run cannot be read.
    pub fn summary(&self) -> Result<Summary> {
        Summary::of(self, self.runs())
    }

    /// Computes the summary from runs of this result in memory.
    ///
    /// # Errors
    /// The failures cannot be read.
    pub fn summary_of(&self, runs: &[Run]) -> Result<Summary> {
        Summary::of(self, runs.iter().map(Ok))
    }
}

fn bad(path: &Path, what: impl Into<String>) -> LabError {
    LabError::Result { path: path.to_owned(), what: what.into() }
}
