//! The engine in the deterministic simulator, on disks in memory: random work beside a model, and what may happen to disks.
//!
//! Read in this order: [`journal`] (disks that remember), [`power_cut`] (what is left of them), [`model`] (what should be there), [`work`]
//! (what is done), [`run`] (what must survive), [`check`] (whether it is there), [`cuts`], [`faults`] and [`full`] (the tests).
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod check;
mod cuts;
mod faults;
mod full;
mod image;
mod journal;
mod model;
mod pools;
mod power_cut;
mod run;
mod work;
