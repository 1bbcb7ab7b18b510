//! The lab: measures storage, keeps the evidence, compares, advises and reports.
//!
//! ```text
//! load        suites, jobs, workloads, trees ──> measurement, samples ──> result folder
//! advice      facts about pools, from results or from pools in use ──> advice
//! analysis    results ──> findings ──> report with plots and advice: Markdown, HTML, terminal
//! ```
//!
//! Each of the three modules knows only those above it. They share [`unit`] and the statistics for few
//! repeats, which also set the number of repeats. This crate has no command line and prints nothing.

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
