//! Load: describes work on storage, performs and measures it, and keeps the evidence.
//!
//! ```text
//! suite ──> plan ──> preflight ──> run ──┬─> engine (jobs), tree, walk, recovery, real fio / bonnie++
//!                                        ├─> sample (beside it)
//!                                        └─> result folder: Measurement, Samples
//! ```
//!
//! A [`Job`](job::Job) describes the work, a [`Measurement`](measurement::Measurement) holds its result, and
//! [`Samples`](samples::Samples) hold the machine's activity meanwhile. The same three serve simulated
//! hardware: only the work and the sampler touch the real world.

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
