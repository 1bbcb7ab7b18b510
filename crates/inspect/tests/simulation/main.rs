//! The engine in the deterministic simulator, on disks in memory: random operations compared with a model,
//! and all faults that disks may have.
//!
//! Read in this order: [`journal`] (disks that record writes), [`power_cut`] (disks after a cut), [`model`]
//! (the expected state), [`work`] (the operations), [`run`] (the data that must survive), [`check`] (whether
//! it did), [`cuts`], [`faults`], [`flushes`], [`mirrors`], [`replace`], [`spares`], [`removal`],
//! [`expansion`], [`scans`], [`repairs`], [`replays`], [`healthy`], [`trim`], [`ahead`], [`full`],
//! [`shared`], [`receives`], [`owners`], [`accused`], [`rewind`], [`dropped`] and [`many`] (the tests).
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod accused;
mod ahead;
mod check;
mod cuts;
mod dropped;
mod expansion;
mod faults;
mod flushes;
mod full;
mod healthy;
mod journal;
mod many;
mod mirrors;
mod model;
mod owners;
mod pools;
mod power_cut;
mod receives;
mod removal;
mod repairs;
mod replace;
mod replays;
mod rewind;
mod run;
mod scans;
mod shared;
mod spares;
mod split;
mod trim;
mod work;
