//! Suites: what is measured together, to answer a question that people have.
//!
//! A suite makes a [`Plan`] from options: tests, each one piece of [`Work`], and words for the report. The runner does each test on each
//! target as often as the plan says. A plan is kept with its result, so that an interrupted run can go on.

pub mod bonnie;
pub mod io;
pub mod metadata;
pub mod pools;
pub mod recovery;
pub mod scan;
pub mod vm;

use serde::{Deserialize, Serialize};

use crate::bonnie::Bonnie;
use crate::job::Jobs;
use crate::recovery::Recovery;
use crate::tree::TreeWork;
use crate::unit::times;
use crate::walk::Scan;

/// What a user may choose about a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// All of it under four minutes: smaller, shorter, fewer; the report says so.
    pub quick: bool,
    /// How often each test is done; the suite's own number if None.
    pub repeats: Option<u32>,
    /// Size of the data set; the suite's own if None.
    pub size_bytes: Option<u64>,
    /// How long each timed test goes on; the suite's own if None.
    pub seconds: Option<u64>,
    /// All targets at once, instead of one after the other.
    pub together: bool,
    /// Real programs (`fio`, `bonnie++`) do the work.
    pub real: bool,
    /// Bytes of memory of the machine: data sets are measured against it.
    pub memory_bytes: u64,
    /// The command line that asked for it, for the report.
    pub command: String,
}

/// One piece of work that can be done on a target.
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
    /// Damage and repair of pools made for the purpose.
    Recovery(Recovery),
}

/// One test of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Its short name: `randread-4k`.
    pub name: String,
    /// What it does, in one sentence for the report's method.
    pub about: String,
    /// What is done.
    pub work: Work,
}

/// All that is to be done on each target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The suite's name.
    pub suite: String,
    /// The report's title.
    pub title: String,
    /// The question that it answers, and how: a paragraph for the report's method.
    pub method: String,
    /// As chosen.
    pub options: Options,
    /// How often each test is done on each target.
    pub repeats: u32,
    /// In this order.
    pub tests: Vec<Test>,
}

/// The plan of a job file: one test.
pub fn of_jobs(name: &str, jobs: Jobs, options: &Options) -> Plan {
    Plan {
        suite: "job".into(),
        title: format!("Job {name}"),
        method: format!(
            "The job file {name} is run on each target, {}.",
            times(options.repeats.unwrap_or(1))
        ),
        options: options.clone(),
        repeats: options.repeats.unwrap_or(1).max(1),
        tests: vec![Test {
            name: name.to_owned(),
            about: "The jobs of the file".into(),
            work: Work::Io(jobs),
        }],
    }
}
