//! Load: what is asked of storage, how that is done and measured, and the evidence that is kept.
//!
//! ```text
//! suite ──> plan ──> preflight ──> run ──┬─> engine (jobs), tree, walk, recovery, real fio / bonnie++
//!                                        ├─> sample (beside it)
//!                                        └─> result folder: Measurement, Samples
//! ```
//!
//! A [`Job`](job::Job) says what to do, a [`Measurement`](measurement::Measurement) holds the result, and
//! [`Samples`](samples::Samples) hold what the machine did meanwhile. The same three serve simulated
//! hardware: only the work and the sampler touch the real world. Nothing here knows what is concluded from a
//! result.

mod bonnie;
pub mod control;
pub mod engine;
pub mod fio;
pub mod job;
pub mod machine;
pub mod measurement;
pub mod preflight;
pub mod program;
pub mod recovery;
pub mod result;
pub mod run;
pub mod sample;
pub mod samples;
pub mod suite;
pub mod target;
pub mod tree;
pub mod walk;
pub mod workload;
