//! The commands, one module each: its options, the engine calls it makes, and its output.

pub mod arcstat;
pub mod complete;
pub mod completions;
pub mod demo;
pub mod dump;
pub mod files;
mod form;
pub mod guard;
pub mod inject;
mod json;
pub mod kstat;
pub mod lab;
pub mod man;
pub mod mount;
mod not_yet;
pub mod rescue;
pub mod scan;
pub mod serve;
pub mod stream;
pub mod top;
pub mod trace;
pub mod tunable;
pub mod verify;
mod version;
pub mod volume;
pub mod zfs;
pub mod zpool;
