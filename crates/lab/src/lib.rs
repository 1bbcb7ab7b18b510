//! The lab: measures storage, keeps the evidence, compares, advises and reports.
//!
//! ```text
//! load        suites, jobs, workloads, trees ──> measurement, samples ──> result folder
//! advice      facts about pools, from results or from pools in use ──> what should be done
//! analysis    results ──> findings ──> report with plots and advice: Markdown, HTML, terminal
//! ```
//!
//! Three rooms, each of which knows only those above it. Below all of them lie [`unit`] and statistics for
//! few repeats, which also say how often a load has to be run. This crate has no command line and prints
//! nothing.

pub mod advice;
pub mod analysis;
pub mod error;
mod load;
mod stats;
pub mod unit;

pub use error::{LabError, Result};
pub use load::{
    control, engine, fio, job, machine, measurement, preflight, program, recovery, result, run, sample,
    samples, suite, target, tree, walk, workload,
};
