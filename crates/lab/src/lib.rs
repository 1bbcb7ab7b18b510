//! The lab: measures storage, keeps the evidence, compares, advises and reports.
//!
//! ```text
//! suite ──> plan ──> run ──┬─> engine (jobs), tree, walk, recovery, real fio / bonnie++
//!                          ├─> sample (beside it)
//!                          └─> result folder: Measurement, Samples
//! result ──> analysis ──> report (document, plots) ──> Markdown, HTML, terminal
//! facts  ──> advice
//! ```
//!
//! The shared types are here: a [`Job`](job::Job) says what to do, a
//! [`Measurement`](measurement::Measurement) holds the result, and [`Samples`](samples::Samples)
//! hold what the machine did meanwhile. The same three will serve simulated hardware: only the
//! engine and the sampler touch the real world. This crate has no command line and prints nothing.

pub mod advice;
pub mod analysis;
pub mod bonnie;
pub mod caches;
mod content;
pub mod control;
mod crew;
pub mod engine;
pub mod error;
mod eta;
pub mod fio;
pub mod job;
pub mod machine;
pub mod measurement;
pub mod plot;
pub mod preflight;
pub mod program;
pub mod recovery;
pub mod report;
pub mod result;
pub mod run;
pub mod sample;
pub mod samples;
pub mod stats;
pub mod suite;
pub mod target;
pub mod tree;
pub mod unit;
pub mod walk;
pub mod workload;

pub use error::{LabError, Result};
