//! Suites: sets of tests that answer a common question.
//!
//! A suite makes a [`Plan`] from options: tests, each with one piece of [`Work`], and text for the report.
//! The runner repeats each test on each target as planned. A plan is stored with its result, for resuming.

pub mod bonnie;
pub mod depth;
pub mod io;
pub mod metadata;
pub mod pools;
pub mod recovery;
pub mod scan;
pub mod vm;
mod work;

use serde::{Deserialize, Serialize};

use crate::load::bonnie::Bonnie;
use crate::load::job::Jobs;
use crate::load::recovery::{Engine, Recovery};
use crate::load::tree::TreeWork;
use crate::load::walk::Scan;
use crate::unit::times;

/// User's choices for a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Everything in under four minutes: smaller, shorter, fewer; the report says so.
    pub quick: bool,
    /// Repeats of each test; None for the suite's default.
    pub repeats: Option<u32>,
    /// Data set size; None for the suite's default.
    pub size_bytes: Option<u64>,
    /// Duration of each timed test; None for the suite's default.
    pub seconds: Option<u64>,
    /// All targets at once instead of in turn.
    pub together: bool,
    /// The real programs (`fio`, `bonnie++`) do the work.
    pub real: bool,
    /// Holder of the pools in recovery tests.
    #[serde(default)]
    pub engine: Engine,
    /// Machine's memory, which scales data sets.
    pub memory_bytes: u64,
    /// Command line, for the report.
    pub command: String,
}

/// One kind of work on a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// I/O on one file or device.
    Io(Jobs),
    /// Steps on a tree of files.
    Tree(TreeWork),
    /// A full metadata scan.
    Scan(Scan),
    /// bonnie's tests.
    Bonnie(Bonnie),
    /// Damage and repair of test pools.
    Recovery(Recovery),
}

/// One test of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Short name: `randread-4k`.
    pub name: String,
    /// One-sentence description for the report's method.
    pub about: String,
    /// Work of the test.
    pub work: Work,
}

/// Everything to do on each target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the suite.
    pub suite: String,
    /// Title of the report.
    pub title: String,
    /// Question and approach: a paragraph for the report's method.
    pub method: String,
    /// User's choices.
    pub options: Options,
    /// Repeats of each test on each target.
    pub repeats: u32,
    /// Tests in order.
    pub tests: Vec<Test>,
}

/// Plan of a job file: one test.
pub fn of_jobs(name: &str, jobs: Jobs, options: &Options) -> Plan {
    Plan {
        suite: "job".into(),
        title: format!("Job {name}"),
        method: format!("The job file {name} runs on each target, {}.", times(options.repeats.unwrap_or(1))),
        options: options.clone(),
        repeats: options.repeats.unwrap_or(1).max(1),
        tests: vec![Test {
            name: name.to_owned(),
            about: "The jobs of the file".into(),
            work: Work::Io(jobs),
        }],
    }
}
